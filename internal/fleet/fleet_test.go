package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/internal/access"
	"oncemore/internal/fleet"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

var (
	quiet    = slog.New(slog.DiscardHandler)
	operator = access.Actor{User: "olga", Role: access.Operator, Via: "session", From: "127.0.0.1", Reason: "too many faults"}
)

// runner is a consumer that does as it is told.
type runner struct {
	mu     sync.Mutex
	status consumer.Status
}

func newRunner(group string, consumed int64) *runner {
	return &runner{status: consumer.Status{
		Group: group, Topics: []string{"order.paid", group + ".replay"}, State: consumer.Running, Consumed: consumed, Duplicates: 1,
		Assigned: []consumer.Partition{{Topic: "order.paid"}}, Started: time.Now(),
	}}
}

func (r *runner) set(change func(*consumer.Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

func (r *runner) Status() consumer.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

func (r *runner) Run(context.Context) error                        { return nil }
func (r *runner) Pause()                                           { r.set(func(s *consumer.Status) { s.State = consumer.Paused }) }
func (r *runner) Resume()                                          { r.set(func(s *consumer.Status) { s.State = consumer.Running }) }
func (r *runner) Lag(context.Context) ([]consumer.Position, error) { return nil, nil }

func report(t *testing.T, pool *pgxpool.Pool, r *runner) *fleet.Reporter {
	t.Helper()
	reporter := fleet.NewReporter(pool, quiet)
	reporter.Add(r, "shop", "consume_record")
	tick(t, reporter)
	return reporter
}

func tick(t *testing.T, r *fleet.Reporter) {
	t.Helper()
	if err := r.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func group(t *testing.T, f *fleet.Fleet, name string) fleet.Group {
	t.Helper()
	g, err := f.Group(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func number[T any](p *T) string {
	if p == nil {
		return "unknown"
	}
	return fmt.Sprint(*p)
}

func TestReplicasAreSummed(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	a, b := newRunner("points", 40), newRunner("points", 2)
	first, second := report(t, pool, a), report(t, pool, b)
	f := fleet.New(pool, fleet.Options{Logger: quiet})
	g := group(t, f, "points")
	if !g.Ours || g.State != fleet.Running || number(g.Consumed) != "42" || number(g.Duplicates) != "2" || number(g.DeadLettered) != "0" || len(g.Replicas) != 2 {
		t.Errorf("two running replicas: %+v", g)
	}
	if g.Cluster != "shop" || g.Strategy != "consume_record" || strings.Join(g.Topics, " ") != "order.paid points.replay" || number(g.Partitions) != "2" {
		t.Errorf("described as %+v", g)
	}
	if g.Lag != nil || g.LagError == "" {
		t.Errorf("lag %s (%q) without a broker, want unknown and why", number(g.Lag), g.LagError)
	}

	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)
	a.set(func(s *consumer.Status) {
		s.State, s.LastError, s.LastErrorAt = consumer.Waiting, "older", at.Add(-time.Hour)
	})
	b.set(func(s *consumer.Status) { s.LastError, s.LastErrorAt = "later\x00\xff", at })
	tick(t, first)
	tick(t, second)
	g = group(t, f, "points")
	if g.State != fleet.Waiting || g.LastError != "later��" || !g.LastErrorAt.Equal(at) {
		t.Errorf("one waiting replica: state %s, last error %q at %v", g.State, g.LastError, g.LastErrorAt)
	}
	first.Failed("points", errors.New("broke"))
	tick(t, first)
	if g = group(t, f, "points"); g.State != fleet.Failed || g.LastError != "broke" || g.StateReason != "broke" {
		t.Errorf("one failed replica: %s, %q", g.State, g.LastError)
	}
}

func TestMembersInOneProcessAreSummed(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	a, b := newRunner("points", 40), newRunner("points", 2)
	b.set(func(s *consumer.Status) { s.State = consumer.Waiting })
	reporter := fleet.NewReporter(pool, quiet)
	reporter.Add(a, "shop", "consume_record")
	reporter.Add(b, "shop", "consume_record")
	tick(t, reporter)
	f := fleet.New(pool, fleet.Options{Logger: quiet})
	g := group(t, f, "points")
	if len(g.Replicas) != 1 || number(g.Consumed) != "42" || number(g.Partitions) != "2" || g.State != fleet.Waiting || len(g.Topics) != 2 {
		t.Errorf("%+v", g)
	}
	if err := f.Pause(t.Context(), operator, "points"); err != nil {
		t.Fatal(err)
	}
	tick(t, reporter)
	if a.Status().State != consumer.Paused || b.Status().State != consumer.Paused {
		t.Error("a member goes on")
	}
}

func silence(t *testing.T, pool *pgxpool.Pool, ago string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "update consumer_status set reported_at = now() - $1::interval", ago); err != nil {
		t.Fatal(err)
	}
}

func TestSilentReplicas(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	f := fleet.New(pool, fleet.Options{Logger: quiet})
	report(t, pool, newRunner("points", 40))
	silence(t, pool, "11 seconds")
	if g := group(t, f, "points"); g.State != fleet.Stale || !g.Replicas[0].Stale || number(g.Partitions) != "0" {
		t.Errorf("a vanished replica: %+v", g)
	}
	report(t, pool, newRunner("points", 2))
	if g := group(t, f, "points"); g.State != fleet.Running || number(g.Consumed) != "42" {
		t.Errorf("beside its successor: state %s, consumed %s", g.State, number(g.Consumed))
	}
}

// A removed replica leaves its counters, whoever of several removes it.
func TestRemovedReplicasKeepTheirCounters(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	f := fleet.New(pool, fleet.Options{Logger: quiet})
	for range 3 {
		r := newRunner("points", 10)
		r.set(func(s *consumer.Status) { s.LastError, s.LastErrorAt = "old", time.Now() })
		report(t, pool, r)
	}
	silence(t, pool, "25 hours")
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	var live []*runner
	for range 4 {
		reporter := fleet.NewReporter(pool, quiet)
		live = append(live, newRunner("points", 1))
		reporter.Add(live[len(live)-1], "shop", "consume_record")
		done.Go(func() { reporter.Run(ctx) }) //nolint:errcheck // its end is not asked here
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		g := group(t, f, "points")
		return len(g.Replicas) == 4 && number(g.Consumed) == "34"
	}, "34 consumed by four replicas and three that are gone")
	stop()
	for _, r := range live { // each finishes one more before it ends
		r.set(func(s *consumer.Status) { s.Consumed, s.State = 2, consumer.Stopped })
	}
	done.Wait()
	g := group(t, f, "points")
	if g.State != fleet.Stopped || number(g.Consumed) != "38" || g.LastError != "old" {
		t.Errorf("after goodbye: state %s, consumed %s, last error %q", g.State, number(g.Consumed), g.LastError)
	}
	silence(t, pool, "61 minutes")
	last := newRunner("points", 0)
	reporter := report(t, pool, last)
	last.set(func(s *consumer.Status) { s.State = consumer.Stopped })
	runBriefly(t, reporter, func() bool { return len(group(t, f, "points").Replicas) == 1 })
	if g := group(t, f, "points"); number(g.Consumed) != "38" {
		t.Errorf("consumed %s after the stopped ones were removed, want 38", number(g.Consumed))
	}
}

// runBriefly runs the reporter until ok holds.
func runBriefly(t *testing.T, r *fleet.Reporter, ok func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { r.Run(ctx) }) //nolint:errcheck // its end is not asked here
	testkit.Eventually(t, 10*time.Second, ok, "reporter did its work")
	stop()
	done.Wait()
}

func TestPauseIsObeyedByAllAndLasts(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	f := fleet.New(pool, fleet.Options{Logger: quiet})
	a, b, other := newRunner("points", 0), newRunner("points", 0), newRunner("sms", 0)
	first, second := report(t, pool, a), report(t, pool, b)
	report(t, pool, other)
	if err := f.Pause(t.Context(), operator, "points"); err != nil {
		t.Fatal(err)
	}
	tick(t, first)
	tick(t, second)
	if a.Status().State != consumer.Paused || b.Status().State != consumer.Paused || other.Status().State != consumer.Running {
		t.Errorf("states %s, %s, %s after Pause", a.Status().State, b.Status().State, other.Status().State)
	}
	g := group(t, f, "points")
	if g.StateReason != "olga: too many faults" {
		t.Errorf("reason %q", g.StateReason)
	}
	if g.State != fleet.Paused || g.Command == nil || !g.Command.Paused || g.Command.Actor != "olga" || g.Command.Reason != operator.Reason {
		t.Errorf("shown as %s with %+v", g.State, g.Command)
	}
	restarted := newRunner("points", 0)
	report(t, pool, restarted)
	if restarted.Status().State != consumer.Paused {
		t.Error("a restarted replica runs although the group is paused")
	}
	if err := f.Resume(t.Context(), operator, "points"); err != nil {
		t.Fatal(err)
	}
	tick(t, first)
	if a.Status().State != consumer.Running {
		t.Error("still paused after Resume")
	}
	var trail string
	err := pool.QueryRow(t.Context(), "select string_agg(concat_ws(' ', actor, action, target, reason), '; ' order by id) from audit_log").Scan(&trail)
	if want := "olga consumer.paused consumer/points too many faults; olga consumer.resumed consumer/points too many faults"; err != nil || trail != want {
		t.Errorf("audit: %q, %v", trail, err)
	}
}

func TestPauseRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	f := fleet.New(pool, fleet.Options{Declared: []fleet.Declared{{Name: "ours", Ours: true}, {Name: "foreign"}}, Logger: quiet})
	viewer := operator
	viewer.Role = access.Viewer
	if err := f.Pause(t.Context(), viewer, "ours"); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("a viewer pauses: %v", err)
	}
	for _, name := range []string{"foreign", "nobody"} {
		if err := f.Pause(t.Context(), operator, name); !errors.Is(err, fleet.ErrUnknownGroup) {
			t.Errorf("pause of %s: %v, want ErrUnknownGroup", name, err)
		}
	}
	if err := f.Pause(t.Context(), operator, "ours"); err != nil {
		t.Errorf("a declared group that has not reported yet: %v", err)
	}
	if g := group(t, f, "ours"); g.State != fleet.Stopped || g.Command == nil || number(g.Consumed) != "0" {
		t.Errorf("shown as %+v", g)
	}
	var n int
	if err := pool.QueryRow(t.Context(), "select count(*) from audit_log").Scan(&n); err != nil || n != 1 {
		t.Errorf("%d audit rows, %v, want 1", n, err)
	}
}

// broker runs a story on the in-process broker and on a real one.
func broker(t *testing.T, story func(t *testing.T, addr string)) {
	t.Run("fake", func(t *testing.T) { t.Parallel(); story(t, testkit.FakeKafkaAddr(t)) })
	t.Run("real", func(t *testing.T) { t.Parallel(); story(t, testkit.Kafka(t)) })
}

func TestLagAndMembers(t *testing.T) {
	t.Parallel()
	broker(t, func(t *testing.T, addr string) {
		pool := pgtest.New(t)
		topic := testkit.Topic(t, addr, "order.paid", 2)
		unread := testkit.Topic(t, addr, "order.other", 1)
		ours, foreign, elsewhere := testkit.Name("points"), testkit.Name("legacy"), testkit.Name("elsewhere")
		produce(t, addr, topic, 10)
		produce(t, addr, unread, 1)
		consume(t, addr, ours, topic, 4)
		consume(t, addr, foreign, topic, 10, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())) // KIP-848: described in another way
		consume(t, addr, elsewhere, unread, 1)

		r := newRunner(ours, 4)
		r.set(func(s *consumer.Status) { s.Topics = []string{topic, ours + ".replay"} }) // the latter does not exist yet
		report(t, pool, r)
		declared := testkit.Name("down")
		f := fleet.New(pool, fleet.Options{
			Declared: []fleet.Declared{{Name: declared, Cluster: "shop", Topics: []string{topic}}},
			Brokers:  map[string]fleet.Admin{"shop": kadm.NewClient(testkit.Client(t, addr))},
			Origins: func(context.Context) ([]fleet.Topic, error) {
				return []fleet.Topic{{Cluster: "shop", Name: topic}}, nil
			},
			Logger: quiet,
		})
		g := group(t, f, ours)
		if number(g.Lag) != "6" || g.LagError != "" || g.LagAt == nil || number(g.Members) != "1" || number(g.Partitions) != "2" {
			t.Errorf("ours: lag %s (%s), members %s, partitions %s", number(g.Lag), g.LagError, number(g.Members), number(g.Partitions))
		}
		g = group(t, f, foreign)
		if g.Ours || g.State != fleet.Unknown || g.Consumed != nil || g.DeadLettered != nil || number(g.Lag) != "0" || number(g.Members) != "1" || g.Cluster != "shop" {
			t.Errorf("foreign: %+v", g)
		}
		g = group(t, f, declared)
		if g.Ours || g.Lag != nil || !strings.Contains(g.LagError, "no such group") || g.Members != nil {
			t.Errorf("declared, but down: %+v", g)
		}
		if _, err := f.Group(t.Context(), elsewhere); !errors.Is(err, fleet.ErrUnknownGroup) {
			t.Errorf("a group that reads no origin topic is listed: %v", err)
		}
	})
}

func produce(t *testing.T, addr, topic string, n int) {
	t.Helper()
	client := testkit.Client(t, addr)
	for i := range n {
		record := &kgo.Record{Topic: topic, Value: []byte("{}"), Key: fmt.Append(nil, i)}
		if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// consume joins the group, commits n records and stays a member.
func consume(t *testing.T, addr, group, topic string, n int, opts ...kgo.Opt) {
	t.Helper()
	client := testkit.Client(t, addr, append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(10*time.Second))...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollRecords(ctx, n-len(records))
		if err := fetches.Err0(); err != nil {
			t.Fatalf("consume %s as %s: %v", topic, group, err)
		}
		records = append(records, fetches.Records()...)
	}
	if err := client.CommitRecords(ctx, records...); err != nil {
		t.Fatal(err)
	}
}

func TestUnreachableBrokerIsNoZero(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	report(t, pool, newRunner("points", 4))
	client := testkit.Client(t, fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)))
	f := fleet.New(pool, fleet.Options{Brokers: map[string]fleet.Admin{"shop": kadm.NewClient(client)}, Logger: quiet})
	g := group(t, f, "points")
	if g.Lag != nil || g.Members != nil || !strings.HasPrefix(g.LagError, "broker not reachable") || number(g.Consumed) != "4" {
		t.Errorf("lag %s, members %s, %q", number(g.Lag), number(g.Members), g.LagError)
	}
}

func TestAnswersAreKeptBriefly(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	addr := testkit.FakeKafkaAddr(t)
	topic := testkit.Topic(t, addr, "order.paid", 1)
	produce(t, addr, topic, 3)
	consume(t, addr, "points", topic, 1)
	var mu sync.Mutex
	now := time.Now()
	f := fleet.New(pool, fleet.Options{
		Declared: []fleet.Declared{{Name: "points", Topics: []string{topic}}},
		Brokers:  map[string]fleet.Admin{"shop": kadm.NewClient(testkit.Client(t, addr))},
		Logger:   quiet,
		Now:      func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
	})
	want := func(lag string) {
		t.Helper()
		if g := group(t, f, "points"); number(g.Lag) != lag || g.Cluster != "shop" {
			t.Errorf("lag %s (%s) on %q, want %s", number(g.Lag), g.LagError, g.Cluster, lag)
		}
	}
	want("2")
	produce(t, addr, topic, 5)
	want("2")
	mu.Lock()
	now = now.Add(6 * time.Second)
	mu.Unlock()
	want("7")
}
