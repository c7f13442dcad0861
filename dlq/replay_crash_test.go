package dlq

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncemore/internal/access"
	"oncemore/internal/testkit"
)

// crashEnv holds a crashChild as JSON: the test binary is then that process.
const crashEnv = "ONCEMORE_REPLAY_CRASH"

// crashChild is a process that works one step and stops for good at a moment.
type crashChild struct {
	URL, ShopURL, Addr string
	Groups             []Group
	Rabbit, Management string // addresses of RabbitMQ, instead of Addr
	Replay             int64
	At                 moment
	Times              int // it is reached before the process stops; 0 is 1
	ChunkSize          int // 0: the default
}

func init() {
	text := os.Getenv(crashEnv)
	if text == "" {
		return
	}
	var c crashChild
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run(context.Background())
	}
	fmt.Println("ended:", err)
	os.Exit(1)
}

func (c crashChild) run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, c.URL)
	if err != nil {
		return err
	}
	shop, err := pgxpool.New(ctx, c.ShopURL)
	if err != nil {
		return err
	}
	for i := range c.Groups {
		if c.Groups[i].Evidence != nil {
			c.Groups[i].Evidence.Pool = shop
		}
	}
	cluster, err := c.cluster()
	if err != nil {
		return err
	}
	s := &replayShop{pool: pool, cluster: cluster, groups: c.Groups}
	if err := s.open(func(o *ReplayOptions) { quickRecovery(o); o.ChunkSize = c.ChunkSize }); err != nil {
		return err
	}
	s.replays.reached = func(at moment) {
		if at == c.At {
			c.Times--
		}
		if at == c.At && c.Times <= 0 {
			fmt.Println("reached", at)
			select {} // until it is killed
		}
	}
	return s.job(s.replays, c.Replay, 0)
}

func (c crashChild) cluster() (*Cluster, error) {
	if c.Rabbit != "" {
		return NewRabbitCluster("shop", RabbitOptions{URLs: []string{c.Rabbit}, ManagementURL: c.Management})
	}
	return NewCluster("shop", kgo.SeedBrokers(c.Addr))
}

// crash lets a process of its own work the replay's first step, and kills it when
// it reaches the moment.
func (s *replayShop) crash(replay int64, at moment) {
	s.t.Helper()
	s.crashAs(crashChild{Replay: replay, At: at})
}

func (s *replayShop) crashAs(c crashChild) {
	s.t.Helper()
	c.URL, c.ShopURL, c.Addr = s.url, s.shopURL, s.addr
	if s.rabbit != nil {
		c.Rabbit, c.Management = s.rabbit.URLs[0], s.rabbit.ManagementURL
	}
	for _, g := range s.groups {
		if g.Evidence != nil {
			bare := *g.Evidence
			bare.Pool = nil
			g.Evidence = &bare
		}
		c.Groups = append(c.Groups, g)
	}
	text, err := json.Marshal(c)
	s.must(nil, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	s.must(nil, err)
	s.must(nil, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	s.must(nil, cmd.Process.Kill()) // SIGKILL
	_ = cmd.Wait()                  // killed
	if !strings.HasPrefix(line, "reached") {
		s.t.Fatalf("the process did not come to %s: %s", c.At, line)
	}
}

// crashed is a shop with one replay of a safe and an unprotected letter to the
// origin's own groups, started and approved.
type crashed struct {
	*replayShop
	replay       int64
	safe, bare   string // groups
	safeT, bareT string // topics that they get their replays from
	safeL, bareL uuid.UUID
}

func newCrashed(t *testing.T, addr string) *crashed {
	s := newReplayShop(t, addr, func(*ReplayOptions) {})
	c := &crashed{replayShop: s}
	c.safe = s.ours("points")
	c.bare = testkit.Name("legacy")
	c.safeT, c.bareT = c.safe+".replay", testkit.Topic(t, addr, "coupon-retry", 1)
	s.groups = append(s.groups, Group{Name: c.bare, Topics: []string{s.topic}, Target: c.bareT})
	s.connect(quickRecovery)
	event := s.order("payment-1")
	s.deadLetter(event, c.safe)
	s.deadLetter(event, c.bare)
	s.drain()
	c.safeL, c.bareL = s.letter("payment-1", c.safe), s.letter("payment-1", c.bare)
	s.consume(c.safe, applies, c.safeT)
	s.consume(c.bare, swallows, c.bareT)
	plan := s.plan(ada, PlanRequest{Selection: ids(c.safeL, c.bareL), Target: ToGroup,
		Overrides: []Override{{LetterID: c.bareL, Group: c.bare, Verdict: Unprotected, Reason: "no coupon was given"}}})
	if plan.Total != 2 {
		t.Fatalf("plan %+v", plan)
	}
	s.must(nil, s.replays.Approve(t.Context(), eve, plan.ID))
	s.start(ada, plan.ID)
	c.replay = plan.ID
	return c
}

func quickRecovery(o *ReplayOptions) {
	o.SendTimeout, o.Lease = 2*time.Second, 3*time.Second
}

func TestKilledBetweenConfirmAndRecord(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		c := newCrashed(t, addr)
		c.crash(c.replay, momentPublished)
		if p := c.get(c.replay); p.Sent != 0 || p.Outcomes[Pending] != 2 {
			t.Fatalf("after the kill: sent %d, %s", p.Sent, outcomes(p))
		}
		c.must(c.pool.Exec(t.Context(), `DELETE FROM river_job`)) // River still believes that the killed process works
		c.jobs()
		testkit.Eventually(t, 20*time.Second, func() bool { n, err := c.replays.Revive(t.Context()); return err == nil && n > 0 }, "revived")
		c.waitDone(c.replay)
		if a, b := len(c.sent(c.safeT)), len(c.sent(c.bareT)); a != 1 || b != 1 {
			t.Errorf("sent %d safe and %d unprotected messages, want one each", a, b)
		}
		if p := c.get(c.replay); p.Sent != 2 || outcomes(p) != "applied 1, unverified 1" {
			t.Errorf("sent %d, %s", p.Sent, outcomes(p))
		}
		c.settled(t)
	})
}

func TestKilledBetweenIntentAndSending(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		c := newCrashed(t, addr)
		c.crash(c.replay, momentClaimed)
		c.work(c.replay)
		if a, b := len(c.sent(c.safeT)), len(c.sent(c.bareT)); a != 1 || b != 0 {
			t.Errorf("sent %d safe and %d unprotected messages, want the safe one", a, b)
		}
		if p := c.get(c.replay); p.Sent != 1 || outcomes(p) != "applied 1, not_sent 1" {
			t.Errorf("sent %d, %s", p.Sent, outcomes(p))
		}
		if st := c.letterState(c.bareL); st != Open {
			t.Errorf("the letter that was not sent is %s", st)
		}
		c.settled(t)
	})
}

// settled checks that nothing is left behind and that the counters add up.
func (s *replayShop) settled(t *testing.T) {
	t.Helper()
	if n := s.count(`SELECT count(*) FROM event_claim`); n != 0 {
		t.Errorf("%d claims are left", n)
	}
	if n := s.count(`SELECT count(*) FROM dead_letter WHERE state = 2`); n != 0 {
		t.Errorf("%d letters are still replaying", n)
	}
	if n := s.count(`SELECT count(*) FROM replay r, LATERAL (
		SELECT count(*) FILTER (WHERE state = 0) AS w, count(*) FILTER (WHERE state = 2) AS s, count(*) FILTER (WHERE state = 3) AS l
		FROM replay_item i WHERE i.replay_id = r.id) c WHERE (c.w, c.s, c.l) <> (r.waiting, r.sent, r.left_out)`); n != 0 {
		t.Errorf("%d replays count other items than they have", n)
	}
	off := s.count(`SELECT count(*) FROM (
		SELECT coalesce(d.fault_id, l.fault_id), coalesce(d.state, l.state), coalesce(d.n, 0) AS d, coalesce(l.n, 0) AS l
		FROM (SELECT fault_id, state, sum(n) AS n FROM fault_delta GROUP BY 1, 2) d
		FULL JOIN (SELECT fault_id, state, count(*) AS n FROM dead_letter GROUP BY 1, 2) l ON l.fault_id = d.fault_id AND l.state = d.state) x WHERE d <> l`)
	if off != 0 {
		t.Errorf("%d counters of faults differ from their letters", off)
	}
}

func TestADoubledStepChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCrashed(t, testkit.FakeKafkaAddr(t))
	inside, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.replays.reached = func(at moment) {
		if at == momentPublished {
			once.Do(func() { close(inside); <-release })
		}
	}
	first := make(chan error, 1)
	go func() { first <- c.job(c.replays, c.replay, 0) }()
	<-inside
	before := c.standingOf(t)
	for range 3 { // River rescues the job while it still runs
		if err := c.job(c.replays, c.replay, 0); !isSnooze(err) {
			t.Errorf("the doubled step: %v, want to be asked again later", err)
		}
	}
	if after := c.standingOf(t); after != before {
		t.Errorf("a doubled step changed %s to %s", before, after)
	}
	close(release)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	standing := c.standingOf(t)
	if err := c.job(c.replays, c.replay, 0); err != nil { // and once more after it has ended
		t.Errorf("a step that was done: %v", err)
	}
	if after := c.standingOf(t); after != standing {
		t.Errorf("a late step changed %s to %s", standing, after)
	}
	c.work(c.replay)
	if a, b := len(c.sent(c.safeT)), len(c.sent(c.bareT)); a != 1 || b != 1 {
		t.Errorf("sent %d and %d messages", a, b)
	}
	c.settled(t)
}

// standingOf is all that a step may change.
func (s *replayShop) standingOf(t *testing.T) string {
	t.Helper()
	var text string
	s.must(nil, s.pool.QueryRow(t.Context(), `SELECT concat_ws(' | ',
		(SELECT string_agg(concat(id, state, epoch, sent, next_no), ',' ORDER BY id) FROM replay),
		(SELECT string_agg(concat(no, ':', state, '@', sent_offset), ',' ORDER BY no) FROM replay_item),
		(SELECT string_agg(concat(event_id, group_id, item_no), ',' ORDER BY event_id, group_id) FROM event_claim),
		(SELECT string_agg(concat(item_no, group_id, outcome), ',' ORDER BY item_no, group_id) FROM replay_outcome),
		(SELECT string_agg(concat(id, state), ',' ORDER BY id) FROM dead_letter))`).Scan(&text))
	return text
}

// TestAStepThatWakesTooLate: a process that hung beyond its lease finds that
// another one has taken over, and leaves everything to it.
func TestAStepThatWakesTooLate(t *testing.T) {
	t.Parallel()
	c := newCrashed(t, testkit.FakeKafkaAddr(t))
	inside, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.replays.reached = func(at moment) {
		if at == momentPublished {
			once.Do(func() { close(inside); <-release })
		}
	}
	first := make(chan error, 1)
	go func() { first <- c.job(c.replays, c.replay, 0) }()
	<-inside
	c.work(c.replay) // waits for the lease, takes over, searches, finds
	done := c.standingOf(t)
	close(release)
	if err := <-first; err != nil {
		t.Errorf("the overtaken step: %v", err)
	}
	if after := c.standingOf(t); after != done {
		t.Errorf("the overtaken step changed %s to %s", done, after)
	}
	if a, b := len(c.sent(c.safeT)), len(c.sent(c.bareT)); a != 1 || b != 1 {
		t.Errorf("sent %d and %d messages", a, b)
	}
	c.settled(t)
}

// TestRiverRescuesAStepThatStillRuns does the same with River's own rescuer.
func TestRiverRescuesAStepThatStillRuns(t *testing.T) {
	t.Parallel()
	c := newCrashed(t, testkit.FakeKafkaAddr(t))
	c.connect(func(o *ReplayOptions) { quickRecovery(o); o.Lease = 30 * time.Second })
	inside, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.replays.reached = func(at moment) {
		if at == momentPublished {
			once.Do(func() { close(inside); <-release })
		}
	}
	c.jobsWith(c.replays, 2*time.Minute)
	<-inside
	before := c.standingOf(t)
	// what the rescuer does with a job that runs for too long
	c.must(c.pool.Exec(t.Context(), `UPDATE river_job SET state = 'available', scheduled_at = now(),
		errors = array_append(errors, '{"error": "Stuck job rescued by Rescuer", "attempt": 1, "at": "2026-11-30T00:00:00Z", "trace": ""}') WHERE state = 'running'`))
	testkit.Eventually(t, 20*time.Second, func() bool {
		return c.count(`SELECT count(*) FROM river_job WHERE metadata ? 'snoozes'`) > 0
	}, "the rescued job was worked and put off")
	if after := c.standingOf(t); after != before {
		t.Errorf("the rescued job changed %s to %s", before, after)
	}
	close(release)
	c.waitDone(c.replay)
	if a, b := len(c.sent(c.safeT)), len(c.sent(c.bareT)); a != 1 || b != 1 {
		t.Errorf("sent %d and %d messages", a, b)
	}
	c.settled(t)
}

// troubled is a shop with one safe letter, replayed over a broker that answers
// with an error.
func troubled(t *testing.T, code int16) (s *replayShop, group string, letter uuid.UUID, replay int64) {
	t.Helper()
	fake := testkit.FakeKafka(t)
	s = newReplayShop(t, fake.ListenAddrs()[0])
	group = s.ours("points")
	letter = s.failed("payment-1", group)
	s.connect(func(o *ReplayOptions) { o.SendTimeout = time.Second })
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.start(ada, plan.ID)
	refuse(fake, code)
	s.work(plan.ID)
	if n := len(s.sent(group + ".replay")); n != 0 {
		t.Errorf("%d messages", n)
	}
	if st := s.letterState(letter); st != Open {
		t.Errorf("the letter that was not sent is %s", st)
	}
	if n := s.count(`SELECT replay_count FROM dead_letter WHERE id = $1`, letter); n != 0 {
		t.Errorf("it counts as replayed %d times", n)
	}
	if p := s.get(plan.ID); outcomes(p) != "not_sent 1" || p.Sent != 0 {
		t.Errorf("sent %d, %s", p.Sent, outcomes(p))
	}
	s.settled(t)
	return s, group, letter, plan.ID
}

func TestBrokerThatRefuses(t *testing.T) {
	t.Parallel()
	s, _, _, replay := troubled(t, kerr.PolicyViolation.Code)
	items, err := s.replays.Items(t.Context(), replay, ItemFilter{Tab: "not_sent"}, Page{})
	s.must(nil, err)
	if len(items.Items) != 1 || !strings.Contains(items.Items[0].Reason.Text, "POLICY_VIOLATION") || items.Items[0].Groups[0].Outcome != NotSent {
		t.Errorf("items %+v", items.Items)
	}
	if n := s.count(`SELECT max(tries) FROM replay_item`); n != 0 {
		t.Errorf("a refused message was sent again %d times", n)
	}
}

func TestLeaderThatIsGoneForGood(t *testing.T) {
	t.Parallel()
	s, _, _, _ := troubled(t, kerr.NotLeaderForPartition.Code)
	if n := s.count(`SELECT max(tries) FROM replay_item`); n != maxTries-1 {
		t.Errorf("sent again %d times", n)
	}
}

// refuse answers every produce request with an error code.
func refuse(fake *kfake.Cluster, code int16) {
	var always atomic.Bool
	always.Store(true)
	refuseWhile(fake, code, &always)
}

func refuseWhile(fake *kfake.Cluster, code int16, on *atomic.Bool) {
	fake.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if !on.Load() {
			return nil, nil, false
		}
		req := kreq.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.Topics {
			t := kmsg.NewProduceResponseTopic()
			t.Topic, t.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode, p.BaseOffset = rp.Partition, code, -1
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
}

func TestABatchWithOneTooLargeRecord(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.Kafka(t)) // the in-process one takes any size
	points := s.ours("points")
	var letters Selection
	for i := range 3 {
		letters.LetterIDs = append(letters.LetterIDs, s.failed(fmt.Sprintf("payment-%d", i), points))
	}
	big := s.produce(&kgo.Record{Partition: 1, Value: random(4000), Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("big")}}})
	s.deadLetter(big, points)
	s.drain()
	letters.LetterIDs = append(letters.LetterIDs, s.letter("big", points))
	max := "700"
	if _, err := s.cluster.Admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &max}}, points+".replay"); err != nil {
		t.Fatal(err)
	}
	plan := s.plan(ada, PlanRequest{Selection: letters, Target: ToGroup})
	s.start(ada, plan.ID)
	s.stepOnce(s.replays, plan.ID)
	if p := s.get(plan.ID); p.Sent != 3 || p.Outcomes[NotSent] != 1 {
		t.Errorf("sent %d, %s", p.Sent, outcomes(p))
	}
}

// random bytes do not get smaller in a batch.
func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// deaf is a network on which answers can be lost while requests arrive.
type deaf struct{ lost atomic.Bool }

type deafConn struct {
	net.Conn
	on *deaf
}

func (d *deaf) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &deafConn{conn, d}, err
}

// Read waits until the connection is given up when answers are lost.
func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for err == nil && c.on.lost.Load() {
		n, err = c.Conn.Read(b)
	}
	return n, err
}

// TestNoAnswerThoughItArrived: the record is appended, the answer is lost. The
// search finds it, and it is not sent again.
func TestNoAnswerThoughItArrived(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		c := newCrashed(t, addr)
		var network deaf
		deafCluster, err := NewCluster("shop", kgo.SeedBrokers(addr), kgo.Dialer(network.dial))
		c.must(nil, err)
		t.Cleanup(deafCluster.Close)
		c.stepsMayFail = true
		r := c.replays
		r.clusters = map[string]*Cluster{"shop": deafCluster}
		var sends atomic.Int32
		r.reached = func(at moment) {
			network.lost.Store(at == momentClaimed && sends.Add(1) == 1)
		}
		c.workWith(r, c.replay)
		if sends.Load() == 0 {
			t.Fatal("nothing was sent")
		}
		a, b := len(c.sent(c.safeT)), len(c.sent(c.bareT))
		if a != 1 || b > 1 {
			t.Errorf("sent %d safe and %d unprotected messages", a, b)
		}
		p := c.get(c.replay)
		if want := map[int]string{1: "applied 1, unverified 1", 0: "applied 1, not_sent 1"}[b]; outcomes(p) != want || p.Sent != a+b {
			t.Errorf("sent %d of %d, %s, want %s", p.Sent, a+b, outcomes(p), want)
		}
		c.settled(t)
	})
}

// TestOverlappingReplays: several replays of one set, worked by two processes,
// send each event once.
func TestOverlappingReplays(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		const letters, replays = 150, 3
		s := newReplayShop(t, addr)
		points := s.ours("points")
		s.connect(func(o *ReplayOptions) { o.ChunkSize = 20 })
		s.manyFailed(letters, points)
		s.consume(points, applies, points+".replay")
		plans := make([]Plan, replays)
		for i := range plans {
			plans[i] = s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToGroup})
		}
		s.jobs()
		s.jobs()
		var starts sync.WaitGroup
		errs := make([]error, replays)
		for i, p := range plans {
			starts.Go(func() { errs[i] = s.replays.Start(t.Context(), []access.Actor{ada, bob}[i%2], p.ID) })
		}
		starts.Wait()
		sent := 0
		for i, p := range plans {
			var conflict *ErrConflict
			if errors.As(errs[i], &conflict) {
				continue
			}
			s.must(nil, errs[i])
			s.waitDone(p.ID)
			r := s.get(p.ID)
			if sent += r.Sent; r.Sent+r.LeftOut != letters || r.Outcomes[Applied] != r.Sent {
				t.Errorf("replay %d: sent %d, left out %d, %s", p.ID, r.Sent, r.LeftOut, outcomes(r))
			}
		}
		events := map[string]int{}
		for _, rec := range s.sent(points + ".replay") {
			events[eventOf(rec)]++
		}
		for event, n := range events {
			if n != 1 {
				t.Errorf("%s was sent %d times", event, n)
			}
		}
		if len(events) != letters || sent != letters {
			t.Errorf("%d events, %d items were sent", len(events), sent)
		}
		s.settled(t)
	})
}

// TestStoppedMidway: a process that is asked to stop ends its chunk, and another
// one goes on where it ended.
func TestStoppedMidway(t *testing.T) {
	brokers(t, func(t *testing.T, addr string) {
		s := newReplayShop(t, addr)
		points := s.ours("points")
		s.connect(func(o *ReplayOptions) { o.ChunkSize = 3 })
		for i := range 12 {
			s.deadLetter(s.order(fmt.Sprintf("payment-%02d", i)), points)
		}
		s.drain()
		s.consume(points, applies, points+".replay")
		plan := s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToSafe})
		stopping := make(chan struct{})
		var once sync.Once
		var chunks atomic.Int32
		s.replays.reached = func(at moment) {
			if at == momentClaimed && chunks.Add(1) == 2 {
				once.Do(func() { close(stopping) })
			}
		}
		first := newJobs(t, s.pool, s.replays, time.Minute)
		s.must(nil, first.Start(context.Background()))
		<-stopping
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		s.must(nil, first.StopAndCancel(ctx))
		if p := s.get(plan.ID); p.Sent == 12 {
			t.Fatal("it was not stopped midway")
		}
		s.jobs()
		s.waitDone(plan.ID)
		if p := s.get(plan.ID); p.Sent != 12 || outcomes(p) != "applied 12" {
			t.Errorf("sent %d, %s", p.Sent, outcomes(p))
		}
		if n := len(s.sent(points + ".replay")); n != 12 {
			t.Errorf("%d messages", n)
		}
		s.settled(t)
	})
}

func TestPauseResumeCancelMidway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stop func(*Replays, context.Context, access.Actor, int64) error
		goes bool // on afterwards
	}{
		"pause":  {(*Replays).Pause, true},
		"cancel": {(*Replays).Cancel, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newReplayShop(t, testkit.FakeKafkaAddr(t))
			points := s.ours("points")
			s.connect(func(o *ReplayOptions) { o.ChunkSize = 3 })
			for i := range 12 {
				s.deadLetter(s.order(fmt.Sprintf("payment-%02d", i)), points)
			}
			s.drain()
			s.consume(points, applies, points+".replay")
			plan := s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{}}, Target: ToSafe})
			chunks := 0
			s.replays.reached = func(at moment) {
				if at == momentClaimed {
					if chunks++; chunks == 2 {
						s.must(nil, c.stop(s.replays, t.Context(), bob, plan.ID))
					}
				}
			}
			s.work(plan.ID)
			p := s.get(plan.ID)
			if p.Sent != 6 || outcomes(p) != "applied 6" || p.Waiting != 6 {
				t.Fatalf("%s: sent %d, waiting %d, %s", p.State, p.Sent, p.Waiting, outcomes(p))
			}
			if open, resolved := s.count(`SELECT count(*) FROM dead_letter WHERE state = 1`), s.count(`SELECT count(*) FROM dead_letter WHERE state = 3`); open != 6 || resolved != 6 {
				t.Errorf("%d letters open, %d resolved", open, resolved)
			}
			if !c.goes {
				if p.State != Canceled {
					t.Errorf("it is %s", p.State)
				}
				return
			}
			if p.State != Paused || p.PausedBy != "user" {
				t.Errorf("it is %s by %q", p.State, p.PausedBy)
			}
			s.must(nil, s.replays.Resume(t.Context(), bob, plan.ID))
			s.work(plan.ID)
			if p := s.get(plan.ID); p.State != Done || outcomes(p) != "applied 12" || p.PausedBy != "" {
				t.Errorf("after going on: %s, %s", p.State, outcomes(p))
			}
			s.settled(t)
		})
	}
}

// TestOverriddenAndNeverSeen: an override does not make a letter green that
// nobody took up.
func TestOverriddenAndNeverSeen(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	legacy := s.foreign("legacy", nil)
	letter := s.failed("payment-1", legacy)
	s.connect(func(o *ReplayOptions) { o.SettleAfter = time.Second })
	s.skipTo(legacy, s.topic)
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToOrigin,
		Overrides: []Override{{LetterID: letter, Group: legacy, Verdict: Unprotected, Reason: "no coupon was given"}}})
	s.must(nil, s.replays.Approve(t.Context(), eve, plan.ID))
	s.start(ada, plan.ID)
	s.work(plan.ID)
	if p := s.get(plan.ID); outcomes(p) != "not_seen 1" || s.letterState(letter) != Open {
		t.Errorf("%s, letter %s", outcomes(p), s.letterState(letter))
	}
	s.settled(t)
}

func TestAFailureThatComesLateIsTold(t *testing.T) {
	t.Parallel()
	s := newReplayShop(t, testkit.FakeKafkaAddr(t))
	points := s.ours("points")
	letter := s.failed("payment-1", points)
	s.connect(func(o *ReplayOptions) { o.SettleAfter = time.Second })
	s.skipTo(points, points+".replay")
	plan := s.plan(ada, PlanRequest{Selection: ids(letter), Target: ToGroup})
	s.start(ada, plan.ID)
	s.work(plan.ID)
	if p := s.get(plan.ID); outcomes(p) != "not_seen 1" {
		t.Fatalf("outcomes %s", outcomes(p))
	}
	s.deadLetter(s.sent(points + ".replay")[0], points)
	s.drain()
	n, err := s.replays.Revisit(t.Context())
	s.must(nil, err)
	if p := s.get(plan.ID); n != 1 || outcomes(p) != "failed_again 1" {
		t.Errorf("%d corrected, %s", n, outcomes(p))
	}
	if n, err := s.replays.Revisit(t.Context()); err != nil || n != 0 {
		t.Errorf("corrected again: %d, %v", n, err)
	}
	if n := s.count(`SELECT occurrences FROM dead_letter`); n != 2 || s.letterState(letter) != Open {
		t.Errorf("%d occurrences", n)
	}
}
