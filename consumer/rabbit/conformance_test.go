package rabbit

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
	"oncemore/consumer/brokertest"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// onBoth runs a test on RabbitMQ 3 with classic queues and on RabbitMQ 4 with
// quorum queues.
func onBoth(t *testing.T, run func(t *testing.T, b *broker)) {
	t.Run("rabbitmq 3 classic", func(t *testing.T) {
		t.Parallel()
		run(t, newBroker(t, testkit.Rabbit(t), amqp.QueueTypeClassic))
	})
	t.Run("rabbitmq 4 quorum", func(t *testing.T) {
		t.Parallel()
		run(t, newBroker(t, testkit.Rabbit4(t), amqp.QueueTypeQuorum))
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) { brokertest.Run(t, b, pgtest.Empty) })
}

// Quorum queues on 3 behave as neither of the two above in what they count.
func TestConformanceQuorumOn3(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, newBroker(t, testkit.Rabbit(t), amqp.QueueTypeQuorum), pgtest.Empty)
}

// broker is RabbitMQ as brokertest needs it. Each queue has a wire of its own,
// which knows what was acknowledged.
type broker struct {
	testkit.RabbitServer
	queueType string

	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	wire    *testkit.Wire
	publish *amqp.Channel
	letters []brokertest.Letter // taken from the dead-letter queue so far
}

func newBroker(_ *testing.T, server testkit.RabbitServer, queueType string) *broker {
	return &broker{RabbitServer: server, queueType: queueType, queues: map[string]*queue{}}
}

// channel is a channel straight to the broker, until the test ends.
func (b *broker) channel(t *testing.T) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatalf("connect to RabbitMQ: %v", err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatalf("open a channel: %v", err)
	}
	return ch
}

// declare makes a queue that is deleted when the test ends.
func (b *broker) declare(t *testing.T, name string, args amqp.Table) {
	t.Helper()
	if args == nil {
		args = amqp.Table{}
	}
	args[amqp.QueueTypeArg] = b.queueType
	if _, err := b.channel(t).QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatalf("declare %s: %v", name, err)
	}
	b.deleteLater(t, name)
}

func (b *broker) deleteLater(t *testing.T, name string) {
	t.Cleanup(func() {
		conn, err := amqp.Dial(b.URL)
		if err != nil {
			t.Logf("delete %s: %v", name, err)
			return
		}
		defer conn.Close()
		if ch, err := conn.Channel(); err == nil {
			_, _ = ch.QueueDelete(name, false, false, false)
		}
	})
}

func (b *broker) Features() brokertest.Features { return brokertest.Features{} }

func (b *broker) Topic(t *testing.T, _ int) string {
	t.Helper()
	name := testkit.Name("order.paid")
	b.declare(t, name, nil)
	b.declare(t, name+".dlq", nil)
	b.add(t, name)
	return name
}

func (b *broker) add(t *testing.T, name string) *queue {
	t.Helper()
	ch := b.channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	q := &queue{wire: testkit.NewWire(t, b.URL), publish: ch}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queues[name] = q
	return q
}

func (b *broker) queue(name string) *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queues[name]
}

func (b *broker) Group(*testing.T) string { return testkit.Name("points") }

func (b *broker) Publish(t *testing.T, topic string, messages ...brokertest.Message) {
	t.Helper()
	var confirms []*amqp.DeferredConfirmation
	for _, m := range messages {
		p := amqp.Publishing{Body: m.Value, Headers: amqp.Table{}, DeliveryMode: amqp.Persistent}
		for _, h := range m.Headers {
			p.Headers[h.Name] = any(h.Value)
			if h.Value == nil {
				p.Headers[h.Name] = nil
			}
		}
		confirms = append(confirms, b.begin(t, topic, p))
	}
	for _, confirm := range confirms {
		confirmed(t, topic, confirm)
	}
}

// send publishes to a queue and waits for the confirmation.
func (b *broker) send(t *testing.T, name string, p amqp.Publishing) {
	t.Helper()
	confirmed(t, name, b.begin(t, name, p))
}

func (b *broker) begin(t *testing.T, name string, p amqp.Publishing) *amqp.DeferredConfirmation {
	t.Helper()
	confirm, err := b.queue(name).publish.PublishWithDeferredConfirm("", name, true, false, p)
	if err != nil {
		t.Fatalf("publish to %s: %v", name, err)
	}
	return confirm
}

func confirmed(t *testing.T, name string, confirm *amqp.DeferredConfirmation) {
	t.Helper()
	if ok, err := confirm.WaitContext(t.Context()); err != nil || !ok {
		t.Fatalf("publish to %s: confirmed %t, %v", name, ok, err)
	}
}

func (b *broker) Acked(_ *testing.T, _, topic string) int { return b.queue(topic).wire.Acked() }

func (b *broker) Letters(t *testing.T, topic string) []brokertest.Letter {
	t.Helper()
	q := b.queue(topic)
	for _, d := range b.takeAll(t, topic+".dlq") {
		q.letters = append(q.letters, readLetter(d))
	}
	return q.letters
}

// takeAll empties a queue.
func (b *broker) takeAll(t *testing.T, name string) []amqp.Delivery {
	t.Helper()
	ch := b.channel(t)
	var all []amqp.Delivery
	for {
		d, ok, err := ch.Get(name, true)
		if err != nil {
			t.Fatalf("read %s: %v", name, err)
		}
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

// readLetter reads a letter's headers as another tool would.
func readLetter(d amqp.Delivery) brokertest.Letter {
	l := brokertest.Letter{Message: brokertest.Message{Value: d.Body}}
	text := func(name string) string { s, _ := d.Headers[name].(string); return s }
	l.Topic, l.Group = text("x-original-queue"), text("x-original-consumerGroup")
	l.Class, l.Text, l.Trace = text("x-exception-class"), text("x-exception-message"), text("x-exception-stacktrace")
	tries, _ := d.Headers["x-exception-attempts"].(int32)
	l.Attempt = int(tries)
	l.EventID = text("event-id") // the letter's own is a text, those of our messages are bytes
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		ours := strings.HasPrefix(name, "x-exception-") || strings.HasPrefix(name, "x-original-") || isCounter(name)
		if ours || name == "event-id" && l.EventID != "" {
			continue
		}
		value, _ := d.Headers[name].([]byte)
		l.Headers = append(l.Headers, consumer.Header{Name: name, Value: value})
	}
	return l
}

func (b *broker) New(t *testing.T, topic string, cfg consumer.Config[pgstore.Tx]) consumer.Runner {
	t.Helper()
	c, err := New(cfg, b.options(topic, cfg.BatchSize))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (b *broker) options(name string, prefetch int) Options {
	return Options{Queue: name, URLs: []string{b.queue(name).wire.URL()}, Prefetch: prefetch, FinishTimeout: 2 * time.Second}
}
