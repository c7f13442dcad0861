package outbox

import (
	"bufio"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"oncemore/consumer"
	"oncemore/internal/testkit"
)

// TestMain lets the crash test run this binary as a relay of its own.
func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		runChild(spec)
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("oncemore/internal/embedded.(*Postgres).launch.func1")) // the server of tests without one
}

const childEnv = "ONCEMORE_TEST_RELAY"

// child is a relay that publishes to Kafka and never hears of the confirmation
// of the row Stop.
type child struct{ Database, Kafka, Stop string }

// deafTo tells the parent that the row is confirmed, and nobody else.
type deafTo struct {
	*Kafka
	id string
}

func (d deafTo) Publish(ctx context.Context, r Row, done func(error)) {
	d.Kafka.Publish(ctx, r, func(err error) {
		if r.EventID == d.id && err == nil {
			fmt.Println("confirmed")
			return
		}
		done(err)
	})
}

func runChild(spec string) {
	var c child
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		log.Fatal(err)
	}
	pool, err := pgxpool.New(context.Background(), c.Database)
	if err != nil {
		log.Fatal(err)
	}
	box, err := Postgres(pool, DefaultTable)
	if err != nil {
		log.Fatal(err)
	}
	to, err := NewKafka(KafkaOptions{Client: []kgo.Opt{kgo.SeedBrokers(c.Kafka)}})
	if err != nil {
		log.Fatal(err)
	}
	relay, err := NewRelay(box, deafTo{to, c.Stop}, fast())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(relay.Run(context.Background()))
}

func toKafka(t *testing.T, addr string) *Kafka {
	t.Helper()
	to, err := NewKafka(KafkaOptions{Client: []kgo.Opt{kgo.SeedBrokers(addr)}, DeliveryTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(to.Close)
	return to
}

// topicReader reads a topic from its start.
type topicReader struct {
	t      *testing.T
	client *kgo.Client
	got    []*kgo.Record
}

func readTopic(t *testing.T, addr, topic string) *topicReader {
	t.Helper()
	return &topicReader{t: t, client: testkit.Client(t, addr, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))}
}

func (r *topicReader) poll() {
	ctx, cancel := context.WithTimeout(r.t.Context(), 50*time.Millisecond)
	defer cancel()
	r.got = append(r.got, r.client.PollFetches(ctx).Records()...)
}

func eventIDOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == HeaderEventID {
			return string(h.Value)
		}
	}
	return ""
}

// times counts the arrivals of an event.
func (r *topicReader) times(id string) (n int) {
	for _, rec := range r.got {
		if eventIDOf(rec) == id {
			n++
		}
	}
	return n
}

func (r *topicReader) await(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		testkit.Eventually(r.t, patience, func() bool { r.poll(); return r.times(id) > 0 }, "event %s arrives", id)
	}
}

func toTopic(topic, id, key string) Message {
	m := message(id, key)
	m.Target = topic
	return m
}

// A relay that is killed between the confirmation and the mark leaves a row that
// its successor sends again, within seconds, under the same event id.
func TestKilledBetweenPublishAndMark(t *testing.T) {
	t.Parallel()
	addr := testkit.Kafka(t)
	b := setupPostgres(t)
	topic := testkit.Topic(t, addr, "outbox-kill", 1)
	b.add(toTopic(topic, "one", "k"), toTopic(topic, "two", "k"))
	spec, err := json.Marshal(child{Database: b.url, Kafka: addr, Stop: "one"})
	b.must(err)
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "confirmed\n" {
		t.Fatalf("child said %q: %v", line, err)
	}
	relay, _ := b.start(toKafka(t, addr), fast())
	testkit.Eventually(t, patience, func() bool { return relay.Status().Shards >= Shards/2-1 || relay.Status().Connected }, "a second relay stands by")
	if n := b.inState(Pending); n != 2 {
		t.Fatalf("%d rows pending, want both while their owner lives", n)
	}
	b.must(cmd.Process.Signal(syscall.SIGKILL))
	cmd.Wait() //nolint:errcheck // killed
	testkit.Eventually(t, 10*time.Second, func() bool { return b.inState(Sent) == 2 }, "the successor sends both")
	reader := readTopic(t, addr, topic)
	reader.await("two")
	if one, two := reader.times("one"), reader.times("two"); one != 2 || two != 1 {
		t.Errorf("one arrived %d times and two %d times, want 2 and 1", one, two)
	}
}

// Three relays that come, go, and lose their sessions keep the order of every
// key: the first arrivals are in order, and nothing is missing.
func TestOrderUnderChurn(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		addr := testkit.Kafka(t)
		const keys, each = 200, 50
		topic := testkit.Topic(t, addr, "outbox-churn", 4)
		to := toKafka(t, addr)
		added := make(chan struct{})
		go func() {
			defer close(added)
			for n := range each {
				var batch []Message
				for k := range keys {
					batch = append(batch, toTopic(topic, fmt.Sprintf("%d:%d", k, n), strconv.Itoa(k)))
				}
				b.add(batch...)
			}
		}()
		o := fast()
		o.MaxRows = 300
		var stops []func()
		for range 3 {
			_, stop := b.start(to, o)
			stops = append(stops, stop)
		}
		cuts, next := 0, time.Now()
		testkit.Eventually(t, 2*time.Minute, func() bool {
			if now := time.Now(); now.After(next) {
				if cuts++; cuts%2 == 0 {
					b.cutSessions()
				} else {
					i := rand.IntN(3)
					stops[i]()
					_, stops[i] = b.start(to, o)
				}
				next = now.Add(400 * time.Millisecond)
			}
			select {
			case <-added:
				return b.inState(Sent) == keys*each
			default:
				return false
			}
		}, "all rows are sent")
		reader := readTopic(t, addr, topic)
		arrived, copies := map[string]int{}, 0
		testkit.Eventually(t, patience, func() bool {
			reader.got = nil
			reader.poll()
			for _, rec := range reader.got {
				key, no, _ := strings.Cut(eventIDOf(rec), ":")
				n, err := strconv.Atoi(no)
				if err != nil {
					t.Fatalf("event id %q", eventIDOf(rec))
				}
				switch {
				case n == arrived[key]:
					arrived[key]++
				case n > arrived[key]:
					t.Fatalf("key %s: %d arrived before %d", key, n, arrived[key])
				default:
					copies++
				}
			}
			for k := range keys {
				if arrived[strconv.Itoa(k)] < each {
					return false
				}
			}
			return true
		}, "all rows are in the topic")
		t.Logf("%d disturbances, %d copies of %d rows", cuts, copies, keys*each)
	})
}

// The topic refuses one record for its size: it is tried until it is dead, those
// that shared its batch are not to blame, and it goes when the topic takes it.
func TestTooLargeForTheTopic(t *testing.T) {
	t.Parallel()
	addr := testkit.Kafka(t)
	b := setupPostgres(t)
	topic := testkit.Topic(t, addr, "outbox-large", 1)
	admin := kadm.NewClient(testkit.Client(t, addr))
	limit := func(bytes string) {
		t.Helper()
		_, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}}, topic)
		b.must(err)
	}
	limit("2000")
	large := toTopic(topic, "large", "a")
	large.Value = make([]byte, 3000)
	crand.Read(large.Value) //nolint:errcheck // it never fails; no compression makes it small
	batch := []Message{large, toTopic(topic, "after", "a")}
	var others []string
	for i := range 100 {
		id := fmt.Sprint("other-", i)
		others = append(others, id)
		batch = append(batch, toTopic(topic, id, id))
	}
	b.add(batch...)
	b.start(toKafka(t, addr), fast())
	reader := readTopic(t, addr, topic)
	testkit.Eventually(t, patience, func() bool { return b.inState(Dead) == 1 }, "the large one is dead")
	reader.await(others...)
	if n := b.count("SELECT count(*) FROM outbox_message WHERE attempts > 0"); n != 1 {
		t.Errorf("%d rows have failed attempts, want only the large one", n)
	}
	if reader.times("after") > 0 {
		t.Error("the row behind it was sent")
	}
	limit("1000000")
	dead, err := b.box.List(t.Context(), Filter{State: Dead})
	b.must(err)
	b.must(b.box.Retry(t.Context(), dead[0].ID))
	reader.await("large", "after")
}

func TestUnknownTopicIsTheRowsFault(t *testing.T) {
	t.Parallel()
	addr := testkit.Kafka(t)
	b := setupPostgres(t)
	topic := testkit.Topic(t, addr, "outbox-known", 1)
	b.add(toTopic(testkit.Name("outbox-nowhere"), "lost", "a"), toTopic(topic, "fine", "b"))
	b.start(toKafka(t, addr), fast())
	readTopic(t, addr, topic).await("fine")
	testkit.Eventually(t, time.Minute, func() bool { return b.inState(Dead) == 1 }, "the row to nowhere is dead")
	dead, err := b.box.List(t.Context(), Filter{})
	b.must(err)
	if len(dead) != 1 || !strings.Contains(dead[0].LastError, "does not exist") {
		t.Errorf("rows not done: %+v", dead)
	}
}

// A broker that answers with errors of its own counts no attempts; nothing is
// marked before it has confirmed.
func TestFaultyBroker(t *testing.T) {
	t.Parallel()
	fake := testkit.FakeKafka(t)
	addr := fake.ListenAddrs()[0]
	b := setupPostgres(t)
	topic := testkit.Topic(t, addr, "outbox-faulty", 1)
	refuse := make(chan struct{})
	fake.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-refuse:
			return nil, nil, false
		default:
		}
		fake.KeepControl()
		produce := req.(*kmsg.ProduceRequest)
		resp := produce.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range produce.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.NotEnoughReplicas.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	b.add(toTopic(topic, "one", "k"), toTopic(topic, "two", "k"))
	relay, _ := b.start(toKafka(t, addr), fast())
	testkit.Eventually(t, patience, func() bool { return relay.Status().LastError != "" }, "the outage shows")
	if n := b.inState(Pending); n != 2 || relay.Status().Refused != 0 {
		t.Errorf("%d rows pending, status %+v", n, relay.Status())
	}
	close(refuse)
	testkit.Eventually(t, patience, func() bool { return b.inState(Sent) == 2 }, "both are sent")
	reader := readTopic(t, addr, topic)
	reader.await("one", "two")
}

// rabbit is a channel of the test's, with a queue of its own.
func rabbitQueue(t *testing.T, url string) (channel *amqp.Channel, queue string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if channel, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	q, err := channel.QueueDeclare(testkit.Name("outbox"), false, true, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return channel, q.Name
}

func toRabbit(t *testing.T, url string) *Rabbit {
	t.Helper()
	to, err := NewRabbit(RabbitOptions{URLs: []string{url}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(to.Close)
	return to
}

// One row has no queue and one no exchange, which costs the whole channel: both
// are dead after their attempts, and only they.
func TestRabbitRefusesOnlyTheCulprits(t *testing.T) {
	t.Parallel()
	server := testkit.Rabbit(t)
	b := setupPostgres(t)
	channel, queue := rabbitQueue(t, server.URL)
	first := toTopic(queue, "first", "a")
	first.Headers = []consumer.Header{{Name: "content-type", Value: []byte("application/json")}, {Name: "n", Value: nil}}
	nowhere := toTopic("no-such-queue", "nowhere", "b")
	astray := toTopic(queue, "astray", "c")
	astray.Exchange = testkit.Name("no-such-exchange")
	batch := []Message{first, nowhere, astray, toTopic(queue, "behind-nowhere", "b"), toTopic(queue, "behind-astray", "c")}
	for i := range 200 {
		batch = append(batch, toTopic(queue, fmt.Sprint("e-", i), strconv.Itoa(i%20)))
	}
	b.add(batch...)
	b.start(toRabbit(t, server.URL), fast())
	testkit.Eventually(t, patience, func() bool { return b.inState(Dead) == 2 && b.inState(Sent) == 201 }, "the two culprits are dead, the rest is sent")
	dead, err := b.box.List(t.Context(), Filter{State: Dead})
	b.must(err)
	if dead[0].EventID != "nowhere" || dead[1].EventID != "astray" {
		t.Errorf("dead: %s, %s", dead[0].EventID, dead[1].EventID)
	}
	next := map[string]int{}
	got, err := channel.Consume(queue, "", true, true, false, false, nil)
	b.must(err)
	for seen := 0; seen < 201; {
		d := <-got
		if d.MessageId == "first" {
			seen++
			if d.ContentType != "application/json" || d.Headers[HeaderEventID] != "first" || d.DeliveryMode != amqp.Persistent {
				t.Errorf("first: %+v", d)
			}
			continue
		}
		i, err := strconv.Atoi(strings.TrimPrefix(d.MessageId, "e-"))
		if err != nil {
			t.Fatalf("message %q past a dead row", d.MessageId)
		}
		key := strconv.Itoa(i % 20)
		switch want := next[key]*20 + i%20; {
		case i == want:
			next[key]++
			seen++
		case i > want:
			t.Fatalf("key %s: %d before %d", key, i, want)
		}
	}
}

// Connections that are cut all the time cost copies, but neither rows nor order.
func TestRabbitConnectionsCut(t *testing.T) {
	t.Parallel()
	wire := testkit.NewWire(t, testkit.Rabbit(t).URL)
	b := setupPostgres(t)
	channel, queue := rabbitQueue(t, testkit.Rabbit(t).URL)
	var batch []Message
	for i := range 5000 {
		batch = append(batch, toTopic(queue, fmt.Sprint("e-", i), strconv.Itoa(i%50)))
	}
	b.add(batch...)
	relay, _ := b.start(toRabbit(t, wire.URL()), fast())
	for cut := range 3 {
		testkit.Eventually(t, patience, func() bool { return relay.Status().Sent > int64(cut*1000) }, "it sends")
		wire.Cut()
	}
	testkit.Eventually(t, time.Minute, func() bool { return b.inState(Sent) == 5000 }, "all are sent")
	if n := b.count("SELECT max(attempts) FROM outbox_message"); n != 0 {
		t.Errorf("%d attempts counted for cut connections", n)
	}
	next := map[int]int{}
	got, err := channel.Consume(queue, "", true, true, false, false, nil)
	b.must(err)
	for seen := 0; seen < 5000; {
		d := <-got
		i, err := strconv.Atoi(strings.TrimPrefix(d.MessageId, "e-"))
		b.must(err)
		switch want := next[i%50]*50 + i%50; {
		case i == want:
			next[i%50]++
			seen++
		case i > want:
			t.Fatalf("key %d: %d before %d", i%50, i, want)
		}
	}
}
