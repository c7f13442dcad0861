package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// onRabbits runs the story on RabbitMQ 3 and 4.
func onRabbits(t *testing.T, story func(*testing.T, testkit.RabbitServer)) {
	t.Helper()
	for name, server := range map[string]func(testing.TB) testkit.RabbitServer{"rabbitmq 3": testkit.Rabbit, "rabbitmq 4": testkit.Rabbit4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, server(t))
		})
	}
}

// rabbitBench is a broker with a work queue and its dead letters, and a database
// to drain them into.
type rabbitBench struct {
	t       *testing.T
	server  testkit.RabbitServer
	url     string // of the console's database
	pool    *pgxpool.Pool
	cluster *Cluster
	ch      *amqp.Channel // for publishing, in confirm mode
	home    string        // the work queue
	dead    string        // its dead-letter queue
	kind    string        // of the dead-letter queue
	source  DrainSource
	groups  GroupBook
	log     *slog.Logger
}

func newRabbitBench(t *testing.T, server testkit.RabbitServer, kind string) *rabbitBench {
	t.Helper()
	b := &rabbitBench{t: t, server: server, url: pgtest.URL(t), kind: kind, log: testLog()}
	b.pool = pgtest.Open(t, b.url)
	b.home = testkit.Name("order.paid")
	b.dead = b.home + ".dlq"
	b.source = DrainSource{Pattern: b.home + ".*"}
	var err error
	if b.cluster, err = NewRabbitCluster("shop", b.options()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.cluster.Close)
	b.ch = rabbitChannel(t, server.URL)
	if err := b.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	b.declare(b.dead, amqp.Table{amqp.QueueTypeArg: kind})
	b.declare(b.home, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": b.dead})
	return b
}

func rabbitChannel(t testing.TB, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatalf("connect to RabbitMQ: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// declare makes a durable queue that goes with the test.
func (b *rabbitBench) declare(name string, args amqp.Table) {
	b.t.Helper()
	if _, err := b.ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		b.t.Fatalf("declare %s: %v", name, err)
	}
	b.t.Cleanup(func() {
		ch := rabbitChannel(b.t, b.server.URL)
		_, _ = ch.QueueDelete(name, false, false, false)
	})
}

// publish sends a message and waits until the broker has it.
func (b *rabbitBench) publish(exchange, key string, m amqp.Publishing) {
	b.t.Helper()
	if m.DeliveryMode == 0 {
		m.DeliveryMode = amqp.Persistent
	}
	confirm, err := b.ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if err != nil {
		b.t.Fatal(err)
	}
	if ok, err := confirm.WaitContext(b.t.Context()); !ok || err != nil {
		b.t.Fatalf("publish to %s: confirmed %v, %v", key, ok, err)
	}
}

// order is a message of the shop.
func order(event string) amqp.Publishing {
	return amqp.Publishing{MessageId: event, ContentType: "application/json", Timestamp: time.Now().Add(-time.Minute).Truncate(time.Second),
		Body: fmt.Appendf(nil, `{"eventId":%q}`, event), Headers: amqp.Table{"tenant": int64(7)}}
}

// reject gives up everything in the work queue, as a consumer does.
func (b *rabbitBench) reject() (n int) {
	b.t.Helper()
	for {
		d, ok, err := b.ch.Get(b.home, false)
		if err != nil {
			b.t.Fatal(err)
		}
		if !ok {
			return n
		}
		if err := d.Reject(false); err != nil {
			b.t.Fatal(err)
		}
		n++
	}
}

// fail publishes orders to the work queue and has each given up.
func (b *rabbitBench) fail(events ...string) {
	b.t.Helper()
	for _, e := range events {
		b.publish("", b.home, order(e))
	}
	if n := b.reject(); n != len(events) {
		b.t.Fatalf("%d of %d were rejected", n, len(events))
	}
}

// rabbitDrain is a drain that runs until it is stopped.
type rabbitDrain struct {
	*RabbitDrainer
	stop func()
}

// drain starts one; change may alter it before.
func (b *rabbitBench) drain(change ...func(*RabbitDrainer)) *rabbitDrain {
	b.t.Helper()
	d := NewRabbitDrainer(DrainerConfig{Pool: b.pool, Cluster: b.cluster, Sources: []DrainSource{b.source}, Dialects: loadDialects(b.t), Log: b.log, Groups: b.groups})
	for _, c := range change {
		c(d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("drain: %v", err)
		}
	}
	b.t.Cleanup(stop)
	return &rabbitDrain{d, stop}
}

func (b *rabbitBench) letters() int64 {
	return one[int64](b.t, b.pool, "SELECT count(*) FROM dead_letter")
}

func (b *rabbitBench) wantLetters(n int64) {
	b.t.Helper()
	testkit.Eventually(b.t, 60*time.Second, func() bool { return b.letters() >= n }, "%d letters", n)
	if got := b.letters(); got != n {
		b.t.Errorf("%d letters, want %d", got, n)
	}
}

// ready is how many messages of a queue wait.
func (b *rabbitBench) ready(queue string) int {
	b.t.Helper()
	ch := rabbitChannel(b.t, b.server.URL)
	defer ch.Close()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		b.t.Fatalf("look at %s: %v", queue, err)
	}
	return q.Messages
}

// settled waits until nothing is in the queue or unacknowledged, by stopping no one:
// what is not acknowledged would come back to a queue that is purged.
func (b *rabbitBench) wantAllAcked() {
	b.t.Helper()
	testkit.Eventually(b.t, 30*time.Second, func() bool {
		return one[int64](b.t, b.pool, "SELECT count(*) FROM drain_unacked WHERE NOT copied") == 0
	}, "all deliveries are known to be acknowledged")
	if n := b.ready(b.dead); n != 0 {
		b.t.Errorf("%d messages are left in %s", n, b.dead)
	}
}

func loadBody(t *testing.T, pool *pgxpool.Pool, event string) (LetterDetail, Body) {
	t.Helper()
	list, err := NewLetters(pool).List(t.Context(), LetterFilter{EventID: event}, Page{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d letters of %s", len(list.Items), event)
	}
	d, err := NewLetters(pool).Get(t.Context(), list.Items[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	body, err := NewLetters(pool).Body(t.Context(), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	return d, body
}

func (b *rabbitBench) options() RabbitOptions {
	return RabbitOptions{URLs: []string{b.server.URL}, ManagementURL: b.server.Management}
}

// rabbitShop is a bench with a business database, a group that consumes the work
// queue, and the services of a replay.
type rabbitShop struct {
	*rabbitBench
	*replayShop
	group string
}

func newRabbitShop(t *testing.T, server testkit.RabbitServer, change ...func(*ReplayOptions)) *rabbitShop {
	t.Helper()
	b := newRabbitBench(t, server, amqp.QueueTypeQuorum)
	opts := b.options()
	r := &replayShop{t: t, pool: b.pool, url: b.url, shopURL: pgtest.Empty(t), cluster: b.cluster, rabbit: &opts, dialects: loadDialects(t)}
	r.shop = pgtest.Open(t, r.shopURL)
	r.must(r.shop.Exec(t.Context(), `create table mq_consume_record (
		id bigint generated by default as identity primary key, event_id varchar(128) collate "C" not null, consumer_group varchar(128) not null,
		consumed_at timestamptz not null default now(), constraint uk_event_consumer unique (event_id, consumer_group))`))
	s := &rabbitShop{rabbitBench: b, replayShop: r, group: testkit.Name("points")}
	s.know(s.group, b.home, r.evidence())
	r.connect(change...)
	s.source = DrainSource{Pattern: b.dead}
	return s
}

func (s *rabbitShop) db() *pgxpool.Pool { return s.rabbitBench.pool }

// workWhile does steps of a replay until none is left, and something else in between.
func (s *rabbitShop) workWhile(id int64, between ...func()) {
	t := s.rabbitBench.t
	t.Helper()
	testkit.Eventually(t, 60*time.Second, func() bool {
		for _, do := range between {
			do()
		}
		s.stepOnce(s.replays, id)
		return s.get(id).State == Done
	}, "replay %d ends", id)
}

// know makes a group that consumes a queue.
func (s *rabbitShop) know(group, queue string, ev *Evidence) {
	g := Group{Name: group, Topics: []string{queue}, Effect: EffectLocal, OrderSet: true, Evidence: ev}
	s.rabbitBench.groups, s.replayShop.groups = append(s.rabbitBench.groups, g), append(s.replayShop.groups, g)
}

// failed has an event given up by the work queue's consumer, and returns its letter.
func (s *rabbitShop) failed(m amqp.Publishing) uuid.UUID {
	t := s.rabbitBench.t
	t.Helper()
	before := s.letters()
	s.publish("", s.home, m)
	if n := s.reject(); n != 1 {
		t.Fatalf("%d were rejected", n)
	}
	s.wantLetters(before + 1)
	return s.letter(m.MessageId, s.group)
}

// queueBehaviour is what a consumer does with a delivery.
type queueBehaviour func(s *rabbitShop, d amqp.Delivery) error

func givesUp(_ *rabbitShop, d amqp.Delivery) error { return d.Reject(false) }

// consume runs a consumer of the work queue until the test ends.
func (s *rabbitShop) consume(do queueBehaviour) {
	t := s.rabbitBench.t
	t.Helper()
	ch := rabbitChannel(t, s.server.URL)
	deliveries, err := ch.Consume(s.home, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for d := range deliveries {
			if err := do(s, d); err != nil {
				t.Errorf("consumer: %v", err)
			}
		}
	}()
	t.Cleanup(func() { ch.Close(); <-done })
}

// got takes everything out of a queue.
func (b *rabbitBench) got(queue string) (all []amqp.Delivery) {
	b.t.Helper()
	for {
		d, ok, err := b.ch.Get(queue, true)
		if err != nil {
			b.t.Fatal(err)
		}
		if !ok {
			return all
		}
		all = append(all, d)
	}
}
