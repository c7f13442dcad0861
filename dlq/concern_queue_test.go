package dlq

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/internal/testkit"
)

func (b *rabbitBench) concerns(api bool) *Concerns {
	b.t.Helper()
	opts := b.options()
	if !api {
		opts.ManagementURL = ""
	}
	cluster, err := NewRabbitCluster("shop", opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(cluster.Close)
	c := NewConcerns(b.pool, NewOverview(b.pool, NewTopology(clusters(cluster), time.Now), time.Now), time.Now)
	if err := c.WatchQueues("shop", []DrainSource{b.source}); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// What waits in a drained queue is the drain's lag, with the management API or
// without it.
func TestQueuesThatAreBehind(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		b := newRabbitBench(t, server, amqp.QueueTypeClassic)
		b.source = DrainSource{Pattern: b.dead}
		b.fail("e-1", "e-2", "e-3")
		for name, api := range map[string]bool{"management API": true, "passive declare": false} {
			c := b.concerns(api)
			var got DrainState
			testkit.Eventually(t, 30*time.Second, func() bool {
				all, err := c.Drains(t.Context(), true)
				if err != nil || len(all) != 1 {
					t.Fatalf("%s: %+v, %v", name, all, err)
				}
				got = all[0]
				return got.Waiting == 3
			}, "%s says that three messages wait", name)
			if got.Source != b.dead || got.Stored != nil || got.Missing() != 0 {
				t.Errorf("%s: %+v", name, got)
			}
		}
		gone := b.concerns(false)
		if err := gone.WatchQueues("shop", []DrainSource{{Pattern: b.home + ".never"}}); err != nil {
			t.Fatal(err)
		}
		if all, err := gone.Drains(t.Context(), false); err == nil || len(all) != 0 {
			t.Errorf("a queue that is not there holds %+v", all)
		}
	})
}

// A queue that is copied keeps what is stored: that is no lag, and it is compared
// with the letters.
func TestACopiedQueueIsCompared(t *testing.T) {
	t.Parallel()
	b := newRabbitBench(t, testkit.Rabbit(t), amqp.QueueTypeClassic)
	b.source = DrainSource{Pattern: b.dead, Copy: true}
	b.fail("e-1", "e-2", "e-3")
	d := NewRabbitDrainer(DrainerConfig{Pool: b.pool, Cluster: b.cluster, Sources: []DrainSource{b.source}, Dialects: loadDialects(t), Log: b.log})
	t.Cleanup(d.hangUp)
	if err := (&queueDrain{d: d, name: b.dead, source: b.source, typed: true, log: b.log}).copyPass(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return b.ready(b.dead) == 3 }, "everything is given back")
	b.fail("e-4")
	c := b.concerns(false)
	look := func() DrainState {
		t.Helper()
		all, err := c.Drains(t.Context(), true)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	if d := look(); d.Waiting != 1 || d.Retained != 3 || d.Stored == nil || *d.Stored != 3 || d.Missing() != 0 {
		t.Errorf("three copies of four messages: %+v", d)
	}
	if _, err := b.pool.Exec(t.Context(), "DELETE FROM dead_letter WHERE event_id = 'e-2'"); err != nil {
		t.Fatal(err)
	}
	if d := look(); d.Missing() != 1 {
		t.Errorf("with a letter lost: %+v", d)
	}
}

// Whoever else consumes a drained queue takes letters away.
func TestSomebodyElseConsumesADrainedQueue(t *testing.T) {
	t.Parallel()
	onRabbits(t, func(t *testing.T, server testkit.RabbitServer) {
		b := newRabbitBench(t, server, amqp.QueueTypeQuorum)
		b.source = DrainSource{Pattern: b.dead}
		b.drain()
		b.fail("e-1")
		b.wantLetters(1) // the drain consumes
		c := b.concerns(true)
		if all, err := c.Rivals(t.Context()); err != nil || len(all) != 0 {
			t.Fatalf("beside the drain alone: %+v, %v", all, err)
		}
		if _, err := rabbitChannel(t, server.URL).Consume(b.dead, "a script", false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, 20*time.Second, func() bool {
			all, err := c.Rivals(t.Context())
			return err == nil && len(all) == 1 && all[0] == Rival{"shop", b.dead, 1}
		}, "the script is seen")
		if all, err := b.concerns(false).Rivals(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("without the API: %+v, %v", all, err)
		}
	})
}
