package dlq

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/access"
	"oncemore/internal/testkit"
)

func TestOneClickSendsWhatIsSafe(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		points := s.ours("points")
		legacy := testkit.Name("legacy") // reads a topic of its own, without evidence
		legacyTopic := testkit.Topic(t, addr, "coupon", 1)
		s.groups = append(s.groups, Group{Name: legacy, Topics: []string{legacyTopic}})
		s.connect()
		var letters Selection
		for _, event := range []string{"safe-1", "safe-2", "safe-3", "applied-4"} {
			letters.LetterIDs = append(letters.LetterIDs, s.failed(event, points))
		}
		s.consumed("applied-4", points)
		unprotected := &kgo.Record{Topic: legacyTopic, Value: []byte("{}"), Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("coupon-5")}}}
		s.deadLetter(s.produce(unprotected), legacy)
		s.deadLetter(s.produce(&kgo.Record{Value: []byte("no id")}), points)
		s.drain()
		bare, nameless := s.letter("coupon-5", legacy), s.letter("", points)
		letters.LetterIDs = append(letters.LetterIDs, bare, nameless)
		s.consume(points, applies, s.topic, points+".replay")
		s.jobs()

		plan := s.plan(ada, PlanRequest{Selection: letters, Target: ToSafe})
		if plan.State != Running || plan.Total != 4 || plan.Verdicts[Safe] != 3 || plan.Verdicts[AlreadyApplied] != 1 {
			t.Fatalf("plan %+v", plan)
		}
		why := map[uuid.UUID]Verdict{}
		for _, r := range plan.Refused {
			if why[r.LetterID] = r.Verdict; r.Reason.Text == "" {
				t.Errorf("%s stays without a reason", r.Verdict)
			}
		}
		if len(why) != 2 || why[bare] != Unprotected || why[nameless] != NoEventID {
			t.Errorf("left out: %v", why)
		}
		s.waitDone(plan.ID)
		if p := s.get(plan.ID); outcomes(p) != "applied 3, duplicate 1" || p.Sent != 4 || p.Refused != 2 {
			t.Errorf("%s, sent %d, refused %d", outcomes(p), p.Sent, p.Refused)
		}
		if n := len(s.sent(points + ".replay")); n != 4 {
			t.Errorf("%d messages were sent", n)
		}
		for _, left := range []uuid.UUID{bare, nameless} {
			if st := s.letterState(left); st != Open {
				t.Errorf("a letter that stays is %s", st)
			}
		}
	})
}

func TestOneClickOnAFault(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	for i := range 5 {
		s.deadLetter(s.order(fmt.Sprintf("payment-%d", i)), points)
	}
	s.deadLetter(s.produce(&kgo.Record{Value: []byte("no id")}), points)
	s.drain()
	fault := int32(s.count(`SELECT min(fault_id) FROM dead_letter`))
	plan := s.plan(ada, PlanRequest{Selection: Selection{FaultID: fault}, Target: ToSafe})
	if plan.Total != 5 || plan.State != Running || plan.RefusedN != 1 {
		t.Fatalf("plan %+v", plan)
	}
	if p := s.get(plan.ID); p.FaultID == nil || *p.FaultID != fault {
		t.Errorf("fault %v", p.FaultID)
	}
	if n := s.count(`SELECT count(*) FROM audit_log WHERE action = 'replay.started' AND detail->>'items' = '5' AND detail->>'digest' <> ''`); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestOneClickWithNothingSafeIsDone(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	s.deadLetter(s.produce(&kgo.Record{Value: []byte("no id")}), points)
	s.drain()
	plan := s.plan(ada, PlanRequest{Selection: ids(s.letter("", points)), Target: ToSafe})
	if plan.State != Done || plan.Total != 0 || plan.RefusedN != 1 {
		t.Errorf("plan %+v", plan)
	}
}

func (s *replayShop) waitDone(id int64) {
	s.t.Helper()
	testkit.Eventually(s.t, 60e9, func() bool { return s.get(id).State == Done }, "replay %d is done", id)
}

func TestTwoPeopleReplayOneLetter(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		points := s.ours("points")
		letter := s.failed("payment-1", points)
		s.consume(points, applies, s.topic, points+".replay")
		s.jobs()
		req := PlanRequest{Selection: ids(letter), Target: ToGroup}
		first, second := s.plan(ada, req), s.plan(bob, req)
		var starts sync.WaitGroup
		errs := make([]error, 2)
		starts.Go(func() { errs[0] = s.replays.Start(t.Context(), ada, first.ID) })
		starts.Go(func() { errs[1] = s.replays.Start(t.Context(), bob, second.ID) })
		starts.Wait()
		testkit.Eventually(t, 60e9, func() bool {
			for i, id := range []int64{first.ID, second.ID} {
				if errs[i] == nil && s.get(id).State != Done {
					return false
				}
			}
			return true
		}, "both replays end")
		if n := len(s.sent(points + ".replay")); n != 1 {
			t.Fatalf("%d messages were sent", n)
		}
		s.wasTold(t, []int64{first.ID, second.ID}, errs)
	})
}

// wasTold checks that the one replay that did not send says why.
func (s *replayShop) wasTold(t *testing.T, replays []int64, errs []error) {
	t.Helper()
	told := 0
	for i, id := range replays {
		var conflict *ErrConflict
		if errors.As(errs[i], &conflict) {
			if told++; conflict.By == "" || conflict.Replay == id || conflict.At.IsZero() {
				t.Errorf("conflict %+v does not say who, when and which", conflict)
			}
			continue
		}
		s.must(nil, errs[i])
		items, err := s.replays.Items(t.Context(), id, ItemFilter{Tab: "left_out"}, Page{})
		s.must(nil, err)
		for _, it := range items.Items {
			if told++; it.Reason.Text == "" {
				t.Errorf("item of replay %d is left out without a reason", id)
			}
		}
	}
	if told != len(replays)-1 {
		t.Errorf("%d were told", told)
	}
}

func TestClaimsDecideBetweenTargets(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points, stock := s.ours("points"), s.ours("stock")
	event := s.order("payment-1")
	s.deadLetter(event, points)
	s.deadLetter(event, stock)
	s.drain()
	a, b := s.letter("payment-1", points), s.letter("payment-1", stock)
	toGroup := s.plan(ada, PlanRequest{Selection: ids(a), Target: ToGroup})
	toOrigin := s.plan(bob, PlanRequest{Selection: ids(b), Target: ToOrigin})
	s.start(ada, toGroup.ID)
	s.start(bob, toOrigin.ID)
	s.stepOnce(s.replays, toGroup.ID) // sends, and stays pending
	s.work(toOrigin.ID)
	if n := len(s.sent(s.topic)); n != 0 {
		t.Errorf("the origin got %d messages for a claimed group", n)
	}
	items, err := s.replays.Items(t.Context(), toOrigin.ID, ItemFilter{Tab: "worth"}, Page{})
	s.must(nil, err)
	if len(items.Items) != 1 || items.Items[0].State != "left_out" || !strings.Contains(items.Items[0].Reason.Text, fmt.Sprintf("R-%d", toGroup.ID)) {
		t.Errorf("items %+v", items.Items)
	}
	if st := s.letterState(b); st != Open {
		t.Errorf("the other group's letter is %s", st)
	}
}

func TestThreeGroupsOfOneEventAreOneMessage(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		event := s.order("payment-1")
		var groups []string
		var letters Selection
		for i, do := range []behaviour{applies, failsAgain, swallows} {
			group := s.foreign(fmt.Sprintf("group%d", i), s.evidence())
			groups = append(groups, group)
			s.deadLetter(event, group)
			s.consume(group, do, s.topic)
		}
		s.drain()
		for _, g := range groups {
			letters.LetterIDs = append(letters.LetterIDs, s.letter("payment-1", g))
		}
		s.jobs()
		plan := s.plan(ada, PlanRequest{Selection: letters, Target: ToOrigin})
		if plan.Total != 1 || plan.Letters != 3 {
			t.Fatalf("plan %+v", plan)
		}
		s.start(ada, plan.ID)
		s.waitDone(plan.ID)
		if n := len(s.sent(s.topic)); n != 1 {
			t.Errorf("%d messages were sent", n)
		}
		if p := s.get(plan.ID); outcomes(p) != "applied 1, failed_again 1, swallowed 1" {
			t.Errorf("outcomes %s", outcomes(p))
		}
		for i, want := range []State{Resolved, Open, Open} {
			if st := s.letterState(letters.LetterIDs[i]); st != want {
				t.Errorf("letter of group %d is %s", i, st)
			}
		}
	})
}

func TestAGroupWithoutALetterMayFailToo(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points, stock := s.foreign("points", s.evidence()), s.foreign("stock", s.evidence())
	letter := s.failed("payment-1", points)
	s.consume(points, applies, s.topic)
	s.consume(stock, failsAgain, s.topic)
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToOrigin})
	s.start(ada, plan.ID)
	s.work(plan.ID)
	if p := s.get(plan.ID); outcomes(p) != "applied 1, failed_again 1" {
		t.Errorf("outcomes %s", outcomes(p))
	}
	if st := s.letterState(letter); st != Resolved {
		t.Errorf("the letter of the group that applied is %s", st)
	}
	if st := s.letterState(s.letter("payment-1", stock)); st != Open {
		t.Errorf("the new letter is %s", st)
	}
}

func TestOverridesNeedAnotherPerson(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	legacy := s.foreign("legacy", nil)
	letter := s.failed("payment-1", legacy)
	s.consume(legacy, swallows, s.topic)
	root := access.Actor{User: "root", Role: access.Admin, Reason: "all is well"}
	req := PlanRequest{Selection: ids(letter), Target: ToOrigin, Overrides: []Override{{LetterID: letter, Group: legacy, Verdict: Unprotected, Reason: "no coupon was given"}}}
	plan := s.plan(root, req)
	if plan.State != AwaitingApproval || plan.Total != 1 {
		t.Fatalf("plan %+v", plan)
	}
	var conflict *ErrConflict
	if err := s.replays.Start(t.Context(), root, plan.ID); !errors.As(err, &conflict) {
		t.Errorf("started without approval: %v", err)
	}
	for what, err := range map[string]error{
		"approved": s.replays.Approve(t.Context(), root, plan.ID), "rejected": s.replays.Reject(t.Context(), root, plan.ID),
	} {
		if !errors.Is(err, ErrOwnApproval) {
			t.Errorf("an admin %s their own: %v", what, err)
		}
	}
	if err := s.replays.Approve(t.Context(), ada, plan.ID); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("an operator approved: %v", err)
	}
	mute := eve
	mute.Reason = ""
	if err := s.replays.Approve(t.Context(), mute, plan.ID); !errors.Is(err, access.ErrReasonRequired) {
		t.Errorf("approved without a reason: %v", err)
	}
	s.must(nil, s.replays.Approve(t.Context(), eve, plan.ID))
	s.start(root, plan.ID)
	s.work(plan.ID)
	p := s.get(plan.ID)
	if outcomes(p) != "unverified 1" || p.ApprovedBy == nil || *p.ApprovedBy != "eve" || len(p.Overrides) != 1 || p.Overrides[0].EventID != "payment-1" {
		t.Errorf("%s, %+v", outcomes(p), p)
	}
	if st := s.letterState(letter); st != Resolved {
		t.Errorf("an overridden letter that did not come back is %s", st)
	}
	req.Overrides[0].Reason = " "
	if _, err := s.replays.Plan(t.Context(), root, req); !errors.Is(err, access.ErrReasonRequired) {
		t.Errorf("overridden without a reason: %v", err)
	}
	req.Overrides[0].Reason, req.Overrides[0].Verdict = "x", InFlight
	var bad *ErrBadOverride
	if _, err := s.replays.Plan(t.Context(), root, req); !errors.As(err, &bad) {
		t.Errorf("a verdict that nobody may override: %v", err)
	}
}

func TestLargeReplaysNeedAnotherPerson(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	s.connect(func(o *ReplayOptions) { o.ApprovalSize = 2 })
	for i := range 3 {
		s.deadLetter(s.order(fmt.Sprintf("payment-%d", i)), points)
	}
	s.drain()
	plan := s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{Group: points}}, Target: ToSafe})
	if plan.State != AwaitingApproval || plan.Total != 3 {
		t.Fatalf("plan %+v", plan)
	}
	s.must(nil, s.replays.Reject(t.Context(), eve, plan.ID))
	if p := s.get(plan.ID); p.State != Canceled || p.RejectedBy == nil || *p.RejectedBy != "eve" || p.ApprovalReason != eve.Reason {
		t.Errorf("%+v", p)
	}
	var conflict *ErrConflict
	if err := s.replays.Approve(t.Context(), eve, plan.ID); !errors.As(err, &conflict) || conflict.By != "eve" {
		t.Errorf("approved what was rejected: %v", err)
	}
}

func TestVerdictThatChangedLeavesTheItemOut(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.groups[0].Evidence = nil
	s.connect()
	s.start(ada, plan.ID)
	s.work(plan.ID)
	items, err := s.replays.Items(t.Context(), plan.ID, ItemFilter{Tab: "worth"}, Page{})
	s.must(nil, err)
	if len(items.Items) != 1 || items.Items[0].State != "left_out" || !strings.Contains(items.Items[0].Reason.Text, "unprotected") {
		t.Errorf("items %+v", items.Items)
	}
	if len(s.sent(points+".replay")) != 0 || s.letterState(letter) != Open {
		t.Error("it was sent, or its letter is not open")
	}
}

func TestSilentEvidenceIsWaitedForAndThenUnknown(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.start(ada, plan.ID)
	s.shop.Close()
	s.work(plan.ID)
	items, err := s.replays.Items(t.Context(), plan.ID, ItemFilter{Tab: "left_out"}, Page{})
	s.must(nil, err)
	if len(items.Items) != 1 || !strings.Contains(items.Items[0].Reason.Text, "unknown") {
		t.Errorf("items %+v", items.Items)
	}
}

func TestMissingTopicsAreNeverMade(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		points := s.foreign("points", s.evidence())
		rec := s.order("payment-1")
		missing := testkit.Name("never-made")
		moved := *rec
		moved.Topic = missing
		s.deadLetter(&moved, points)
		s.drain()
		letter := s.letter("payment-1", points)
		plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToOrigin})
		if plan.Total != 0 || plan.Verdicts[Unknown] != 1 {
			t.Errorf("plan %+v", plan)
		}
		if err := s.replays.Start(t.Context(), ada, plan.ID); !errors.Is(err, ErrNothingToSend) {
			t.Errorf("started: %v", err)
		}
		topics, err := s.cluster.Admin.ListTopics(t.Context())
		s.must(nil, err)
		if topics.Has(missing) {
			t.Error("the missing topic was made")
		}
	})
}

func TestAPartitionThatIsGoneIsLeftToTheKey(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	rec := s.order("payment-1")
	elsewhere := *rec
	elsewhere.Partition, elsewhere.Offset = 17, 5
	s.deadLetter(&elsewhere, points)
	s.drain()
	plan := s.plan(ada, PlanRequest{Selection: ids(s.letter("payment-1", points)), Target: ToGroup})
	s.start(ada, plan.ID)
	s.stepOnce(s.replays, plan.ID)
	got := s.sent(points + ".replay")
	if len(got) != 1 || string(got[0].Key) != "key-payment-1" {
		t.Fatalf("sent %v", got)
	}
	if n := s.count(`SELECT count(*) FROM replay_item WHERE key_decided AND sent_partition = $1`, got[0].Partition); n != 1 {
		t.Error("it is not recorded that the key decided")
	}
}

func TestTheSameRequestIsOneReplay(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	req := PlanRequest{Selection: ids(letter), Target: ToSafe, RequestKey: "form-1"}
	plans := make([]Plan, 6)
	errs := make([]error, 6)
	var clicks sync.WaitGroup
	for i := range plans {
		clicks.Go(func() { plans[i], errs[i] = s.replays.Plan(t.Context(), ada, req) })
	}
	clicks.Wait()
	for i := range plans {
		if errs[i] != nil || plans[i].ID != plans[0].ID || plans[i].Total != 1 || plans[i].Verdicts[Safe] != 1 {
			t.Errorf("click %d: %+v, %v", i, plans[i], errs[i])
		}
	}
	if other := s.plan(bob, PlanRequest{Selection: ids(letter), Target: ToGroup, RequestKey: "form-1"}); other.ID == plans[0].ID {
		t.Error("another user's key is taken for the same")
	}
	another := ada
	another.Reason = "something else"
	for name, ask := range map[string]func() (Plan, error){
		"target": func() (Plan, error) {
			return s.replays.Plan(t.Context(), ada, PlanRequest{Selection: ids(letter), Target: ToGroup, RequestKey: "form-1"})
		},
		"selection": func() (Plan, error) {
			return s.replays.Plan(t.Context(), ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToSafe, RequestKey: "form-1"})
		},
		"reason": func() (Plan, error) { return s.replays.Plan(t.Context(), another, req) },
	} {
		if plan, err := ask(); !errors.Is(err, ErrKeyReused) {
			t.Errorf("the same key with another %s: %+v, %v", name, plan, err)
		}
	}
	if n := s.count(`SELECT count(*) FROM replay`); n != 2 {
		t.Errorf("%d replays", n)
	}
}

// A consumer of ours adds the event id as a header for other tools to read. With
// the origin record gone, only the dead letter's bytes are left to send.
func TestAReplayLeavesOutTheHeaderThatWeAdded(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	app := []kgo.RecordHeader{{Key: "trace", Value: []byte("t-1")}, {Key: "trace", Value: nil}}
	origin := s.produce(&kgo.Record{Key: []byte("k"), Value: []byte(`{"eventId":"payment-1"}`), Headers: app})
	dead := s.deadRecord(origin, points)
	dead.Headers = append(dead.Headers, kgo.RecordHeader{Key: "kafka_dlt-added-header", Value: []byte("event-id")},
		kgo.RecordHeader{Key: "event-id", Value: []byte("payment-1")})
	s.produce(dead)
	s.drain()
	_, err := s.cluster.Admin.DeleteRecords(t.Context(), kadm.OffsetsList{{Topic: s.topic, Partition: origin.Partition, At: origin.Offset + 1}}.Offsets())
	s.must(nil, err)
	plan := s.plan(ada, PlanRequest{Selection: ids(s.letter("payment-1", points)), Target: ToGroup})
	s.start(ada, plan.ID)
	s.stepOnce(s.replays, plan.ID)
	got := s.sent(points + ".replay")
	if n := s.count(`SELECT count(*) FROM replay_item WHERE bytes_from = 1`); len(got) != 1 || n != 1 {
		t.Fatalf("sent %d records, %d with the letter's bytes", len(got), n)
	}
	left := slices.DeleteFunc(got[0].Headers, func(h kgo.RecordHeader) bool { return h.Key == HeaderReplay || h.Key == HeaderItem })
	if !slices.EqualFunc(left, app, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && sameBytes(a.Value, b.Value) }) ||
		string(got[0].Value) != string(origin.Value) || string(got[0].Key) != "k" {
		t.Errorf("sent %q %q %v", got[0].Key, got[0].Value, left)
	}
}

func TestSelectionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	gone := uuid.Must(uuid.NewV7())
	_, err := s.replays.Plan(t.Context(), ada, PlanRequest{Selection: ids(letter, gone), Target: ToGroup})
	var missing *ErrLettersNotFound
	if !errors.As(err, &missing) || !errors.Is(err, ErrNotFound) || !slices.Equal(missing.IDs, []uuid.UUID{gone}) {
		t.Errorf("a letter that is not there: %v", err)
	}
	if _, err := s.replays.Plan(t.Context(), ada, PlanRequest{Target: ToGroup}); !errors.Is(err, ErrBadSelection) {
		t.Errorf("nothing selected: %v", err)
	}
	if _, err := s.replays.DryRun(t.Context(), ada, PlanRequest{Selection: Selection{FaultID: 99}, Target: ToGroup}); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown fault: %v", err)
	}
	var bad *ErrBadFilter
	if _, err := s.replays.DryRun(t.Context(), ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{State: Resolved}}, Target: ToGroup}); !errors.As(err, &bad) || bad.Field != "state" {
		t.Errorf("a filter of resolved letters: %v", err)
	}
	if _, err := s.replays.DryRun(t.Context(), ada, PlanRequest{Selection: ids(letter)}); !errors.As(err, &bad) || bad.Field != "target" {
		t.Errorf("no target: %v", err)
	}
	s.connect(func(o *ReplayOptions) { o.PlanLimit = 1 })
	s.failed("payment-2", points)
	var many *ErrTooManyLetters
	if _, err := s.replays.DryRun(t.Context(), ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToGroup}); !errors.As(err, &many) || many.Limit != 1 {
		t.Errorf("more than a plan holds: %v", err)
	}
}

func TestDryRunKeepsNothing(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	before := s.count(`SELECT count(*) FROM audit_log`)
	silent := ada
	silent.Reason = ""
	plan, err := s.replays.DryRun(t.Context(), silent, PlanRequest{Selection: ids(letter, letter), Target: ToGroup})
	s.must(nil, err)
	if plan.ID != 0 || plan.Total != 1 || plan.State != Planned {
		t.Errorf("plan %+v", plan)
	}
	if s.count(`SELECT count(*) FROM replay`) != 0 || s.count(`SELECT count(*) FROM audit_log`) != before {
		t.Error("a dry run left traces")
	}
}

// springRecord is one of the captured records.
type springRecord struct {
	Topic     string  `json:"topic"`
	Key       *string `json:"key_b64"`
	Value     *string `json:"value_b64"`
	Timestamp int64   `json:"timestamp"`
	Headers   []struct {
		Key   string  `json:"key"`
		Value *string `json:"value_b64"`
	} `json:"headers"`
}

func unbase64(t *testing.T, text *string) []byte {
	t.Helper()
	if text == nil {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// known is a dry run that a slow broker has not left out of.
func (s *replayShop) known(req PlanRequest) (p Plan) {
	s.t.Helper()
	testkit.Eventually(s.t, time.Minute, func() bool {
		var err error
		p, err = s.replays.DryRun(s.t.Context(), ada, req)
		s.must(nil, err)
		return !slices.ContainsFunc(p.Refused, func(r Refusal) bool { return r.Verdict == Unknown })
	}, "every verdict is known")
	return p
}

func TestSpringLettersReachTheirOriginClean(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		raw, err := os.ReadFile("testdata/spring-kafka-dlt.json")
		s.must(nil, err)
		var records []springRecord
		s.must(nil, json.Unmarshal(raw, &records))
		suffix := testkit.Name("")
		origins := map[string]bool{}
		for _, r := range records {
			rec := &kgo.Record{Topic: s.dlt, Key: unbase64(t, r.Key), Value: unbase64(t, r.Value)}
			for _, h := range r.Headers {
				value := unbase64(t, h.Value)
				if strings.HasSuffix(h.Key, "original-topic") {
					value = append(value, suffix...)
					origins[string(value)] = true
				}
				rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: value})
			}
			s.produce(rec)
		}
		for topic := range origins {
			testkit.MakeTopic(t, addr, topic, shopPartitions)
		}
		s.drain()
		req := PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToOrigin}
		judged := s.known(req)
		for _, r := range judged.Refused {
			req.Overrides = append(req.Overrides, Override{LetterID: r.LetterID, Group: r.Group, Verdict: r.Verdict, Reason: "sample"})
		}
		plan := s.plan(ada, req)
		if plan.State != AwaitingApproval || plan.Total == 0 || plan.RefusedN != 0 {
			t.Fatalf("plan %+v", plan)
		}
		s.must(nil, s.replays.Approve(t.Context(), eve, plan.ID))
		s.start(ada, plan.ID)
		s.stepOnce(s.replays, plan.ID)
		n := 0
		for topic := range origins {
			for _, rec := range s.sent(topic) {
				n++
				for _, h := range rec.Headers {
					for _, marked := range []string{"kafka_dlt-", "retry_topic-", "springDeserializerException", "kafka_original-", "kafka_exception-"} {
						if strings.HasPrefix(h.Key, marked) {
							t.Errorf("%s still carries %s", topic, h.Key)
						}
					}
				}
			}
		}
		if n != plan.Total {
			t.Errorf("%d of %d items arrived", n, plan.Total)
		}
	})
}

func TestTwentyCyclesStayFlat(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t), func(o *ReplayOptions) { o.ReplayCap = 100 })
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	s.consume(points, failsAgain, s.topic, points+".replay")
	for range 20 {
		plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
		s.start(ada, plan.ID)
		s.work(plan.ID)
		if p := s.get(plan.ID); outcomes(p) != "failed_again 1" {
			t.Fatalf("replay %d: %s", plan.ID, outcomes(p))
		}
	}
	got := s.sent(points + ".replay")
	if len(got) != 20 {
		t.Fatalf("%d messages", len(got))
	}
	for i, rec := range got {
		if len(rec.Headers) != 3 {
			t.Errorf("cycle %d: headers %q", i, rec.Headers)
		}
	}
	if n := s.count(`SELECT count(*) FROM dead_letter`); n != 1 {
		t.Errorf("%d letters", n)
	}
	if n := s.count(`SELECT occurrences * 100 + replay_count FROM dead_letter`); n != 2120 {
		t.Errorf("occurrences and replays %d, want 21 and 20", n)
	}
}
