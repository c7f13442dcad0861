package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/outbox"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const outboxConfig = `
environment: test
database: {url_file: %[1]q}
clusters:
%[2]s
connections:
  shop: {kind: %[3]s, url_file: %[4]q}
outbox:
  - {connection: shop, cluster: c, attempts: 1}
`

// serveOutbox is a console that relays the outbox of a shop.
func serveOutbox(t *testing.T, cluster, kind, shopURL string) *app {
	t.Helper()
	conf, err := config.Parse("test.yaml", fmt.Appendf(nil, outboxConfig, secretFile(t, pgtest.URL(t)), cluster, kind, secretFile(t, shopURL)))
	if err != nil {
		t.Fatal(err)
	}
	a, err := openApp(t.Context(), conf, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.serve(ctx, roles{Consume: true, Jobs: true}, nil, extras{}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		a.close()
	})
	return a
}

// figures waits for the outbox's own account, as page, API and metrics show it.
func figures(t *testing.T, a *app, pending, dead int64) {
	t.Helper()
	var s outbox.Stats
	testkit.Eventually(t, time.Minute, func() bool {
		var err error
		s, err = a.outboxes.All()[0].Read.Stats(t.Context())
		return err == nil && s.Pending == pending && s.Dead == dead
	}, "%d pending, %d dead", pending, dead)
}

// What a service added in its transaction reaches the topic, in the key's order;
// what it rolled back does not.
func TestServeRelaysAnOutboxInPostgresToKafka(t *testing.T) {
	t.Parallel()
	addr, shopURL := testkit.FakeKafkaAddr(t), pgtest.Empty(t)
	topic := testkit.Topic(t, addr, "order.paid", 3)
	shop := pgtest.Open(t, shopURL)
	if err := outbox.DefaultTable.Migrate(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	a := serveOutbox(t, fmt.Sprintf("  c: {kafka: {brokers: [%q]}}", addr), "postgres", shopURL)
	for i := range 10 {
		tx, err := shop.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := outbox.Add(t.Context(), tx, outbox.Message{EventID: fmt.Sprintf("ev-%d", i), Target: topic, AggregateKey: "account-7", Value: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
		end := tx.Commit
		if i == 5 {
			end = tx.Rollback
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reader := testkit.Client(t, addr, kgo.ConsumeTopics(topic))
	var got []string
	for len(got) < 9 {
		fetches := reader.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if fmt.Sprint(got) != "[0 1 2 3 4 6 7 8 9]" {
		t.Errorf("relayed %v", got)
	}
	figures(t, a, 0, 0)
}

// A message that the broker refuses is dead and holds back its key, and no
// other; tried again from the console, all arrive in order.
func TestServeRelaysAnOutboxInMariaDBToRabbit(t *testing.T) {
	t.Parallel()
	server, shop := testkit.Rabbit(t), newMySQLShop(t)
	cfg, err := mysqlstore.ParseURL(shop.url)
	if err != nil {
		t.Fatal(err)
	}
	db, err := mysqlstore.OpenPool(cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := outbox.DefaultTable.MigrateMySQL(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	queue, late := testkit.Name("order.paid"), testkit.Name("order.late")
	channel := rabbitChannel(t, server.URL)
	declare := func(name string) {
		t.Helper()
		if _, err := channel.QueueDeclare(name, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = channel.QueueDelete(name, false, false, false) })
	}
	declare(queue)
	a := serveOutbox(t, fmt.Sprintf("  c: {rabbit: {url_file: %q}}", secretFile(t, server.URL)), "mysql", shop.url)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = outbox.AddSQL(t.Context(), tx, outbox.MySQL,
		outbox.Message{EventID: "ev-refused", Target: late, AggregateKey: "account-7"},
		outbox.Message{EventID: "ev-behind", Target: late, AggregateKey: "account-7"},
		outbox.Message{EventID: "ev-free", Target: queue, AggregateKey: "account-8"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	next := func(queue string) (d amqp.Delivery) {
		t.Helper()
		testkit.Eventually(t, time.Minute, func() bool {
			var ok bool
			d, ok, err = channel.Get(queue, true)
			return ok && err == nil
		}, "a message in %s", queue)
		return d
	}
	if got := next(queue).MessageId; got != "ev-free" {
		t.Errorf("relayed %s", got)
	}
	figures(t, a, 1, 1)
	box := a.outboxes.All()[0]
	dead, err := box.Read.List(t.Context(), outbox.Filter{State: outbox.Dead})
	if err != nil || len(dead) != 1 || dead[0].EventID != "ev-refused" || dead[0].LastError == "" {
		t.Fatalf("dead: %+v, %v", dead, err)
	}
	declare(late)
	actor := access.Actor{User: "ada", Role: access.Operator, Via: "test", Reason: "the queue is there now"}
	if _, err := a.outboxes.Retry(t.Context(), actor, box.Name(), dead[0].ID); err != nil {
		t.Fatal(err)
	}
	if one, two := next(late).MessageId, next(late).MessageId; one != "ev-refused" || two != "ev-behind" {
		t.Errorf("then %s and %s", one, two)
	}
	figures(t, a, 0, 0)
	if err := box.Read.Retry(t.Context(), dead[0].ID); err == nil {
		t.Error("the reader's sessions write")
	}
}
