package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const sixStepsRabbitConfig = `
environment: test
database: {url_file: %[1]q}
clusters: {c: {rabbit: {url_file: %[2]q, management_url_file: %[3]q}}}
connections: {shop: {kind: postgres, url_file: %[4]q}}
sources: [{cluster: c, pattern: %[5]q}]
groups:
  %[7]s: {evidence: {connection: shop, table: mq_consume_record, complete_since: %[8]q}}
consumers:
  - group: %[7]s
    cluster: c
    queue: %[6]q
    connection: shop
    event_id: {header: event-id, json: $.eventId}
    effect:
      sql: |
        insert into user_points (order_id, points) values (:orderId, :points)
        on conflict (order_id) do update set points = user_points.points + excluded.points
    retry: {attempts: 3, initial: 600ms, multiplier: 1, max: 600ms}
`

// The six steps on queues: the group is known by the letter, the replay goes to
// the queue alone, and the record proves what it did.
func TestSixStepsOnRabbit(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(testing.TB) testkit.RabbitServer{"rabbitmq 3": testkit.Rabbit, "rabbitmq 4": testkit.Rabbit4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runSixStepsOnQueues(t, server(t))
		})
	}
}

// queueSteps are the six steps' console on a queue.
type queueSteps struct {
	*sixSteps
	ch    *amqp.Channel
	queue string
}

func setupQueueSteps(t *testing.T, server testkit.RabbitServer) *queueSteps {
	t.Helper()
	s := &queueSteps{sixSteps: &sixSteps{T: t, group: testkit.Name("points")}, ch: rabbitChannel(t, server.URL), queue: testkit.Name("order.paid")}
	if _, err := s.ch.QueueDeclare(s.queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ch := rabbitChannel(t, server.URL)
		for _, name := range []string{s.queue, s.queue + ".dlq"} {
			_, _ = ch.QueueDelete(name, false, false, false)
		}
	})
	shopURL := pgtest.Empty(t)
	s.shop = pgtest.Open(t, shopURL)
	if _, err := s.shop.Exec(t.Context(), business); err != nil {
		t.Fatal(err)
	}
	if err := pgstore.Migrate(t.Context(), s.shop); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	text := fmt.Sprintf(sixStepsRabbitConfig, secretFile(t, pgtest.URL(t)), secretFile(t, server.URL), secretFile(t, server.Management),
		secretFile(t, shopURL), s.queue+".*", s.queue, s.group, since)
	conf, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s.serve(conf)
	return s
}

func (s *queueSteps) deliver(order string) {
	s.Helper()
	body, err := json.Marshal(map[string]any{"eventId": "payment-success-" + order, "orderId": order, "points": 100})
	if err != nil {
		s.Fatal(err)
	}
	err = s.ch.Publish("", s.queue, true, false, amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent, ContentType: "application/json",
		Timestamp: time.Now().Truncate(time.Second), Headers: amqp.Table{"event-id": "payment-success-" + order, "tenant": int64(7)}})
	if err != nil {
		s.Fatal(err)
	}
}

func runSixStepsOnQueues(t *testing.T, server testkit.RabbitServer) {
	s := setupQueueSteps(t, server)
	// 1 and 2
	s.wants("points at first", s.points("10001"), int64(0))
	s.deliver("10001")
	s.deliver("10001")
	testkit.Eventually(s, 30*time.Second, func() bool { return s.consumed("10001") }, "the event is consumed")
	// 3: an error before the points change leaves nothing behind.
	s.breakRules(true)
	attempts := s.number("select last_value from attempt")
	s.deliver("10002") // behind the second delivery of the first event
	testkit.Eventually(s, 30*time.Second, func() bool { return s.number("select last_value from attempt") > attempts }, "the handler fails")
	s.wants("points of two deliveries", s.points("10001"), int64(100))
	s.wants("record after the error", s.consumed("10002"), false)
	s.wants("points after the error", s.points("10002"), int64(0))
	// 4: held and tried again, it works.
	s.breakRules(false)
	testkit.Eventually(s, 30*time.Second, func() bool { return s.consumed("10002") }, "the retry goes through")
	s.wants("points after the retry", s.points("10002"), int64(100))
	// 5: retries exhausted, a letter; its replay takes effect.
	s.breakRules(true)
	s.deliver("10003")
	letter := s.letter("10003")
	s.wants("points of the letter", s.points("10003"), int64(0))
	d, err := s.app.letters.Get(t.Context(), letter)
	if err != nil {
		t.Fatal(err)
	}
	if d.Broker != "rabbitmq" || d.Source != s.queue+".dlq" || d.Group == nil || *d.Group != s.group || d.Origin.Topic == nil || *d.Origin.Topic != s.queue ||
		d.Attempts == nil || *d.Attempts != 4 || d.ErrorClass == nil || d.ErrorMessage == nil || d.FailedAt == nil {
		t.Errorf("letter %+v of dialect %s", d.Letter, d.Dialect)
	}
	s.breakRules(false)
	verdict, outcome := s.replay(letter)
	s.wants("verdict before the first replay", verdict, dlq.Safe)
	s.wants("outcome of the first replay", outcome, dlq.Applied)
	s.wants("points after the first replay", s.points("10003"), int64(100))
	// 6: a second replay is known to do nothing, and does nothing.
	verdict, outcome = s.replay(letter)
	s.wants("verdict before the second replay", verdict, dlq.AlreadyApplied)
	s.wants("outcome of the second replay", outcome, dlq.DuplicateExpected)
	testkit.Eventually(s, 30*time.Second, func() bool {
		q, err := s.ch.QueueDeclarePassive(s.queue, true, false, false, false, nil)
		return err == nil && q.Messages == 0
	}, "the queue is empty")
	s.wants("points after the second replay", s.points("10003"), int64(100))
	s.wants("records in the end", s.number("select count(*) from mq_consume_record"), int64(3))
	status := s.app.drained()
	if len(status) != 1 || status[0].Source != s.queue+".dlq" || status[0].Drained != 1 || status[0].Unacked == nil {
		t.Errorf("status %+v", status)
	}
}
