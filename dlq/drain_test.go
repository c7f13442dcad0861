package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/dlq/dialect"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// drainBundle is a database, a broker and names that no other test has.
type drainBundle struct {
	t      *testing.T
	pool   *pgxpool.Pool
	addr   string
	prefix string // of topics
	client *kgo.Client
}

// onBoth runs the story on the in-process broker and on a real one.
func onBoth(t *testing.T, story func(*testing.T, *drainBundle)) {
	t.Helper()
	t.Parallel()
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		story(t, setupDrain(t, testkit.FakeKafkaAddr(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "67108864"}))))
	})
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		story(t, setupDrain(t, testkit.Kafka(t)))
	})
}

func setupDrain(t *testing.T, addr string) *drainBundle {
	t.Helper()
	b := &drainBundle{t: t, addr: addr, prefix: testkit.Name("drain"), pool: pgtest.New(t)}
	b.client = testkit.Client(t, addr, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20))
	return b
}

func (b *drainBundle) drainer(pool *pgxpool.Pool, log *slog.Logger) *Drainer {
	b.t.Helper()
	cluster, err := NewCluster("shop", kgo.SeedBrokers(b.addr))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(cluster.Close)
	return NewDrainer(DrainerConfig{Pool: pool, Cluster: cluster, Dialects: loadDialects(b.t), Log: log, Group: b.prefix,
		Sources: []DrainSource{{Pattern: b.prefix + "*.DLT"}, {Pattern: b.prefix + "-?.dlq", Configured: dialect.Configured{Group: "by-config"}}}})
}

// run drains until stop is called or the test ends.
func (b *drainBundle) run(d *Drainer) (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					b.t.Errorf("Run: %v", err)
				}
			case <-time.After(20 * time.Second):
				b.t.Error("Run did not end")
			}
		})
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *drainBundle) start() (*Drainer, func()) {
	d := b.drainer(b.pool, slog.New(slog.DiscardHandler))
	return d, b.run(d)
}

func (b *drainBundle) topic(suffix string, partitions int32) string {
	b.t.Helper()
	name := b.prefix + suffix
	testkit.MakeTopic(b.t, b.addr, name, partitions)
	return name
}

func (b *drainBundle) produce(topic string, partition int32, records ...*kgo.Record) {
	b.t.Helper()
	for _, r := range records {
		r.Topic, r.Partition = topic, partition
	}
	if err := b.client.ProduceSync(b.t.Context(), records...).FirstErr(); err != nil {
		b.t.Fatalf("produce to %s: %v", topic, err)
	}
}

func (b *drainBundle) wait(what string, want int64) {
	b.t.Helper()
	var n int64
	testkit.Eventually(b.t, 45*time.Second, func() bool {
		n = one[int64](b.t, b.pool, "SELECT count(*) FROM "+what)
		return n >= want
	}, "%s: want %d", what, want)
	if n != want {
		b.t.Fatalf("%s: %d rows, want %d", what, n, want)
	}
}

// failures are n letters of as many events.
func failures(from, n int) []*kgo.Record {
	var records []*kgo.Record
	for i := from; i < from+n; i++ {
		records = append(records, failure{event: fmt.Sprint("e-", i), offset: int64(i)}.record())
	}
	return records
}

func TestDrainFindsTopicsByPattern(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		first, other := b.topic(".a.DLT", 2), b.topic(".a", 1)
		b.produce(first, 0, failures(0, 5)...)
		b.produce(first, 1, failures(5, 5)...)
		b.produce(other, 0, failures(10, 5)...)
		d, _ := b.start()
		b.wait("dead_letter", 10)
		late := b.topic("-b.dlq", 1)
		made := time.Now()
		b.produce(late, 0, &kgo.Record{Value: []byte(`{"event_id":"late"}`)})
		b.wait("dead_letter", 11)
		if took := time.Since(made); took > 10*time.Second {
			t.Errorf("a new topic took %s", took)
		}
		b.wait("dead_letter d JOIN letter_name g ON g.id = d.group_id WHERE g.name = 'by-config' AND d.event_id = 'late'", 1)
		testkit.Eventually(t, 10*time.Second, func() bool {
			s := d.Status()
			return len(s) == 2 && s[0].Source == late && s[0].Drained == 1 && s[1].Source == first && s[1].Drained == 10 &&
				s[0].Waiting+s[1].Waiting == 0 && s[1].LastError == "" && !s[1].LastArrival.IsZero()
		}, "status %+v", d.Status())
	})
}

func TestDrainKeepsBytes(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic, records := b.topic(".DLT", 1), weird(t)
		large := kadm.AlterConfig{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("8388608")}
		if _, err := kadm.NewClient(b.client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{large}, topic); err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			for i, h := range r.Headers {
				r.Headers[i].Key = strings.ToValidUTF8(h.Key, "?") // the protocol's names are UTF-8
			}
			b.produce(topic, 0, r)
		}
		b.start()
		b.wait("dead_letter", int64(len(records)))
		(&intakeBundle{t: t, ctx: t.Context(), pool: b.pool}).wantBodies(records)
	})
}

func TestDrainGoesOnWhereItStopped(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic := b.topic(".DLT", 3)
		for round := range 3 {
			for p := range int32(3) {
				b.produce(topic, p, failures(round*100+int(p)*10, 10)...)
			}
			_, stop := b.start()
			b.wait("dead_letter", int64(30*(round+1)))
			stop()
		}
		b.wait("letter_occurrence", 0)
	})
}

func TestTwoDrainersShareASource(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic := b.topic(".DLT", 4)
		first, stopFirst := b.start()
		second, _ := b.start()
		sent := 0
		for range 10 {
			for p := range int32(4) {
				b.produce(topic, p, failures(sent, 25)...)
				sent += 25
			}
		}
		testkit.Eventually(t, 40*time.Second, func() bool {
			for p := range int32(4) {
				b.produce(topic, p, failures(sent, 5)...)
				sent += 5
			}
			return drained(first) > 0 && drained(second) > 0
		}, "both drain")
		stopFirst()
		b.produce(topic, 0, failures(sent, 10)...)
		b.wait("dead_letter", int64(sent+10))
		b.wait("letter_occurrence", 0)
		b.wait("dead_letter_body", int64(sent+10))
	})
}

func drained(d *Drainer) (n int64) {
	for _, s := range d.Status() {
		n += s.Drained
	}
	return n
}

func TestDrainStartsARecreatedTopicAnew(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic := b.topic(".DLT", 1)
		b.produce(topic, 0, failures(0, 5)...)
		b.start()
		b.wait("dead_letter", 5)
		admin := kadm.NewClient(b.client)
		if _, err := admin.DeleteTopics(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 20*time.Second, func() bool {
			_, err := admin.CreateTopic(t.Context(), 1, 1, nil, topic)
			return err == nil
		}, "topic made again")
		b.client.PurgeTopicsFromClient(topic)
		b.produce(topic, 0, failures(100, 8)...) // its offsets 0 to 7 were used before
		b.wait("dead_letter", 13)
		b.wait("letter_source", 2)
		b.wait("drain_position WHERE next_offset IN (5, 8)", 2)
		b.wait("drain_gap", 0)
	})
}

func TestDrainRecordsAGap(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic := b.topic(".DLT", 1)
		b.produce(topic, 0, failures(0, 10)...)
		_, stop := b.start()
		b.wait("dead_letter", 10)
		stop()
		b.produce(topic, 0, failures(10, 10)...)
		admin := kadm.NewClient(b.client)
		del := kadm.Offsets{}
		del.AddOffset(topic, 0, 15, -1)
		if _, err := admin.DeleteRecords(t.Context(), del); err != nil {
			t.Fatal(err)
		}
		b.start()
		b.wait("dead_letter", 15)
		gaps, err := Gaps(t.Context(), b.pool, time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if len(gaps) != 1 || gaps[0].From != 10 || gaps[0].To != 15 || gaps[0].Source != topic || gaps[0].Cluster != "shop" {
			t.Errorf("gaps %+v", gaps)
		}
	})
}

// A log that ends before our position was cut: what stands there now may be new.
func TestDrainReadsACutLogAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic := b.topic(".DLT", 1)
		b.produce(topic, 0, failures(0, 5)...)
		_, stop := b.start()
		b.wait("dead_letter", 5)
		stop()
		if _, err := b.pool.Exec(t.Context(), "UPDATE drain_position SET next_offset = 100"); err != nil {
			t.Fatal(err)
		}
		b.produce(topic, 0, failures(5, 1)...)
		b.start()
		b.wait("dead_letter", 6)
		b.wait("dead_letter WHERE flags & 1 <> 0 AND event_id = 'e-5'", 1)
		b.wait("drain_position WHERE next_offset = 6", 1)
		b.wait("letter_occurrence", 0)
		b.wait("dead_letter WHERE occurrences = 1", 6)
	})
}

func TestDrainFollowsAMovedPosition(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic := b.topic(".DLT", 1)
		b.start()
		b.produce(topic, 0, failures(0, 5)...)
		b.wait("dead_letter", 5)
		if _, err := b.pool.Exec(t.Context(), "UPDATE drain_position SET next_offset = 2"); err != nil {
			t.Fatal(err)
		}
		b.produce(topic, 0, failures(5, 5)...)
		b.wait("dead_letter", 10)
		b.wait("drain_position WHERE next_offset = 10", 1)
		b.wait("letter_occurrence", 0)
		b.wait("dead_letter WHERE occurrences = 1", 10)
	})
}

func TestDrainPassesATransactionsEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic := b.topic(".DLT", 1)
		tx := testkit.Client(t, b.addr, kgo.TransactionalID(b.prefix), kgo.DefaultProduceTopic(topic))
		for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			if err := tx.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := tx.ProduceSync(t.Context(), failure{event: fmt.Sprint(i), offset: int64(i)}.record()).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := tx.EndTransaction(t.Context(), end); err != nil {
				t.Fatal(err)
			}
		}
		d, _ := b.start()
		b.wait("dead_letter WHERE event_id = '0'", 1)
		b.wait("drain_position WHERE next_offset = 4", 1)
		b.wait("dead_letter", 1)
		testkit.Eventually(t, 10*time.Second, func() bool { s := d.Status(); return len(s) == 1 && s[0].Waiting == 0 }, "nothing waits")
	})
}

func TestDrainOutlastsItsDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, b *drainBundle) {
		topic := b.topic(".DLT", 1)
		d, _ := b.start()
		b.produce(topic, 0, failures(0, 3)...)
		b.wait("dead_letter", 3)
		if _, err := b.pool.Exec(t.Context(), "ALTER TABLE letter_identity RENAME TO away"); err != nil {
			t.Fatal(err)
		}
		b.produce(topic, 0, failures(3, 3)...)
		testkit.Eventually(t, 20*time.Second, func() bool { s := d.Status(); return len(s) == 1 && s[0].LastError != "" && s[0].Waiting == 3 }, "the error shows")
		if _, err := b.pool.Exec(t.Context(), "ALTER TABLE away RENAME TO letter_identity"); err != nil {
			t.Fatal(err)
		}
		b.wait("dead_letter", 6)
		testkit.Eventually(t, 10*time.Second, func() bool { s := d.Status(); return s[0].LastError == "" && s[0].Drained == 6 }, "the error is overcome")
	})
}

// TestDrainSurvivesKill kills a process between insert and commit. The process is
// this test again, told by the environment to be the child.
func TestDrainSurvivesKill(t *testing.T) {
	if os.Getenv("ONCEMORE_DRAIN_CHILD") != "" {
		drainAsChild(t)
		return
	}
	onBoth(t, func(t *testing.T, b *drainBundle) {
		url := pgtest.URL(t)
		b.pool = pgtest.Open(t, url)
		topic := b.topic(".DLT", 1)
		b.produce(topic, 0, failures(0, 50)...)
		b.produce(topic, 0, failures(0, 1)...) // published twice
		child := exec.Command(os.Args[0], "-test.run=^TestDrainSurvivesKill$")
		child.Env = append(os.Environ(), "ONCEMORE_DRAIN_CHILD="+strings.Join([]string{url, b.addr, b.prefix}, " "))
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		waitForLine(t, out, "inserted")
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); err == nil {
			t.Error("the child ended by itself")
		}
		b.wait("dead_letter", 0)
		b.start()
		b.wait("dead_letter", 50)
		b.wait("letter_occurrence", 1)
		b.wait("drain_position WHERE next_offset = 51", 1)
	})
}

// drainAsChild drains until a batch waits for its commit, says so and hangs.
func drainAsChild(t *testing.T) {
	args := strings.Fields(os.Getenv("ONCEMORE_DRAIN_CHILD"))
	b := &drainBundle{t: t, pool: pgtest.Open(t, args[0]), addr: args[1], prefix: args[2]}
	d := b.drainer(b.pool, slog.New(slog.DiscardHandler))
	d.intake.pause = func() {
		fmt.Println("inserted")
		select {}
	}
	if err := d.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func waitForLine(t *testing.T, r interface{ Read([]byte) (int, error) }, want string) {
	t.Helper()
	seen := make(chan bool, 1)
	go func() {
		var text strings.Builder
		buf := make([]byte, 1024)
		for {
			n, err := r.Read(buf)
			text.Write(buf[:n])
			if strings.Contains(text.String(), want) {
				seen <- true
				return
			}
			if err != nil {
				seen <- false
				return
			}
		}
	}()
	select {
	case ok := <-seen:
		if !ok {
			t.Fatalf("the child ended before %q", want)
		}
	case <-time.After(60 * time.Second):
		t.Fatalf("the child did not say %q", want)
	}
}

func TestBadPatternIsAnError(t *testing.T) {
	t.Parallel()
	cluster, err := NewCluster("shop", kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	d := NewDrainer(DrainerConfig{Cluster: cluster, Log: slog.New(slog.DiscardHandler), Sources: []DrainSource{{Pattern: ""}}})
	if err := d.Run(t.Context()); err == nil || !strings.Contains(err.Error(), ErrBadPattern.Error()) {
		t.Errorf("got %v", err)
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		glob, topic string
		want        bool
	}{
		{"*.DLT", "order.paid.DLT", true}, {"*.DLT", "order.paid.DLTx", false}, {"*.DLT", "orderDLT", false}, {"*.dlq", "a.DLQ", false},
		{"order.?.DLT", "order.1.DLT", true}, {"order.?.DLT", "order.12.DLT", false}, {"a+b", "aab", false}, {"*", "__consumer_offsets", false}, {"exact", "exact", true},
	} {
		sources, err := compileSources([]DrainSource{{Pattern: c.glob}})
		if err != nil {
			t.Fatal(err)
		}
		if _, got := match(sources, c.topic); got != c.want {
			t.Errorf("%s matches %s: %v", c.glob, c.topic, got)
		}
	}
}

func TestSplitKeepsOrderAndBounds(t *testing.T) {
	t.Parallel()
	var parts []*partitionBatch
	for p := range int32(3) {
		part := &partitionBatch{Partition: p, From: 0, Next: 1500}
		for i := range 1500 {
			r := &kgo.Record{Partition: p, Offset: int64(i)}
			if p == 2 && i < 3 {
				r.Value = make([]byte, batchBytes+1)
			}
			part.Records = append(part.Records, r)
		}
		parts = append(parts, part)
	}
	next := map[int32]int64{}
	for _, batch := range split(parts) {
		n := 0
		for _, p := range batch {
			if p.From != next[p.Partition] || len(p.Records) == 0 || p.Records[0].Offset != p.From {
				t.Fatalf("partition %d goes on at %d, want %d", p.Partition, p.From, next[p.Partition])
			}
			next[p.Partition], n = p.Next, n+len(p.Records)
		}
		if n > batchRecords {
			t.Errorf("%d records in one batch", n)
		}
	}
	for p := range int32(3) {
		if next[p] != 1500 {
			t.Errorf("partition %d ends at %d", p, next[p])
		}
	}
}
