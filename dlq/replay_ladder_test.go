package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/access"
	"oncemore/internal/schedule"
	"oncemore/internal/testkit"
)

// campaign is a fault of n letters of one group, which nothing consumes yet.
func campaign(t *testing.T, n int, change ...func(*ReplayOptions)) (s *replayShop, points string, all Selection) {
	t.Helper()
	return campaignOn(t, testkit.FakeKafkaAddr(t), n, change...)
}

func campaignOn(t *testing.T, addr string, n int, change ...func(*ReplayOptions)) (s *replayShop, points string, all Selection) {
	t.Helper()
	s = newReplayShop(t, addr, change...)
	points = s.ours("points")
	for i := range n {
		s.deadLetter(s.order(fmt.Sprintf("payment-%03d", i)), points)
	}
	s.drain()
	for i := range n {
		all.LetterIDs = append(all.LetterIDs, s.letter(fmt.Sprintf("payment-%03d", i), points))
	}
	return s, points, all
}

// paced plans with a pace and starts.
func (s *replayShop) paced(all Selection, pace Pace) int64 {
	s.t.Helper()
	plan := s.plan(ada, PlanRequest{Selection: all, Target: ToGroup, Pace: pace})
	s.start(ada, plan.ID)
	return plan.ID
}

// until works steps until the replay is as wanted.
func (s *replayShop) until(id int64, what string, ok func(Replay) bool) Replay {
	s.t.Helper()
	testkit.Eventually(s.t, 60*time.Second, func() bool { s.stepOnce(s.replays, id); return ok(s.get(id)) }, "replay %d %s", id, what)
	return s.get(id)
}

func paused(p Replay) bool { return p.State == Paused }

func (s *replayShop) ladder(id int64) string {
	s.t.Helper()
	rungs, err := s.replays.Ladder(s.t.Context(), s.get(id))
	s.must(nil, err)
	var parts []string
	for _, r := range rungs {
		parts = append(parts, fmt.Sprintf("%d-%d %s %d/%d/%d", r.From, r.To, r.State, r.Sent, r.Bad, r.Pending))
	}
	return strings.Join(parts, ", ")
}

func TestEveryRungWaitsForSomebody(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 10)
	s.consume(points, applies, s.topic, points+".replay")
	id := s.paced(all, Pace{Ladder: []int{1, 3}})
	p := s.until(id, "pauses after the first rung", func(p Replay) bool { return paused(p) && p.Outcomes[Applied] == 1 })
	if p.Sent != 1 || p.PausedBy != "rung" || p.Wait.Key != "reason.wait.rung_pause" || p.WaitSince == nil {
		t.Errorf("sent %d, paused by %q: %+v", p.Sent, p.PausedBy, p.Wait)
	}
	if got := s.ladder(id); got != "1-1 stopped 1/0/0, 2-4 waiting 0/0/0, 5-10 waiting 0/0/0" {
		t.Error(got)
	}
	s.must(nil, s.replays.Resume(t.Context(), bob, id))
	p = s.until(id, "pauses after the second rung", func(p Replay) bool { return paused(p) && p.Outcomes[Applied] == 4 })
	if p.Sent != 4 || p.Rung != 1 {
		t.Errorf("sent %d, rung %d", p.Sent, p.Rung)
	}
	s.must(nil, s.replays.Resume(t.Context(), bob, id))
	s.work(id)
	if p := s.get(id); outcomes(p) != "applied 10" || p.Wait.Key != "" {
		t.Errorf("%s, %+v", outcomes(p), p.Wait)
	}
	if got := s.ladder(id); got != "1-1 passed 1/0/0, 2-4 passed 3/0/0, 5-10 passed 6/0/0" {
		t.Error(got)
	}
}

// A pause by a person inside a rung is not the rung's own.
func TestResumingInsideARungDoesNotSkipIt(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 6)
	s.consume(points, applies, s.topic, points+".replay")
	id := s.paced(all, Pace{Ladder: []int{1}, Automatic: true})
	s.must(nil, s.replays.Pause(t.Context(), ada, id))
	s.must(nil, s.replays.Resume(t.Context(), ada, id))
	if p := s.get(id); p.Rung != 0 {
		t.Errorf("rung %d before anything was sent", p.Rung)
	}
	s.work(id)
	if p := s.get(id); outcomes(p) != "applied 6" || p.Rung != 1 {
		t.Errorf("%s, rung %d", outcomes(p), p.Rung)
	}
}

func TestAGoodLadderGoesOnByItself(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s, points, all := campaignOn(t, addr, 12)
		s.consume(points, applies, s.topic, points+".replay")
		id := s.paced(all, Pace{Ladder: []int{1, 2, 4}, Automatic: true, StopShare: 5})
		s.work(id)
		if p := s.get(id); p.State != Done || outcomes(p) != "applied 12" || p.Rung != 3 {
			t.Errorf("%s: %s, rung %d", p.State, outcomes(p), p.Rung)
		}
	})
}

// Nobody consumes: the first rung's outcome stays unknown, and unknown is not good.
func TestARungThatNobodySawDoesNotGoOn(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 4, func(o *ReplayOptions) { o.SettleAfter = time.Second })
	s.skipTo(points, points+".replay")
	id := s.paced(all, Pace{Ladder: []int{1}, Automatic: true})
	p := s.until(id, "waits for the rung", func(p Replay) bool { return p.Wait.Key == "reason.wait.rung" || paused(p) })
	if p.Sent != 1 {
		t.Fatalf("sent %d", p.Sent)
	}
	p = s.until(id, "pauses", paused)
	if p.Sent != 1 || p.PausedBy != "rung" || p.Wait.Key != "reason.wait.rung_bad" || p.Outcomes[NotSeen] != 1 {
		t.Errorf("sent %d, paused by %q, %s: %s", p.Sent, p.PausedBy, outcomes(p), p.Wait.Text)
	}
}

func TestFailuresStopAReplay(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 12, func(o *ReplayOptions) { o.ChunkSize = 2 })
	var bad atomic.Bool
	bad.Store(true)
	s.consume(points, func(s *replayShop, group string, rec *kgo.Record) error {
		if bad.Load() {
			return failsAgain(s, group, rec)
		}
		return applies(s, group, rec)
	}, s.topic, points+".replay")
	id := s.paced(all, Pace{Ladder: []int{4}, Automatic: true, StopShare: 50}) // the rung waits for its outcomes
	p := s.until(id, "stops by itself", func(p Replay) bool { return paused(p) && p.PausedBy == "stop_rule" })
	if p.Failed == 0 || p.Waiting == 0 || p.Wait.Key != "reason.wait.stopped" {
		t.Fatalf("failed %d, waiting %d, %+v", p.Failed, p.Waiting, p.Wait)
	}
	bad.Store(false)
	for range 12 { // what failed before a person went on does not stop it once more
		if p = s.get(id); p.State == Done {
			break
		}
		if p.State == Paused {
			s.must(nil, s.replays.Resume(t.Context(), ada, id))
		}
		s.until(id, "goes on", func(p Replay) bool { return p.State != Running || p.Waiting == 0 && p.Outcomes[Pending] == 0 })
	}
	if p := s.get(id); p.State != Done || p.Outcomes[Applied] == 0 {
		t.Errorf("%s: %s", p.State, outcomes(p))
	}
}

func TestARateIsKept(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 12)
	s.consume(points, applies, s.topic, points+".replay")
	began := time.Now()
	id := s.paced(all, Pace{Rate: 4})
	s.work(id)
	if took := time.Since(began); took < 1900*time.Millisecond { // 12 items: 4 at once, and twice a second
		t.Errorf("12 items at 4 per second took %s", took)
	}
	if n := s.count(`SELECT count(*) FROM replay_chunk WHERE replay_id = $1 AND to_no - from_no >= 4`, id); n != 0 {
		t.Errorf("%d chunks hold more than one second's items", n)
	}
}

// testClock is moved by the test.
type testClock struct{ ahead atomic.Int64 }

func (c *testClock) now() time.Time      { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *testClock) add(d time.Duration) { c.ahead.Add(int64(d)) }

func TestNothingLeavesOutsideTheHours(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	s, points, all := campaign(t, 3, func(o *ReplayOptions) { o.Clock = clock.now })
	s.consume(points, applies, s.topic, points+".replay")
	opens := clock.now().UTC().Add(3 * time.Hour)
	from := opens.Hour()*60 + opens.Minute()
	window := &Window{From: from, To: (from + 120) % (24 * 60), Zone: "UTC"}
	id := s.paced(all, Pace{Window: window})
	s.stepOnce(s.replays, id)
	p := s.get(id)
	if p.Sent != 0 || p.State != Running || p.Wait.Key != "reason.wait.window" || p.Wait.Args["window"] != window.String() {
		t.Fatalf("sent %d, %s, %+v", p.Sent, p.State, p.Wait)
	}
	var due time.Time
	s.must(nil, s.pool.QueryRow(t.Context(), `SELECT max(scheduled_at) FROM river_job WHERE kind = 'replay_step' AND state = 'scheduled'`).Scan(&due))
	if wait := time.Until(due); wait < time.Minute || wait > longestDelay {
		t.Errorf("the next step comes in %s", wait)
	}
	clock.add(3*time.Hour + time.Minute)
	s.work(id)
	if p := s.get(id); outcomes(p) != "applied 3" || p.Wait.Key != "" {
		t.Errorf("%s, %+v", outcomes(p), p.Wait)
	}
}

func TestAReplayStartsAtItsTime(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	s, points, all := campaign(t, 3, func(o *ReplayOptions) { o.Clock = clock.now })
	s.consume(points, applies, s.topic, points+".replay")
	sched := schedule.New(s.pool, testLog(), clock.now)
	s.replays.Schedule(sched)
	at := clock.now().Add(time.Hour)
	id, other := s.paced(ids(all.LetterIDs[:2]...), Pace{StartAt: &at}), s.paced(ids(all.LetterIDs[2]), Pace{StartAt: &at})
	if p := s.get(id); p.State != Scheduled || p.StartedAt != nil {
		t.Fatalf("%s, started %v", p.State, p.StartedAt)
	}
	s.must(nil, s.replays.Cancel(t.Context(), ada, other))
	s.tick(sched, 0)
	clock.add(61 * time.Minute)
	var all3 sync.WaitGroup // two processes look at once
	for range 2 {
		all3.Go(func() {
			if _, err := sched.Tick(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all3.Wait()
	if p := s.get(other); p.State != Canceled {
		t.Errorf("the canceled one is %s", p.State)
	}
	s.work(id)
	if p := s.get(id); outcomes(p) != "applied 2" || p.StartedAt == nil || *p.StartedBy != "ada" {
		t.Errorf("%s, %+v", outcomes(p), p)
	}
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'replay.started' AND target = $1`, fmt.Sprintf("replay/%d", id)); n != 2 {
		t.Errorf("%d audit rows: one for who scheduled it, one for the start", n)
	}
}

func (s *replayShop) tick(sched *schedule.Scheduler, want int) {
	s.t.Helper()
	if n, err := sched.Tick(s.t.Context()); err != nil || n != want {
		s.t.Errorf("did %d of %d: %v", n, want, err)
	}
}

// A process that dies while a scheduled replay starts leaves it scheduled.
func TestAScheduledStartThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	s, _, all := campaign(t, 1, func(o *ReplayOptions) { o.Clock = clock.now })
	at := clock.now().Add(time.Hour)
	id := s.paced(all, Pace{StartAt: &at})
	clock.add(2 * time.Hour)
	sched := schedule.New(s.pool, testLog(), clock.now)
	died := errors.New("died between the two")
	sched.Handle(startSchedule, func(ctx context.Context, tx pgx.Tx, ref string, at time.Time) (time.Time, error) {
		if _, err := s.replays.startScheduled(ctx, tx, ref, at); err != nil {
			return time.Time{}, err
		}
		return time.Time{}, died
	})
	s.tick(sched, 1)
	if p := s.get(id); p.State != Scheduled {
		t.Fatalf("it is %s", p.State)
	}
	s.replays.Schedule(sched)
	clock.add(time.Minute)
	s.tick(sched, 1)
	if p := s.get(id); p.State != Running {
		t.Errorf("it is %s", p.State)
	}
}

func TestAnApprovalHoldsForWhatWasSeen(t *testing.T) {
	t.Parallel()
	s, _, all := campaign(t, 2, func(o *ReplayOptions) { o.ApprovalSize = 1; o.ApprovalFor = time.Hour })
	plan := s.plan(ada, PlanRequest{Selection: all, Target: ToGroup})
	seen := s.get(plan.ID).Bound()
	s.must(nil, s.replays.SetPace(t.Context(), ada, plan.ID, Pace{Rate: 10}))
	if err := s.replays.ApproveSeen(t.Context(), eve, plan.ID, seen); !errors.Is(err, ErrApprovalVoid) {
		t.Errorf("a plan that changed after it was seen: %v", err)
	}
	s.must(nil, s.replays.ApproveSeen(t.Context(), eve, plan.ID, s.get(plan.ID).Bound()))
	s.must(nil, s.replays.SetPace(t.Context(), ada, plan.ID, Pace{Rate: 10})) // no change, no harm
	s.must(nil, s.replays.SetPace(t.Context(), ada, plan.ID, Pace{Rate: 1000}))
	if p := s.get(plan.ID); p.State != AwaitingApproval || p.ApprovedBy != nil {
		t.Fatalf("after its pace was changed it is %s", p.State)
	}
	s.must(nil, s.replays.Approve(t.Context(), eve, plan.ID))
	s.must(s.pool.Exec(t.Context(), `UPDATE replay SET approved_at = now() - interval '61 minutes' WHERE id = $1`, plan.ID))
	if err := s.replays.Start(t.Context(), ada, plan.ID); !errors.Is(err, ErrApprovalVoid) {
		t.Errorf("an old approval: %v", err)
	}
	if p := s.get(plan.ID); p.State != AwaitingApproval {
		t.Errorf("after its approval expired it is %s", p.State)
	}
	s.must(nil, s.replays.Approve(t.Context(), eve, plan.ID))
	s.must(s.pool.Exec(t.Context(), `UPDATE replay SET digest = '\x00' WHERE id = $1`, plan.ID))
	if err := s.replays.Start(t.Context(), ada, plan.ID); !errors.Is(err, ErrApprovalVoid) {
		t.Errorf("another set than was approved: %v", err)
	}
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'replay.paced' AND detail->'pace'->>'rate' = '1000' AND detail->'pace_before'->>'rate' = '10'`); n != 1 {
		t.Errorf("%d audit rows of the change", n)
	}
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'replay.approval_voided'`); n != 3 {
		t.Errorf("%d audit rows of voided approvals", n)
	}
}

// The maker and the approver are two people whatever way the maker takes.
func TestNobodyApprovesTheirOwn(t *testing.T) {
	t.Parallel()
	s, _, all := campaign(t, 2, func(o *ReplayOptions) { o.ApprovalSize = 1 })
	boss := access.Actor{User: "boss", Role: access.Admin, Via: "session", Reason: "mine"}
	plan := s.plan(boss, PlanRequest{Selection: all, Target: ToGroup})
	boss.Via = "token:laptop"
	for name, act := range map[string]func(context.Context, access.Actor, int64) error{"approve": s.replays.Approve, "reject": s.replays.Reject} {
		if err := act(t.Context(), boss, plan.ID); !errors.Is(err, ErrOwnApproval) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.replays.Start(t.Context(), boss, plan.ID); err == nil {
		t.Error("it started without an approval")
	}
	_, err := s.pool.Exec(t.Context(), `UPDATE replay SET approved_by = created_by WHERE id = $1`, plan.ID)
	if err == nil {
		t.Error("the database took an approval by the maker")
	}
}

func TestALargePlanIsMadeInSteps(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 9, func(o *ReplayOptions) { o.PlanAtOnce = 4 })
	s.deadLetter(s.produce(&kgo.Record{Value: []byte("no id")}), points)
	s.drain()
	fault := int32(s.count(`SELECT min(fault_id) FROM dead_letter`))
	small := s.planAtOnce(all)
	for name, sel := range map[string]Selection{"named": all, "fault": {FaultID: fault}} {
		plan := s.plan(ada, PlanRequest{Selection: sel, Target: ToGroup, Pace: Pace{Rate: 7}, RequestKey: name})
		if plan.State != Planning || plan.ID == 0 {
			t.Fatalf("%s: %+v", name, plan)
		}
		if again := s.plan(ada, PlanRequest{Selection: sel, Target: ToGroup, Pace: Pace{Rate: 7}, RequestKey: name}); again.ID != plan.ID {
			t.Errorf("%s: the same request made another plan", name)
		}
		if err := s.replays.Start(t.Context(), ada, plan.ID); err == nil {
			t.Errorf("%s: started while it was planned", name)
		}
		p := s.until(plan.ID, "is planned", func(p Replay) bool { return p.State != Planning })
		if p.State != Planned || p.Total != 9 || p.Pace.Rate != 7 || p.PlanTotal < 9 {
			t.Fatalf("%s: %s, %+v", name, p.State, p)
		}
		if name == "named" && !slices.Equal(p.Digest, small.Digest) {
			t.Error("the set is another one than planned at once")
		}
		if name == "fault" && (p.Letters != 10 || p.Refused != 1 || p.Verdicts[NoEventID] != 1) {
			t.Errorf("%d letters, %d refused, %v", p.Letters, p.Refused, p.Verdicts)
		}
	}
	if n := s.count(`SELECT count(*) FROM replay_draft`); n != 0 {
		t.Errorf("%d drafts are left", n)
	}
}

// planAtOnce plans as if the set were small.
func (s *replayShop) planAtOnce(all Selection) Replay {
	s.t.Helper()
	was := s.replays.opts.PlanAtOnce
	s.replays.opts.PlanAtOnce = 1000
	defer func() { s.replays.opts.PlanAtOnce = was }()
	return s.get(s.plan(ada, PlanRequest{Selection: all, Target: ToGroup}).ID)
}

// A large one click is judged in steps and then starts by itself.
func TestALargeOneClickStartsWhenItIsPlanned(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 6, func(o *ReplayOptions) { o.PlanAtOnce = 2 })
	s.consume(points, applies, s.topic, points+".replay")
	plan := s.plan(ada, PlanRequest{Selection: all, Target: ToSafe})
	s.work(plan.ID)
	if p := s.get(plan.ID); outcomes(p) != "applied 6" || *p.StartedBy != "ada" {
		t.Errorf("%s", outcomes(p))
	}
}

func TestALargePlanCanBeCanceledOrFail(t *testing.T) {
	t.Parallel()
	s, _, all := campaign(t, 4, func(o *ReplayOptions) { o.PlanAtOnce = 1 })
	plan := s.plan(ada, PlanRequest{Selection: all, Target: ToGroup})
	s.must(nil, s.replays.Cancel(t.Context(), ada, plan.ID))
	s.stepOnce(s.replays, plan.ID)
	if p := s.get(plan.ID); p.State != Canceled || p.Total != 0 {
		t.Errorf("canceled: %s", p.State)
	}
	stray := PlanRequest{Selection: all, Target: ToGroup, Overrides: []Override{{LetterID: uuid.New(), Group: "x", Verdict: Expired, Reason: "why not"}}}
	plan = s.plan(ada, stray)
	p := s.until(plan.ID, "fails", func(p Replay) bool { return p.State != Planning })
	if p.State != Canceled || p.Wait.Key != "reason.plan.failed" {
		t.Errorf("failed: %s, %+v", p.State, p.Wait)
	}
	if n := s.count(`SELECT count(*) FROM replay_draft`); n != 0 {
		t.Errorf("%d drafts are left", n)
	}
}

// A plan whose process dies goes on where it was, and doubled steps change nothing.
func TestAPlanGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	s, _, all := campaign(t, 5, func(o *ReplayOptions) { o.PlanAtOnce = 1 })
	plan := s.plan(ada, PlanRequest{Selection: all, Target: ToGroup})
	step := &step{r: s.replays, id: plan.ID, log: testLog()}
	var err error
	step.epoch, _, err = s.replays.acquire(t.Context(), stepArgs{Replay: plan.ID})
	s.must(nil, err)
	p, err := step.planning(t.Context())
	s.must(nil, err)
	p.req.Selection.LetterIDs = sortedIDs(slices.Clone(all.LetterIDs))[:2] // dies after two letters
	if more, err := step.draftChunk(t.Context(), p); err != nil || !more {
		t.Fatalf("%v, %v", more, err)
	}
	s.must(s.pool.Exec(t.Context(), `UPDATE replay SET lease_until = now() - interval '1 second' WHERE id = $1`, plan.ID))
	done := s.until(plan.ID, "is planned", func(p Replay) bool { return p.State != Planning })
	if done.State != Planned || done.Total != 5 || done.Letters != 5 {
		t.Errorf("%s, %d of %d", done.State, done.Total, done.Letters)
	}
	if err := step.freeze(t.Context(), p); !errors.Is(err, errFenced) {
		t.Errorf("the step that was overtaken: %v", err)
	}
}

func TestRedoOfWhatFailed(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 4)
	var bad atomic.Bool
	bad.Store(true)
	s.consume(points, func(s *replayShop, group string, rec *kgo.Record) error {
		if bad.Load() && strings.HasSuffix(eventOf(rec), "2") {
			return failsAgain(s, group, rec)
		}
		return applies(s, group, rec)
	}, s.topic, points+".replay")
	id := s.paced(all, Pace{})
	s.work(id)
	if p := s.get(id); outcomes(p) != "applied 3, failed_again 1" {
		t.Fatal(outcomes(p))
	}
	s.drain()
	bad.Store(false)
	redo := s.plan(ada, PlanRequest{Selection: Selection{RedoOf: id}, Target: ToGroup})
	if redo.Total != 1 {
		t.Fatalf("%+v", redo)
	}
	if p := s.get(redo.ID); p.RedoOf == nil || *p.RedoOf != id {
		t.Errorf("redo of %v", p.RedoOf)
	}
	s.start(ada, redo.ID)
	s.work(redo.ID)
	if p := s.get(redo.ID); outcomes(p) != "applied 1" {
		t.Error(outcomes(p))
	}
	if _, err := s.replays.Plan(t.Context(), ada, PlanRequest{Selection: Selection{RedoOf: redo.ID}, Target: ToGroup}); !errors.Is(err, ErrNothingToSend) {
		t.Errorf("redo of what went well: %v", err)
	}
	if _, err := s.replays.Plan(t.Context(), ada, PlanRequest{Selection: Selection{RedoOf: 999}, Target: ToGroup}); !errors.Is(err, ErrNotFound) {
		t.Errorf("redo of nothing: %v", err)
	}
}

func TestEldersThatStayArePointedOut(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	order := func(event, key string) uuid.UUID {
		rec := s.produce(&kgo.Record{Key: []byte(key), Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(event)}}})
		s.deadLetter(rec, points)
		s.drain()
		return s.letter(event, points)
	}
	elder, other, younger := order("a-1", "user-7"), order("b-1", "user-8"), order("a-2", "user-7")
	plan := s.plan(ada, PlanRequest{Selection: ids(younger, other), Target: ToGroup})
	elders, err := s.replays.Elders(t.Context(), plan.ID, 10)
	s.must(nil, err)
	if p := s.get(plan.ID); p.Elders != 1 || len(elders) != 1 || elders[0].LetterID != elder || elders[0].ItemKey != "a-2" {
		t.Errorf("%d items with elders: %+v", p.Elders, elders)
	}
	both := s.plan(ada, PlanRequest{Selection: ids(younger, other, elder), Target: ToGroup})
	if p := s.get(both.ID); p.Elders != 0 {
		t.Errorf("%d items with elders, though they are in the set", p.Elders)
	}
	items, err := s.replays.Items(t.Context(), both.ID, ItemFilter{}, Page{})
	s.must(nil, err)
	var order2 []string
	for _, i := range items.Items {
		order2 = append(order2, *i.EventID)
	}
	if a, b := slices.Index(order2, "a-1"), slices.Index(order2, "a-2"); a > b {
		t.Errorf("a younger sibling goes first: %v", order2)
	}
}

func TestALetterThatWasReplayedTooOftenIsParked(t *testing.T) {
	t.Parallel()
	s, points, all := campaign(t, 1, func(o *ReplayOptions) { o.ReplayCap = 2 })
	s.consume(points, failsAgain, s.topic, points+".replay")
	letter := all.LetterIDs[0]
	for range 2 {
		s.drain()
		id := s.paced(all, Pace{})
		s.until(id, "fails", func(p Replay) bool { return p.State == Done && p.Outcomes[FailedAgain] == 1 })
	}
	plan := s.plan(ada, PlanRequest{Selection: all, Target: ToGroup})
	if plan.Total != 0 || plan.RefusedN != 1 || plan.Refused[0].Reason.Key != "reason.letter.parked" {
		t.Fatalf("%+v", plan)
	}
	if parked, n, err := s.replays.Parked(t.Context(), letter); err != nil || !parked || n != 2 {
		t.Errorf("parked %v after %d: %v", parked, n, err)
	}
	noReason := ada
	noReason.Reason = " "
	if err := s.replays.Unpark(t.Context(), noReason, letter); !errors.Is(err, access.ErrReasonRequired) {
		t.Errorf("without a reason: %v", err)
	}
	viewer := access.Actor{User: "vic", Role: access.Viewer, Reason: "please"}
	if err := s.replays.Unpark(t.Context(), viewer, letter); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("a viewer: %v", err)
	}
	s.must(nil, s.replays.Unpark(t.Context(), ada, letter))
	if plan := s.plan(ada, PlanRequest{Selection: all, Target: ToGroup}); plan.Total != 1 {
		t.Errorf("after it was allowed: %+v", plan)
	}
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'letter.unparked' AND reason <> ''`); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestNewArrivalsAreCounted(t *testing.T) {
	t.Parallel()
	s, points, _ := campaign(t, 2)
	fault := int32(s.count(`SELECT min(fault_id) FROM dead_letter`))
	plan := s.plan(ada, PlanRequest{Selection: Selection{FaultID: fault}, Target: ToGroup})
	if n, _, err := s.replays.Arrived(t.Context(), s.get(plan.ID)); err != nil || n != 0 {
		t.Errorf("%d new: %v", n, err)
	}
	s.failed("payment-new", points)
	n, bounded, err := s.replays.Arrived(t.Context(), s.get(plan.ID))
	if err != nil || n != 1 || bounded {
		t.Errorf("%d new, bounded %v: %v", n, bounded, err)
	}
}
