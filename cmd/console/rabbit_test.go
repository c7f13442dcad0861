package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/pgstore"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const rabbitConfig = `
environment: test
database: {url_file: %[1]q}
clusters: {pay: {rabbit: {url_file: %[2]q, management_url_file: %[3]q}}}
connections: {shop: {kind: postgres, url_file: %[4]q}}
consumers:
  - group: %[5]s
    cluster: pay
    queue: %[6]q
    connection: shop
    event_id: {message_id: true}
    effect: {sql: "insert into user_points (order_id, points) values (:orderId, :points)"}
    concurrency: 2
    retry: {mode: %[7]s, attempts: 1, initial: 50ms, max: 50ms}
`

// A config-file consumer of a queue: an event delivered twice takes effect once,
// one that fails becomes a letter, and its queues are made by the console.
func TestConsumerOfAQueue(t *testing.T) {
	t.Parallel()
	servers := map[string]func(testing.TB) testkit.RabbitServer{"rabbitmq 3": testkit.Rabbit, "rabbitmq 4": testkit.Rabbit4}
	for name, server := range servers {
		for _, mode := range []string{"blocking", "non_blocking"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				consumerOfAQueue(t, server(t), mode)
			})
		}
	}
}

func consumerOfAQueue(t *testing.T, server testkit.RabbitServer, mode string) {
	queue, group := testkit.Name("order.paid"), testkit.Name("points")
	ch := rabbitChannel(t, server.URL)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{queue, queue + ".dlq", queue + ".retry.50ms"} {
			_, _ = ch.QueueDelete(name, false, false, false)
		}
	})
	shopURL := pgtest.Empty(t)
	shop := pgtest.Open(t, shopURL)
	if err := pgstore.Migrate(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Exec(t.Context(), `create table user_points (order_id text primary key, points int not null check (points > 0))`); err != nil {
		t.Fatal(err)
	}
	conf, err := config.Parse("test.yaml", fmt.Appendf(nil, rabbitConfig, secretFile(t, pgtest.URL(t)), secretFile(t, server.URL),
		secretFile(t, server.Management), secretFile(t, shopURL), group, queue, mode))
	if err != nil {
		t.Fatal(err)
	}
	serveQuietly(t, conf)
	for _, m := range []struct {
		id     string
		points int
	}{{"e1", 100}, {"e1", 100}, {"e2", -1}} {
		body := fmt.Appendf(nil, `{"orderId":%q,"points":%d}`, m.id, m.points)
		if err := ch.Publish("", queue, true, false, amqp.Publishing{MessageId: m.id, Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	var letter amqp.Delivery
	testkit.Eventually(t, 30*time.Second, func() bool {
		probe := rabbitChannel(t, server.URL) // a queue that is not there yet costs the channel
		got, ok, err := probe.Get(queue+".dlq", true)
		letter = got
		return ok && err == nil
	}, "the letter")
	if letter.MessageId != "e2" || letter.Headers["x-original-queue"] != queue || letter.Headers["x-exception-attempts"] != int32(2) {
		t.Errorf("letter of %s: %v", letter.MessageId, letter.Headers)
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		at, err := pgstore.Find(t.Context(), shop, group, "e1")
		return at != nil && err == nil
	}, "the record")
	testkit.Eventually(t, 30*time.Second, func() bool {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil && q.Messages == 0
	}, "the queue is empty")
	var rows int
	if err := shop.QueryRow(t.Context(), `select count(*) from user_points`).Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d effects, %v", rows, err)
	}
}

func rabbitChannel(t *testing.T, url string) *amqp.Channel {
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

// serveQuietly runs the consumers of a config until the test ends.
func serveQuietly(t *testing.T, conf *config.Config) {
	t.Helper()
	a, err := openApp(t.Context(), conf, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.serve(ctx, roles{Consume: true}, nil, extras{}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		a.close()
	})
}
