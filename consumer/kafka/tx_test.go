package kafka

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/internal/testkit"
)

// txChildEnv holds the spec of a child process that runs a pipe until it is killed.
const txChildEnv = "ONCEMORE_TEST_TX_CHILD"

// txChild is a pipe in a process of its own. Stuck: it stops for ever once its
// output is at the broker, before the commit.
type txChild struct {
	Addr, In, Out, Group, ID string
	Stuck                    bool
}

func init() {
	spec := os.Getenv(txChildEnv)
	if spec == "" {
		return
	}
	var c txChild
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		log.Fatal(err)
	}
	cfg := copyConfig(c.Addr, c.In, c.Out, c.Group, c.ID)
	if c.Stuck {
		cfg.Client = append(cfg.Client, kgo.WithHooks(stuckBeforeCommit{}))
	}
	pipe, err := NewPipe(cfg)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(pipe.Run(context.Background()))
}

// stuckBeforeCommit stops the process at the request that adds the offsets to
// the transaction, after the broker has confirmed the output.
type stuckBeforeCommit struct{}

const keyTxnOffsetCommit = 28

func (stuckBeforeCommit) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == keyTxnOffsetCommit {
		stopForEver()
	}
}

func copyConfig(addr, in, out, group, id string) PipeConfig {
	return PipeConfig{
		TxOptions: TxOptions{Client: []kgo.Opt{kgo.SeedBrokers(addr)}, TransactionalID: id},
		Group:     group, Topics: []string{in}, EventID: consumer.EventIDSource{Header: "event-id"},
		SessionTimeout: session(addr), RebalanceTimeout: 8 * time.Second, BatchSize: 50,
		Retry: consumer.RetryPolicy{Initial: time.Millisecond}, Outage: 200 * time.Millisecond,
		Handler: func(_ context.Context, ev consumer.Event) ([]*kgo.Record, error) {
			return []*kgo.Record{{Topic: out, Key: ev.Key, Value: ev.Value}}, nil
		},
	}
}

// bench is an input and an output topic.
type txBench struct {
	*testing.T
	addr, in, out, group, id string
}

func openTx(t *testing.T, addr string, partitions int32) *txBench {
	t.Helper()
	b := &txBench{T: t, addr: addr, group: testkit.Name("pipe"), id: testkit.Name("pipe") + "-0"}
	b.in, b.out = testkit.Topic(t, addr, "in", partitions), testkit.Topic(t, addr, "out", partitions)
	testkit.MakeTopic(t, addr, b.in+".DLT", partitions)
	return b
}

func (b *txBench) config() PipeConfig { return copyConfig(b.addr, b.in, b.out, b.group, b.id) }

func (b *txBench) publish(from, to int) {
	b.Helper()
	client := testkit.Client(b.T, b.addr)
	var all []*kgo.Record
	for i := from; i < to; i++ {
		text := fmt.Sprintf("ev-%04d", i)
		all = append(all, &kgo.Record{Topic: b.in, Key: []byte(text), Value: []byte(text),
			Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(text)}}})
	}
	if err := client.ProduceSync(b.Context(), all...).FirstErr(); err != nil {
		b.Fatal(err)
	}
}

// run starts the pipe and returns how to stop it, with what Run said.
func (b *txBench) run(cfg PipeConfig) (stop func() error) {
	b.Helper()
	pipe, err := NewPipe(cfg)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pipe.Run(ctx) }()
	var said error
	done := make(chan struct{})
	go func() { said = <-ended; close(done) }()
	stop = func() error {
		cancel()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			b.Error("pipe does not stop")
		}
		return said
	}
	b.Cleanup(func() { _ = stop() })
	return stop
}

// committed reads what a read_committed reader sees of the topic up to its end:
// a marker record is sent behind all and waited for on each partition.
func (b *txBench) committed(topic string) []string {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(50*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.KeepControlRecords())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.Context(), 60*time.Second)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		b.Fatal(err)
	}
	marks := map[int32]bool{}
	ends.Each(func(o kadm.ListedOffset) {
		marks[o.Partition] = true
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: o.Partition, Key: []byte("mark")}).FirstErr(); err != nil {
			b.Fatal(err)
		}
	})
	var all []string
	for len(marks) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			b.Fatalf("%s: the last stable offset does not reach the end", topic)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			switch {
			case r.Attrs.IsControl():
			case string(r.Key) == "mark":
				delete(marks, r.Partition)
			default:
				all = append(all, string(r.Value))
			}
		})
	}
	slices.Sort(all)
	return all
}

func (b *txBench) settled(n int) {
	b.Helper()
	admin := kadm.NewClient(testkit.Client(b.T, b.addr))
	testkit.Eventually(b.T, time.Minute, func() bool {
		offsets, err := admin.FetchOffsets(b.Context(), b.group)
		if err != nil {
			return false
		}
		done := int64(0)
		offsets.Each(func(o kadm.OffsetResponse) { done += max(o.At, 0) })
		return done == int64(n)
	}, "the group has committed %d offsets", n)
}

// exactly fails unless each of n events is there exactly one time.
func (b *txBench) exactly(topic string, n int) {
	b.Helper()
	got := b.committed(topic)
	if len(got) != n || len(slices.Compact(slices.Clone(got))) != n {
		b.Errorf("%s: %d records, %d different, want %d", topic, len(got), len(slices.Compact(slices.Clone(got))), n)
	}
}

// tooLarge is a value that does not compress below the broker's limit of 1 MiB.
func tooLarge() []byte {
	value := make([]byte, 2<<20)
	rand.Read(value) //nolint:errcheck // it never fails
	return value
}

func TestSendAtomicallyIsAllOrNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		b := openTx(t, addr, 2)
		p, err := NewTxProducer(b.config().TxOptions)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		both := func(text string, more ...*kgo.Record) []*kgo.Record {
			return append([]*kgo.Record{{Topic: b.in, Value: []byte(text)}, {Topic: b.out, Value: []byte(text)}}, more...)
		}
		if err := p.SendAtomically(t.Context(), both("one")...); err != nil {
			t.Fatal(err)
		}
		err = p.SendAtomically(t.Context(), both("lost", &kgo.Record{Topic: testkit.Name("nowhere"), Value: []byte("lost")})...)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, ErrInDoubt) {
			t.Errorf("to a topic that does not exist: %v", err)
		}
		err = p.SendAtomically(t.Context(), both("lost", &kgo.Record{Topic: b.out, Value: tooLarge()})...)
		if !errors.Is(err, kerr.MessageTooLarge) {
			t.Errorf("a record too large: %v", err)
		}
		if err := p.SendAtomically(t.Context(), both("two")...); err != nil {
			t.Errorf("after aborted transactions: %v", err)
		}
		for _, topic := range []string{b.in, b.out} {
			if got := fmt.Sprint(b.committed(topic)); got != "[one two]" {
				t.Errorf("%s: a read_committed reader sees %s", topic, got)
			}
		}
	})
}

func TestSecondInstanceFencesTheFirst(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		b := openTx(t, addr, 1)
		first, _ := NewTxProducer(b.config().TxOptions)
		second, _ := NewTxProducer(b.config().TxOptions)
		defer first.Close()
		defer second.Close()
		send := func(p *TxProducer, text string) error {
			return p.SendAtomically(t.Context(), &kgo.Record{Topic: b.out, Value: []byte(text)})
		}
		if err := send(first, "first"); err != nil {
			t.Fatal(err)
		}
		if err := second.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // and it does not come back to fence the second in turn
			if err := send(first, "zombie"); !errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), b.id) {
				t.Errorf("the older instance: %v", err)
			}
		}
		if err := send(second, "second"); err != nil {
			t.Errorf("the newer instance: %v", err)
		}
		if got := fmt.Sprint(b.committed(b.out)); got != "[first second]" {
			t.Errorf("a read_committed reader sees %s", got)
		}
	})
}

func TestPipeKilledBetweenProduceAndCommit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		b := openTx(t, addr, 3)
		b.publish(0, 100)
		b.killStuck()
		raw := readUncommitted(t, addr, b.out)
		if raw == 0 {
			t.Fatal("the child was killed before it produced")
		}
		stop := b.run(b.config())
		b.settled(100)
		b.exactly(b.out, 100)
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

func (b *txBench) killStuck() {
	b.Helper()
	spec, _ := json.Marshal(txChild{b.addr, b.in, b.out, b.group, b.id, true})
	ctx, cancel := context.WithTimeout(b.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), txChildEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "stopped\n" {
		b.Errorf("child said %q: %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	_ = cmd.Wait() // always an error: it was killed
}

// readUncommitted is the topic's end, which counts what was aborted.
func readUncommitted(t *testing.T, addr, topic string) (n int64) {
	t.Helper()
	ends, err := kadm.NewClient(testkit.Client(t, addr)).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// Two instances with one id: the older one ends with ErrFenced, and each input
// still has one output.
func TestZombiePipeIsFenced(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		b := openTx(t, addr, 2)
		b.publish(0, 50)
		var hold atomic.Bool
		held, release := make(chan struct{}), make(chan struct{})
		cfg := b.config()
		copyOne := cfg.Handler
		cfg.Handler = func(ctx context.Context, ev consumer.Event) ([]*kgo.Record, error) {
			if hold.CompareAndSwap(true, false) {
				close(held)
				<-release // deaf to its context, as a process that was suspended
			}
			return copyOne(ctx, ev)
		}
		stopOld := b.run(cfg)
		b.settled(50)
		hold.Store(true)
		b.publish(50, 100)
		<-held
		b.run(b.config())
		testkit.Eventually(t, time.Minute, func() bool { return members(t, addr, b.group) == 2 || b.lag() == 0 }, "the second instance joins")
		close(release)
		b.settled(100)
		b.publish(100, 150)
		b.settled(150)
		b.exactly(b.out, 150)
		if err := stopOld(); !errors.Is(err, ErrFenced) {
			t.Errorf("the older instance ended with %v", err)
		}
	})
}

func (b *txBench) lag() int64 {
	pipe, err := NewPipe(b.config())
	if err != nil {
		b.Fatal(err)
	}
	n, err := pipe.Lag(b.Context())
	if err != nil {
		return -1
	}
	return n
}

func members(t *testing.T, addr, group string) int {
	t.Helper()
	groups, err := kadm.NewClient(testkit.Client(t, addr)).DescribeGroups(t.Context(), group)
	if err != nil {
		return 0
	}
	return len(groups[group].Members)
}

// Members come and go while the pipe works; what a rebalance interrupts is
// aborted, and each input has one output.
func TestPipeThroughRebalances(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		const n = 600
		b := openTx(t, addr, 4)
		cfg := b.config()
		cfg.BatchSize = 20
		copyOne := cfg.Handler
		cfg.Handler = func(ctx context.Context, ev consumer.Event) ([]*kgo.Record, error) {
			if err := wait(ctx, 2*time.Millisecond); err != nil {
				return nil, err
			}
			return copyOne(ctx, ev)
		}
		b.publish(0, n)
		b.run(cfg)
		testkit.Eventually(t, time.Minute, func() bool { return readUncommitted(t, addr, b.out) > 20 }, "some progress")
		for i := range 2 {
			other := cfg
			other.TransactionalID = fmt.Sprintf("%s-other-%d", b.id, i)
			stop := b.run(other)
			testkit.Eventually(t, time.Minute, func() bool { return members(t, addr, b.group) == 2 }, "a member joins")
			if err := stop(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
		b.settled(n)
		b.exactly(b.out, n)
	})
}

// Poison meets the retry policy and becomes a letter inside the transaction; its
// neighbours have their output.
func TestPipeBuriesPoison(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		b := openTx(t, addr, 1)
		b.publish(0, 20)
		var calls [6]atomic.Int32
		cfg := b.config()
		copyOne := cfg.Handler
		cfg.Handler = func(ctx context.Context, ev consumer.Event) ([]*kgo.Record, error) {
			switch ev.ID {
			case "ev-0003":
				calls[0].Add(1)
				return nil, errors.New("never works")
			case "ev-0004":
				calls[1].Add(1)
				return nil, consumer.Permanent(errors.New("no such order"))
			case "ev-0005":
				if calls[2].Add(1) < 3 {
					panic("not yet")
				}
			case "ev-0006":
				calls[3].Add(1)
				return nil, consumer.Discard(errors.New("not ours"))
			case "ev-0007":
				if calls[4].Add(1) < 8 {
					return nil, consumer.Unavailable(errors.New("down"))
				}
			case "ev-0008":
				calls[5].Add(1)
				return []*kgo.Record{{Topic: b.out, Value: tooLarge()}}, nil
			}
			return copyOne(ctx, ev)
		}
		b.run(cfg)
		b.settled(20)
		b.exactly(b.out, 16)
		letters := letterReasons(readAllCommitted(b, b.in+".DLT"))
		want := map[string]string{"ev-0003": "never works", "ev-0004": "no such order", "ev-0008": "output refused"}
		for id, text := range want {
			if !strings.Contains(letters[id], text) {
				t.Errorf("letter of %s says %q, want %q", id, letters[id], text)
			}
		}
		if len(letters) != 3 || calls[0].Load() < 4 || calls[2].Load() < 3 || calls[4].Load() < 8 {
			t.Errorf("%d letters; calls %d, %d, %d", len(letters), calls[0].Load(), calls[2].Load(), calls[4].Load())
		}
	})
}

func readAllCommitted(b *txBench, topic string) (all []*kgo.Record) {
	b.Helper()
	want := len(b.committed(topic))
	client := testkit.Client(b.T, b.addr, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	for len(all) < want && ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if string(r.Key) != "mark" {
				all = append(all, r)
			}
		})
	}
	return all
}

func letterReasons(letters []*kgo.Record) map[string]string {
	reasons := map[string]string{}
	for _, r := range letters {
		id, text := "", ""
		for _, h := range r.Headers {
			switch h.Key {
			case headerEventID:
				id = string(h.Value)
			case exceptionText:
				text = string(h.Value)
			}
		}
		reasons[id] = text
	}
	return reasons
}

// A pipe reads nothing of its input that was aborted.
func TestPipeReadsCommittedOnly(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		b := openTx(t, addr, 1)
		source := b.config().TxOptions
		source.TransactionalID += "-source"
		p, err := NewTxProducer(source)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		event := func(id string) *kgo.Record {
			return &kgo.Record{Topic: b.in, Value: []byte(id), Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(id)}}}
		}
		if err := p.SendAtomically(t.Context(), event("aborted"), &kgo.Record{Topic: testkit.Name("nowhere")}); err == nil {
			t.Fatal("sent to a topic that does not exist")
		}
		if err := p.SendAtomically(t.Context(), event("whole")); err != nil {
			t.Fatal(err)
		}
		b.run(b.config())
		testkit.Eventually(t, time.Minute, func() bool { return len(b.committed(b.out)) > 0 }, "the output of the committed event")
		if got := fmt.Sprint(b.committed(b.out)); got != "[whole]" {
			t.Errorf("output %s", got)
		}
	})
}

func TestPipeRefusesBadConfig(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*PipeConfig){
		"no transactional id": func(c *PipeConfig) { c.TransactionalID = "" },
		"no group":            func(c *PipeConfig) { c.Group = "" },
		"no topic":            func(c *PipeConfig) { c.Topics = nil },
		"no handler":          func(c *PipeConfig) { c.Handler = nil },
		"no event id":         func(c *PipeConfig) { c.EventID = consumer.EventIDSource{} },
		"own commits":         func(c *PipeConfig) { c.Client = append(c.Client, kgo.AutoCommitMarks()) },
		"own acks":            func(c *PipeConfig) { c.Client = append(c.Client, kgo.RequiredAcks(kgo.LeaderAck())) },
	} {
		cfg := copyConfig("127.0.0.1:1", "in", "out", "g", "g-0")
		if _, err := NewPipe(cfg); err != nil {
			t.Fatalf("a good config: %v", err)
		}
		spoil(&cfg)
		if _, err := NewPipe(cfg); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
