package check_test

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/internal/check"
	"oncemore/internal/testkit"
)

// Sources of RabbitMQ: streams, limits that copying runs into and queues that drop
// are found, and nothing is said of what is in order.
func TestQueuesOfASource(t *testing.T) {
	t.Parallel()
	server := testkit.Rabbit4(t)
	in := rabbitInput(t, server, 0, 0, nil)
	home := in.Consumers[0].Queue
	in.Consumers[0].Horizon = day
	ch := rabbitChannel(t, server.URL)
	for name, args := range map[string]amqp.Table{
		home + ".short":  {"x-max-length": int64(10)},
		home + ".stream": {amqp.QueueTypeArg: amqp.QueueTypeStream},
		home + ".limit":  {amqp.QueueTypeArg: amqp.QueueTypeQuorum},
	} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = rabbitChannel(t, server.URL).QueueDelete(name, false, false, false) })
	}
	in.Consumers = nil
	source := func(copies bool, names ...string) {
		in.Sources = []check.Source{{Cluster: "pay", Pattern: "…", Copy: copies, Match: func(name string) bool {
			for _, n := range names {
				if name == home+n {
					return true
				}
			}
			return false
		}}}
	}
	of := func() (found []string) {
		for _, f := range run(t, in) {
			if f.Area == "source" && f.Severity != check.Passed {
				found = append(found, strings.TrimSuffix(strings.TrimPrefix(f.Sentence.Key, "check."), ".sentence"))
			}
		}
		return found
	}
	for _, c := range []struct {
		copies bool
		names  []string
		want   string
	}{
		{false, []string{".dlq"}, ""},
		{false, []string{".nothing"}, "source.queue.none"},
		{false, []string{".dlq", ".short"}, "source.drops.found"},
		{false, []string{".stream"}, "source.stream.found"},
		{false, []string{".limit"}, "source.drops.found"}, // dropped when it is given back too often
		{true, []string{".dlq"}, ""},
		{true, []string{".limit"}, "source.drops.found source.limit.found"},
	} {
		source(c.copies, c.names...)
		if got := strings.Join(of(), " "); got != c.want {
			t.Errorf("%v, copied %v: %q, want %q", c.names, c.copies, got, c.want)
		}
	}
	in.Clusters[0].Queues = nil
	if got := strings.Join(of(), " "); got != "source.queue.unknown" {
		t.Errorf("without the management API: %q", got)
	}
}

func TestTheQueueOfAConsumer(t *testing.T) {
	t.Parallel()
	in := rabbitInput(t, testkit.Rabbit(t), 0, 0, amqp.Table{"x-max-length": int64(10)})
	queue := in.Consumers[0].Queue
	findings := run(t, in)
	one(t, findings, "consumer.queue.ok")
	one(t, findings, "consumer.dead_queue.undrained")
	if f := one(t, findings, "consumer.drops.found"); len(f.Evidence) != 1 || !strings.HasPrefix(f.Evidence[0], queue+": ") {
		t.Errorf("evidence %v", f.Evidence)
	}
	in.Sources = []check.Source{{Cluster: "pay", Pattern: "*.dlq", Match: func(name string) bool { return name == queue+".dlq" }}}
	one(t, run(t, in), "consumer.dead_queue.ok")
	in.Consumers[0].Queue = testkit.Name("gone")
	one(t, run(t, in), "consumer.queue.missing")
}

func rabbitChannel(t *testing.T, url string) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
