package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncemore/consumer"
	"oncemore/consumer/brokertest"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
)

// memberIDs are the members of the shop's group, by the broker.
func (s *shop) memberIDs() []string {
	s.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	if err != nil {
		s.Fatal(err)
	}
	defer client.Close()
	groups, err := kadm.NewClient(client).DescribeGroups(s.Context(), s.group)
	if err != nil {
		s.Fatal(err)
	}
	var ids []string
	for _, m := range groups[s.group].Members {
		ids = append(ids, m.MemberID)
	}
	return ids
}

// A back-off of 90 s with a session time-out of a few: the consumer stays the same
// member over two session time-outs, its other partition goes on, and nobody
// waits for the back-off when it stops.
func TestLongBackOffKeepsMembership(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 2)
		cfg := s.config()
		cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			if ev.Partition == 0 {
				return consumer.RetryAfter(errors.New("later"), 90*time.Second)
			}
			return addPoints(ctx, tx, ev)
		}
		m := s.run(cfg)
		s.publish(paymentOn(1, 0), paymentOn(2, 0))
		s.await("the back-off begins", func() bool { return m.Status().Retried == 1 && m.Status().State == consumer.Waiting })
		before := s.memberIDs()
		if len(before) != 1 {
			t.Fatalf("members %v", before)
		}
		n := 10
		s.holds(2*session(addr)+time.Second, "the same member", func() bool {
			s.publish(paymentOn(n, 1))
			n++
			now := s.memberIDs()
			return len(now) == 1 && now[0] == before[0]
		})
		s.await("the other partition goes on", func() bool { return int(m.Status().Consumed) == n-10 })
		if got := m.Status(); got.Retried != 1 || got.DeadLettered != 0 {
			t.Errorf("retried %d, dead-lettered %d", got.Retried, got.DeadLettered)
		}
		began := time.Now()
		m.stop()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the stop took %s", took)
		}
		if at := committed(t, s.client(t), s.group, s.topic); at[0] > 0 || at[1] != int64(n-10) {
			t.Errorf("committed %v, want nothing of partition 0 and %d of 1", at, n-10)
		}
	})
}

// The same with the defaults, to the end: 90 s of back-off, a session of 15 s.
func TestSoakNinetySecondsOfBackOff(t *testing.T) {
	testkit.Soak(t)
	t.Parallel()
	s := openShop(t, testkit.Kafka(t), 1)
	cfg := s.config()
	cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if ev.Attempt == 1 && ev.ID == "payment-success-1" {
			return consumer.RetryAfter(errors.New("later"), 90*time.Second)
		}
		return addPoints(ctx, tx, ev)
	}
	m := s.runWith(cfg, Options{Topics: []string{s.topic}, Client: []kgo.Opt{kgo.SeedBrokers(s.addr)}})
	s.publish(payment(1), payment(2))
	s.await("the back-off begins", func() bool { return m.Status().State == consumer.Waiting && m.Status().Retried == 1 })
	before := s.memberIDs()
	s.holds(85*time.Second, "the same member, still waiting", func() bool {
		now := s.memberIDs()
		return len(now) == 1 && now[0] == before[0] && s.acked() == 0
	})
	s.settled(2)
	if now := s.memberIDs(); len(now) != 1 || now[0] != before[0] || s.points(1) != 100 || s.points(2) != 100 {
		t.Errorf("members %v, before %v, points %d and %d", now, before, s.points(1), s.points(2))
	}
	if st := m.Status(); st.Retried != 1 || st.DeadLettered != 0 || st.Duplicates != 0 {
		t.Errorf("status %+v", st)
	}
}

func TestDeadLetterPublishFailureHoldsTheOffset(t *testing.T) {
	t.Parallel()
	for _, fault := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed} {
		t.Run(fault.Message, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t)
			s := openShop(t, cluster.ListenAddrs()[0], 1)
			handle := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: s.topic + ".DLT", Err: fault, Count: -1})
			var calls atomic.Int64
			cfg := s.config()
			cfg.Handler = func(context.Context, pgstore.Tx, consumer.Event) error {
				calls.Add(1)
				return consumer.Permanent(errors.New("no such order"))
			}
			m := s.run(cfg)
			s.publish(payment(1))
			s.await("the publish was refused", func() bool { return handle.Hits() > 0 })
			if errors.Is(fault, kerr.TopicAuthorizationFailed) {
				s.await("it is told", func() bool {
					return m.Status().State == consumer.Waiting && strings.Contains(m.Status().LastError, "TOPIC_AUTHORIZATION_FAILED")
				})
			}
			s.holds(time.Second, "nothing is acknowledged", func() bool { return s.acked() == 0 && m.Status().DeadLettered == 0 })
			handle.Remove()
			s.settled(1)
			if len(s.letters()) != 1 || calls.Load() != 1 {
				t.Errorf("%d letters, %d calls of the handler", len(s.letters()), calls.Load())
			}
		})
	}
}

func TestMissingDeadLetterTopicIsWaitedFor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 0)
		s.topic = testkit.Topic(t, addr, "order.paid", 1)
		cfg := s.config()
		cfg.Handler = func(context.Context, pgstore.Tx, consumer.Event) error { return consumer.Permanent(errors.New("no")) }
		m := s.run(cfg)
		s.publish(payment(1))
		s.await("a clear error", func() bool {
			return m.Status().State == consumer.Waiting && strings.Contains(m.Status().LastError, s.topic+".DLT does not exist")
		})
		if s.acked() != 0 {
			t.Error("the offset moved without a letter")
		}
		testkit.MakeTopic(t, addr, s.topic+".DLT", 1)
		s.settled(1)
		if got := len(s.letters()); got < 1 {
			t.Errorf("%d letters", got)
		}
	})
}

// A second member joins while the first is in the middle of a transaction: what
// it finishes is committed in the revoke, so nothing is delivered twice.
func TestRevokeFinishesAndCommits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 4)
		n := 0
		publish := func() {
			for range 40 {
				s.publish(paymentOn(n, n%4))
				n++
			}
		}
		cfg := s.config()
		cfg.BatchSize = 5
		cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.01)`); err != nil {
				return err
			}
			return addPoints(ctx, tx, ev)
		}
		publish()
		first := s.run(cfg)
		s.await("the first works", func() bool { return first.Status().Consumed > 20 })
		second := s.run(cfg)
		s.await("the second works", func() bool { publish(); return second.Status().Consumed > 20 })
		s.settled(n)
		a, b := first.Status(), second.Status()
		if a.Consumed+b.Consumed != int64(n) || a.Duplicates+b.Duplicates != 0 {
			t.Errorf("consumed %d + %d, duplicates %d + %d", a.Consumed, b.Consumed, a.Duplicates, b.Duplicates)
		}
	})
}

// The broker forgets the member in the middle of a transaction: it is cut off,
// nothing of it is committed, and the event takes effect once after all.
func TestLostPartitionsAreDiscarded(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := openShop(t, cluster.ListenAddrs()[0], 1)
	cfg := s.config()
	cut := make(chan error, 10)
	var calls atomic.Int64
	cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if err := addPoints(ctx, tx, ev); err != nil {
			return err
		}
		if calls.Add(1) == 1 {
			<-ctx.Done()
			cut <- context.Cause(ctx)
			return consumer.Permanent(ctx.Err()) // whatever it says now counts for nothing
		}
		return nil
	}
	opts := options(s.addr, s.topic)
	opts.RebalanceTimeout, opts.FinishTimeout = 2*time.Minute, time.Minute // which it must not wait for
	m := s.runWith(cfg, opts)
	s.publish(payment(1))
	s.await("the transaction is under way", func() bool { return calls.Load() == 1 })
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: s.group, TopLevel: true, Err: kerr.UnknownMemberID})
	select {
	case <-cut:
	case <-time.After(30 * time.Second):
		t.Fatal("the transaction was not cut off")
	}
	s.settled(1)
	if s.points(1) != 100 || s.records() != 1 || len(s.letters()) != 0 {
		t.Errorf("points %d, records %d, letters %d", s.points(1), s.records(), len(s.letters()))
	}
	if st := m.Status(); st.Consumed != 1 || st.DeadLettered != 0 || st.Retried != 0 {
		t.Errorf("status %+v", st)
	}
}

// A partition that is lost while its fetching is paused comes back fetching: kgo
// remembers pauses over assignments.
func TestPauseEndsWithTheAssignment(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	s := openShop(t, cluster.ListenAddrs()[0], 1)
	var calls atomic.Int64
	cfg := s.config()
	cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if calls.Add(1) == 1 {
			return consumer.RetryAfter(errors.New("later"), time.Hour)
		}
		return addPoints(ctx, tx, ev)
	}
	m := s.run(cfg)
	s.publish(payment(1))
	s.await("the back-off begins", func() bool { return m.Status().State == consumer.Waiting && m.Status().Retried == 1 })
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: s.group, TopLevel: true, Err: kerr.UnknownMemberID})
	s.settled(1)
	if s.points(1) != 100 || m.Status().State != consumer.Running {
		t.Errorf("points %d, state %s", s.points(1), m.Status().State)
	}
}

// Replays reach the group by its replay topic, which CreateTopics makes with as
// many partitions; what fails there becomes a letter of the first topic's DLT.
func TestReplayTopic(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 0)
		s.topic = testkit.Topic(t, addr, "order.paid", 3)
		replay := ReplayTopic(s.group)
		cfg := s.config()
		cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			if ev.ID == "payment-success-2" {
				return consumer.Permanent(errors.New("still not"))
			}
			return addPoints(ctx, tx, ev)
		}
		opts := options(addr, s.topic)
		opts.CreateTopics = true
		t.Cleanup(func() { dropTopics(addr, replay, s.topic+".DLT") })
		m := s.runWith(cfg, opts)
		s.await("all partitions of both topics", func() bool { return len(m.Status().Assigned) == 6 })
		item := consumer.Header{Name: "oncemore-item", Value: []byte("1")}
		one, two := paymentOn(1, 2), paymentOn(2, 1)
		two.Headers = []consumer.Header{item}
		s.publish(paymentOn(1, 0))
		s.Publish(t, replay, one, two)
		s.await("the replays are done", func() bool { return s.Acked(t, s.group, replay) == 2 && s.acked() == 1 })
		if s.points(1) != 100 || s.points(2) != 0 {
			t.Errorf("points %d and %d", s.points(1), s.points(2))
		}
		letters := s.letters()
		if len(letters) != 1 {
			t.Fatalf("%d letters", len(letters))
		}
		l := letterOf(letters[0])
		if l.Topic != replay || l.OriginPartition != 1 || l.Partition != 1 || len(l.Headers) != 1 || l.Headers[0].Name != item.Name {
			t.Errorf("letter %+v", l)
		}
	})
}

// dropTopics deletes what a consumer has made; the broker may be gone already.
func dropTopics(addr string, names ...string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, _ = kadm.NewClient(client).DeleteTopics(ctx, names...)
}

// A replay topic that is made later is picked up.
func TestReplayTopicMadeLater(t *testing.T) {
	t.Parallel()
	s := openShop(t, fake(t).ListenAddrs()[0], 1)
	m := s.run(s.config())
	s.publish(payment(1))
	s.settled(1)
	if got := m.Status().LastError; got != "" {
		t.Errorf("a missing replay topic is reported as %q", got)
	}
	replay := ReplayTopic(s.group)
	testkit.MakeTopic(t, s.addr, replay, 1)
	testkit.Eventually(t, 90*time.Second, func() bool { return len(m.Status().Assigned) == 2 }, "the new topic is assigned")
	s.Publish(t, replay, payment(2))
	s.await("the replay takes effect", func() bool { return s.points(2) == 100 })
}

func TestOffsetsAreCommittedByUsAlone(t *testing.T) {
	t.Parallel()
	cfg := shopConfig("g", nil)
	base := Options{Topics: []string{"t"}}
	refused := map[string]kgo.Opt{
		"AutoCommitMarks":      kgo.AutoCommitMarks(),
		"AutoCommitInterval":   kgo.AutoCommitInterval(time.Second),
		"GreedyAutoCommit":     kgo.GreedyAutoCommit(),
		"ConsumerGroup":        kgo.ConsumerGroup("other"),
		"OnPartitionsRevoked":  kgo.OnPartitionsRevoked(nil),
		"ConsumeTopics":        kgo.ConsumeTopics("other"),
		"RequiredAcks":         kgo.RequiredAcks(kgo.LeaderAck()),
		"DisableIdempotent":    kgo.DisableIdempotentWrite(),
		"AllowAutoTopic":       kgo.AllowAutoTopicCreation(),
		"a broken option":      kgo.SeedBrokers(),
		"TransactionalID":      kgo.TransactionalID("x"),
		"FetchIsolationLevel":  kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		"BlockRebalanceOnPoll": kgo.BlockRebalanceOnPoll(),
	}
	for name, opt := range refused {
		opts := base
		opts.Client = []kgo.Opt{kgo.ClientID("x"), opt}
		if _, err := New(cfg, opts); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	base.Client = []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1"), kgo.ClientID("shop"), kgo.DialTimeout(time.Second)}
	if _, err := New(cfg, base); err != nil {
		t.Errorf("connection options are refused: %v", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := shopConfig("g", nil)
	cases := map[string]func(*consumer.Config[pgstore.Tx], *Options){
		"no group":          func(c *consumer.Config[pgstore.Tx], _ *Options) { c.Group = "" },
		"no handler":        func(c *consumer.Config[pgstore.Tx], _ *Options) { c.Handler = nil },
		"no store":          func(c *consumer.Config[pgstore.Tx], _ *Options) { c.Store = nil },
		"positional id":     func(c *consumer.Config[pgstore.Tx], _ *Options) { c.EventID.Header = "kafka_offset" },
		"long group":        func(c *consumer.Config[pgstore.Tx], _ *Options) { c.Group = strings.Repeat("g", 250) },
		"group no topic":    func(c *consumer.Config[pgstore.Tx], _ *Options) { c.Group = "points/eu" },
		"senseless retry":   func(c *consumer.Config[pgstore.Tx], _ *Options) { c.Retry.Multiplier = 0.1 },
		"no topic":          func(_ *consumer.Config[pgstore.Tx], o *Options) { o.Topics = nil },
		"empty topic":       func(_ *consumer.Config[pgstore.Tx], o *Options) { o.Topics = []string{""} },
		"late finish":       func(_ *consumer.Config[pgstore.Tx], o *Options) { o.FinishTimeout = time.Minute },
		"negative batch":    func(c *consumer.Config[pgstore.Tx], _ *Options) { c.BatchSize = -1 },
		"negative outage":   func(c *consumer.Config[pgstore.Tx], _ *Options) { c.Outage = -1 },
		"template as an id": func(c *consumer.Config[pgstore.Tx], _ *Options) { c.EventID.Header = "{topic}-{offset}" },
	}
	for name, spoil := range cases {
		cfg, opts := good, Options{Topics: []string{"t"}}
		spoil(&cfg, &opts)
		if _, err := New(cfg, opts); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// An unreachable broker or database is waited for, and the wait can be ended.
func TestRunWaitsForBrokerAndDatabase(t *testing.T) {
	t.Parallel()
	s := openShop(t, fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t)), 0)
	s.topic = "order.paid"
	m := s.run(s.config())
	s.await("it waits for the broker", func() bool { st := m.Status(); return st.State == consumer.Waiting && st.LastError != "" })
	m.stop()
	if err := m.Run(t.Context()); !errors.Is(err, errRunTwice) {
		t.Errorf("a second Run: %v", err)
	}

	s = openShop(t, fake(t).ListenAddrs()[0], 1)
	if _, err := s.pool.Exec(t.Context(), `ALTER TABLE mq_consume_record RENAME TO away`); err != nil {
		t.Fatal(err)
	}
	m = s.run(s.config())
	s.publish(payment(1))
	s.await("it waits for the table", func() bool { return strings.Contains(m.Status().LastError, "table is missing") })
	if _, err := s.pool.Exec(t.Context(), `ALTER TABLE away RENAME TO mq_consume_record`); err != nil {
		t.Fatal(err)
	}
	s.settled(1)
	if s.points(1) != 100 {
		t.Errorf("%d points", s.points(1))
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 2)
		m := s.run(s.config())
		s.publish(paymentOn(1, 0), paymentOn(2, 0))
		s.settled(2)
		m.Pause()
		s.publish(paymentOn(3, 0), paymentOn(4, 1))
		got, err := m.Lag(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []consumer.Position{
			{Partition: consumer.Partition{Topic: s.topic, Partition: 0}, Committed: 2, End: 3, Lag: 1},
			{Partition: consumer.Partition{Topic: s.topic, Partition: 1}, Committed: -1, End: 1, Lag: 1},
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("lag %v, want %v", got, want)
		}
		m.stop()
		if _, err := m.Lag(t.Context()); !errors.Is(err, errNotRunning) {
			t.Errorf("lag of a stopped consumer: %v", err)
		}
	})
}

// lines keeps what is logged.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.b.String(), text)
}

func TestAckWorth(t *testing.T) {
	t.Parallel()
	cases := []struct {
		replicas, minISR int
		want             string
	}{{1, 1, "one replica"}, {3, 1, "the leader alone"}, {3, 3, "stops all writes"}, {3, 2, ""}, {5, 3, ""}}
	for _, c := range cases {
		if got := ackWorth(c.replicas, c.minISR); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%d replicas, min %d: %q", c.replicas, c.minISR, got)
		}
	}
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 1)
		var log lines
		cfg := s.config()
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s.run(cfg)
		s.await("a warning of the single replica", func() bool {
			return log.has("acks=all is worth little") && log.has("topic="+s.topic+".DLT") && log.has("there is one replica")
		})
	})
}

// A letter that the topic refuses for its size goes without its stack trace.
func TestLetterTooLargeLosesItsStack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		s := openShop(t, addr, 0)
		s.topic = testkit.Topic(t, addr, "order.paid", 1)
		limit := "60000"
		if _, err := kadm.NewClient(s.client(t)).CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &limit}, s.topic+".DLT"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dropTopics(addr, s.topic+".DLT") })
		cfg := s.config()
		cfg.Handler = func(context.Context, pgstore.Tx, consumer.Event) error {
			return consumer.Permanent(&consumer.PanicError{Value: "deep", Stack: noise(200_000)})
		}
		s.run(cfg)
		s.publish(payment(1))
		s.settled(1)
		letters := s.letters()
		if len(letters) != 1 {
			t.Fatalf("%d letters", len(letters))
		}
		if l := letterOf(letters[0]); !strings.Contains(l.Trace, "bytes left out") || l.Text != "handler panicked: deep" {
			t.Errorf("trace %.100q, text %q", l.Trace, l.Text)
		}
	})
}

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// The marks of an earlier failure are replaced, whatever else the record carries stays.
func TestDeadRecord(t *testing.T) {
	t.Parallel()
	origin := &kgo.Record{Topic: "order.paid", Partition: 3, Offset: 1 << 33, Key: []byte{}, Value: nil,
		Timestamp: time.UnixMilli(1764500000123), Headers: []kgo.RecordHeader{
			{Key: "a", Value: []byte("1")}, {Key: "kafka_dlt-original-topic", Value: []byte("old")}, {Key: "kafka_deliveryAttempt", Value: []byte{9}},
			{Key: "a", Value: nil}, {Key: "oncemore-replay", Value: []byte("12")}}}
	event := eventOf("points", origin)
	event.ID, event.Attempt = "payment-success-1", 4
	r := deadRecord("order.paid.DLT", origin, consumer.Letter{Event: event, Err: fmt.Errorf("add: %w", kerr.UnknownServerError)})
	var got []string
	for _, h := range r.Headers {
		if h.Value == nil {
			got = append(got, h.Key+"=null")
			continue
		}
		got = append(got, fmt.Sprintf("%s=%q", h.Key, h.Value))
	}
	want := []string{`a="1"`, `a=null`, `oncemore-replay="12"`,
		`kafka_dlt-original-topic="order.paid"`, `kafka_dlt-original-partition="\x00\x00\x00\x03"`,
		`kafka_dlt-original-offset="\x00\x00\x00\x02\x00\x00\x00\x00"`, `kafka_dlt-original-timestamp="\x00\x00\x01\x9a\xd4eM{"`,
		`kafka_dlt-original-timestamp-type="CreateTime"`, `kafka_dlt-original-consumer-group="points"`,
		`kafka_dlt-exception-fqcn="*kerr.Error"`,
		`kafka_dlt-exception-message="add: UNKNOWN_SERVER_ERROR: The server experienced an unexpected error when processing the request."`,
		`kafka_dlt-exception-stacktrace="*fmt.wrapError: add: UNKNOWN_SERVER_ERROR: The server experienced an unexpected error when processing the request.\ncaused by *kerr.Error: UNKNOWN_SERVER_ERROR: The server experienced an unexpected error when processing the request.\n"`,
		`kafka_deliveryAttempt="\x00\x00\x00\x04"`, `kafka_dlt-added-header="event-id"`, `event-id="payment-success-1"`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("headers\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if r.Value != nil || r.Key == nil {
		t.Error("null and empty were confused")
	}
}

// A dead-letter topic with fewer partitions takes what its number fits, and the rest by key.
func TestPartitionOfADeadLetter(t *testing.T) {
	t.Parallel()
	p := sameOrByKey().ForTopic("t")
	for want := range 3 {
		if got := p.Partition(&kgo.Record{Partition: int32(want), Key: []byte("k")}, 3); got != want {
			t.Errorf("partition %d went to %d", want, got)
		}
	}
	a := p.Partition(&kgo.Record{Partition: 7, Key: []byte("k")}, 3)
	b := p.Partition(&kgo.Record{Partition: 9, Key: []byte("k")}, 3)
	if a != b || a > 2 {
		t.Errorf("one key went to %d and %d", a, b)
	}
}

var _ brokertest.Broker = broker{}
