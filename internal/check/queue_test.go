package check_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/pgstore"
	"oncemore/consumer/rabbit"
	"oncemore/internal/check"
	"oncemore/internal/testkit"
)

// rabbitInput has one consumer, of a queue of RabbitMQ; a ttl of 0 is none.
func rabbitInput(t *testing.T, server testkit.RabbitServer, ttl, letterTTL time.Duration, more amqp.Table) check.Input {
	t.Helper()
	conn, err := amqp.Dial(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue := testkit.Name("order.paid")
	for name, d := range map[string]time.Duration{queue: ttl, queue + ".dlq": letterTTL} {
		args := amqp.Table{}
		if d > 0 {
			args["x-message-ttl"] = d.Milliseconds()
		}
		if name == queue {
			for k, v := range more {
				args[k] = v
			}
		}
		if _, err := channel.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = channel.QueueDelete(name, false, false, false) })
	}
	management, err := rabbit.NewManagement(server.Management, nil, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(management.Close)
	return check.Input{
		Clusters:     []check.Cluster{{Name: "pay", Rabbit: true, Queues: management}},
		Consumers:    []check.Consumer{{Group: "points", Cluster: "pay", Queue: queue, MessageID: true, Connection: "shop", MaxRetry: 17 * time.Second, Retention: check.Computed}},
		ReplayWindow: 30 * day,
	}
}

// What a queue says of itself is believed, what the config declares fills the
// rest, and where nobody knows, nothing may be dropped.
func TestNeedsOfAQueue(t *testing.T) {
	t.Parallel()
	server := testkit.Rabbit4(t)
	const rest = 17*time.Second + (7+30+3)*day
	for name, c := range map[string]struct {
		ttl, letterTTL, horizon time.Duration
		more                    amqp.Table
		blind                   bool // no management API
		want                    time.Duration
		known                   bool
	}{
		"both expire":                     {ttl: 2 * day, letterTTL: 5 * day, want: 7*day + rest, known: true},
		"nothing expires":                 {want: check.Endless, known: true},
		"declared for what does not":      {ttl: 2 * day, horizon: 14 * day, want: 16*day + rest, known: true},
		"expires into another queue":      {ttl: 2 * day, letterTTL: day, more: amqp.Table{"x-dead-letter-exchange": "elsewhere"}},
		"declared for that as well":       {ttl: 2 * day, letterTTL: day, horizon: 9 * day, more: amqp.Table{"x-dead-letter-exchange": "elsewhere"}, want: 10*day + rest, known: true},
		"blind":                           {ttl: 2 * day, letterTTL: day, blind: true},
		"blind, but declared":             {blind: true, horizon: 14 * day, want: 28*day + rest, known: true},
		"a limited length bounds no time": {more: amqp.Table{"x-max-length": int64(10)}, letterTTL: day, want: check.Endless, known: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := rabbitInput(t, server, c.ttl, c.letterTTL, c.more)
			in.Consumers[0].Horizon = c.horizon
			if c.blind {
				in.Clusters[0].Queues = nil
			}
			need := check.Needs(t.Context(), in)[0]
			if need.Known != c.known || c.known && need.For != c.want {
				t.Errorf("needed for %s, known %t: %s", need.For, need.Known, strings.Join(need.Lines, "; "))
			}
		})
	}
}

func TestRabbitClusters(t *testing.T) {
	t.Parallel()
	in, queue := soundInput(t), rabbitInput(t, testkit.Rabbit(t), day, day, nil)
	in.Evidence, in.Sources, in.Clusters, in.Consumers = nil, nil, queue.Clusters, queue.Consumers
	expect(t, run(t, in), "consumer.dead_queue.undrained", "consumer.drops.found")
	in.Clusters[0].Queues = nil
	expect(t, run(t, in), "cluster.queues.unset", "consumer.queue.unknown", "retention.promise.unknown")
	in.Consumers[0].Horizon = day
	expect(t, run(t, in), "cluster.queues.unset", "consumer.queue.unknown")
	gone, err := rabbit.NewManagement("http://127.0.0.1:1", nil, "amqp://127.0.0.1:1/")
	if err != nil {
		t.Fatal(err)
	}
	in.Clusters[0].Queues, in.Consumers[0].Horizon = gone, 0
	expect(t, run(t, in), "cluster.queues.down", "consumer.queue.unknown", "retention.promise.unknown")
}

func TestKeeperOfAConnection(t *testing.T) {
	t.Parallel()
	in := soundInput(t)
	in.Connections[0].Drops, in.Connections[0].Archive = true, true
	expect(t, run(t, in), "retention.keeper.bad")
	if err := pgstore.MigrateArchive(t.Context(), in.Connections[0].WritePool); err != nil {
		t.Fatal(err)
	}
	expect(t, run(t, in))
	inMySQL, db := mysqlInput(t)
	inMySQL.Connections[0].Drops = true
	expect(t, run(t, inMySQL))
	if _, err := db.ExecContext(t.Context(), "drop table mq_consume_record"); err != nil {
		t.Fatal(err)
	}
	expect(t, run(t, inMySQL), "consume_record.table.missing", "evidence.table.missing", "retention.keeper.bad")
}

func TestRedisThatIsDown(t *testing.T) {
	t.Parallel()
	in := soundInput(t)
	in.Redis = []check.Redis{
		{Name: "up", Ask: func(context.Context) error { return nil }},
		{Name: "down", Ask: func(context.Context) error { return errors.New("connection refused") }},
	}
	findings := run(t, in)
	expect(t, findings, "redis.reach.down")
	if f := one(t, findings, "redis.reach.down"); f.Subject != "redis/down" || f.Severity != check.Warning {
		t.Errorf("%+v", f)
	}
}
