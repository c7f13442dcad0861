package dialect_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/rabbit"
	"oncemore/dlq/dialect"
	"oncemore/internal/testkit"
)

// What our own consumer gives up on, on a real broker: the letter is read with
// all that it says, and a replay publishes the message as it was.
func TestOwnLettersOfRabbit(t *testing.T) {
	t.Parallel()
	server := testkit.Rabbit(t)
	conn, err := amqp.Dial(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue, group := testkit.Name("own-letters"), testkit.Name("points")
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = ch.QueueDelete(queue, false, false, false)
		_, _ = ch.QueueDelete(queue+".dlq", false, false, false)
	})
	sent := amqp.Publishing{Body: []byte(`{"eventId":"payment-success-10001"}`), ContentType: "application/json", DeliveryMode: amqp.Persistent, Priority: 3, MessageId: "m-1",
		Headers: amqp.Table{"tenant": int32(7), "blob": []byte{0, 255}, "deep": amqp.Table{"list": []any{int64(1), nil}}}, Expiration: "600000"}
	if err := ch.Publish("", queue, false, false, sent); err != nil {
		t.Fatal(err)
	}
	runFailingRabbit(t, server.URL, queue, group)
	letter := take(t, server.URL, queue+".dlq")
	set := builtin(t)
	r := set.Read(dialect.FromAMQP(queue+".dlq", letter), dialect.Configured{})
	if r.Dialect != "oncemore-rabbitmq" {
		t.Fatalf("dialect %s", r.Dialect)
	}
	equal(t, "queue", r.OriginQueue, queue)
	equal(t, "key", r.OriginRoutingKey, queue)
	equal(t, "group", r.Group, group)
	equal(t, "attempts", r.Attempts, 1)
	equal(t, "class", r.ExceptionClass, "*errors.errorString")
	equal(t, "message", r.ExceptionMessage, "shop is closed")
	equal(t, "event id", r.EventID, "payment-success-10001")
	if r.FailedAt == nil || time.Since(*r.FailedAt) > time.Hour || r.Stack() == nil {
		t.Errorf("failed at %v, stack there %v", r.FailedAt, r.Stack() != nil)
	}
	out, err := set.Resend(r.Dialect, letter, dialect.ResendOptions{KeepExpiration: true})
	if err != nil || !reflect.DeepEqual(out.Publishing, sent) {
		t.Errorf("%v\nsends %+v\nwas   %+v", err, out.Publishing, sent)
	}
}

func runFailingRabbit(t *testing.T, url, queue, group string) {
	t.Helper()
	c, err := rabbit.New(consumer.Config[struct{}]{
		Group: group, Store: consumertest.NewMemory(struct{}{}), EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: func(context.Context, struct{}, consumer.Event) error {
			return consumer.Permanent(errors.New("shop is closed"))
		},
	}, rabbit.Options{Queue: queue, URLs: []string{url}, DeclareQueues: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// take waits for a letter. Asking for a queue that is not declared yet closes the
// channel, so each question has a connection of its own.
func take(t *testing.T, url, queue string) (letter amqp.Delivery) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() bool {
		conn, err := amqp.Dial(url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		d, ok, err := ch.Get(queue, true)
		letter = d
		return err == nil && ok
	}, "no letter in %s", queue)
	return letter
}
