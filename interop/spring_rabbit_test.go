package interop_test

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/internal/testkit"
	"oncemore/interop"
	"oncemore/migrations/pgtest"
)

const springQueueConfig = `
environment: interop
database: {url_env: CONSOLE_DATABASE_URL}
clusters: {shop-rabbit: {rabbit: {url_env: RABBIT_URL, management_url_env: RABBIT_MANAGEMENT_URL}}}
connections: {shop: {kind: postgres, url_env: SHOP_DATABASE_URL}}
sources: [{cluster: shop-rabbit, pattern: %[1]q, group: %[2]s, event_id: {json: $.eventId}}]
groups:
  %[2]s:
    evidence: {connection: shop, table: mq_consume_record, complete_since: %[3]q}
`

// queueShop is the Spring application on a queue, and a console beside it.
type queueShop struct {
	*shop
	channel *amqp.Channel
	queue   string
}

func setupQueueShop(t *testing.T, server testkit.RabbitServer) *queueShop {
	t.Helper()
	s := &queueShop{shop: &shop{T: t, group: testkit.Name("points-service")}, channel: openChannel(t, server.URL), queue: testkit.Name("orders.paid")}
	for _, queue := range []string{s.queue, s.queue + ".error"} {
		s.makeQueue(queue)
	}
	database := pgtest.Empty(t)
	s.db = pgtest.Open(t, database)
	s.makeTables()
	s.startSpring(interop.Spring{Jar: jar(t), Postgres: database, Group: s.group, Rabbit: server.URL, Queue: s.queue})
	since := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	s.console = startConsole(t, fmt.Sprintf(springQueueConfig, s.queue+".error", s.group, since), "CONSOLE_DATABASE_URL="+pgtest.Empty(t),
		"SHOP_DATABASE_URL="+database, "RABBIT_URL="+server.URL, "RABBIT_MANAGEMENT_URL="+server.Management)
	return s
}

func openChannel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return channel
}

func (s *queueShop) makeQueue(name string) {
	s.T.Helper()
	if _, err := s.channel.QueueDeclare(name, true, false, false, false, nil); err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		if _, err := s.channel.QueueDelete(name, false, false, false); err != nil {
			s.T.Logf("delete queue %s: %v", name, err)
		}
	})
}

// deliver publishes the story's event to the queue, through the default exchange.
func (s *queueShop) deliver(of story) {
	of.Helper()
	err := s.channel.PublishWithContext(of.Context(), "", s.queue, true, false, amqp.Publishing{
		ContentType: "application/json", DeliveryMode: amqp.Persistent, Timestamp: time.Now(), Body: of.value(),
		Headers: amqp.Table{"tenant": "cn-north", "attempt-limit": int32(3)},
	})
	if err != nil {
		of.Fatal(err)
	}
}

// Spring republishes what it gives up, with headers of its own. The console sends
// it back to the queue that failed, and Spring applies it once.
func TestSpringOnRabbitMQ(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(testing.TB) testkit.RabbitServer{"3": testkit.Rabbit, "4": testkit.Rabbit4} {
		t.Run(name, func(t *testing.T) {
			jar(t)
			s := setupQueueShop(t, server(t))
			of := s.story(t)
			of.freeze()
			s.deliver(of)
			l := of.open(s.queue+".error", of.event(), 1)
			if l.Dialect != "spring-amqp-republish" || l.ConsumerGroup == nil || *l.ConsumerGroup != s.group {
				t.Errorf("letter %+v", l)
			}
			if got := of.body(l.ID).Value; string(got) != string(of.value()) {
				t.Errorf("the letter's bytes are %s", got)
			}
			of.wantVerdict(l, s.group, "safe")
			of.wantReplay(l, "failed_again") // still frozen
			again := of.open(s.queue+".error", of.event(), 2)
			of.thaw()
			of.wantReplay(again, "applied")
			of.wantPoints("after the replay", 100)
			of.wantVerdict(again, s.group, "already_applied")
			of.wantReplay(again, "duplicate_expected")
			of.wantPoints("after one more replay", 100)
			if n := of.records(); n != 1 {
				t.Errorf("%d consume records", n)
			}
		})
	}
}
