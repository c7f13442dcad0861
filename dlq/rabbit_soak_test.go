package dlq

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/internal/testkit"
)

// The broker goes away and comes back while a queue is drained: nothing is lost,
// and what was stored before is not stored again.
func TestSoakDrainOverABrokerRestart(t *testing.T) {
	testkit.Soak(t)
	server := testkit.Rabbit(t)
	b := newRabbitBench(t, server, amqp.QueueTypeQuorum)
	var batches atomic.Int32
	d := b.drain(func(d *RabbitDrainer) {
		d.reached = func(m moment) {
			if m == momentStored && batches.Add(1) == 3 {
				server.Ctl(t, "stop_app") // stored, and not acknowledged
				server.Ctl(t, "start_app")
			}
		}
	})
	const n = 5000
	for i := range n {
		if err := b.ch.Publish("", b.dead, true, false, amqp.Publishing{MessageId: fmt.Sprint("e-", i), DeliveryMode: amqp.Persistent, Body: []byte("{}")}); err != nil {
			break // the rest follows when the broker is back
		}
	}
	testkit.Eventually(t, 2*time.Minute, func() bool { return batches.Load() > 3 }, "the drain goes on")
	b.ch = rabbitChannel(t, server.URL)
	if err := b.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	for i := range n { // what the broker had not taken before is published, the rest once more
		b.publish("", b.dead, amqp.Publishing{MessageId: fmt.Sprint("e-", i), Body: []byte("{}")})
	}
	b.wantAllAcked()
	if got := one[int64](t, b.pool, "SELECT count(DISTINCT event_id) FROM dead_letter"); got != n || b.letters() != n {
		t.Errorf("%d events in %d letters, want %d", got, b.letters(), n)
	}
	d.stop()
}

// The database is away for longer than the broker waits for acknowledgements: it
// closes the channel and delivers again, and each letter is there once.
func TestSoakDrainOverAConsumerTimeout(t *testing.T) {
	testkit.Soak(t)
	server := testkit.Rabbit(t)
	server.Ctl(t, "eval", "application:set_env(rabbit, channel_tick_interval, 1000), application:set_env(rabbit, consumer_timeout, 3000).")
	t.Cleanup(func() {
		server.Ctl(t, "eval", "application:set_env(rabbit, channel_tick_interval, 60000), application:set_env(rabbit, consumer_timeout, 1800000).")
	})
	b := newRabbitBench(t, server, amqp.QueueTypeClassic)
	var held atomic.Int32
	b.drain(func(d *RabbitDrainer) {
		d.intake.pause = func() {
			if held.Add(1) == 1 {
				testkit.Eventually(t, time.Minute, func() bool { return b.ready(b.dead) > 0 }, "the broker takes the deliveries back")
			}
		}
	})
	b.fail("e-1", "e-2", "e-3")
	b.wantLetters(3)
	b.wantAllAcked()
	if n := one[int64](t, b.pool, "SELECT count(*) FROM letter_occurrence"); n != 0 {
		t.Errorf("%d occurrences", n)
	}
}

// 50,000 letters of a queue are all listed page by page, counted and planned.
func TestSoakFiftyThousandLettersOfAQueue(t *testing.T) {
	testkit.Soak(t)
	s := newRabbitShop(t, testkit.Rabbit(t), func(o *ReplayOptions) { o.ApprovalSize, o.SettleAfter = 100_000, 10*time.Minute })
	const n = 50_000
	var last *amqp.DeferredConfirmation
	for i := range n {
		m := order(fmt.Sprint("e-", i))
		m.DeliveryMode = amqp.Persistent
		m.Headers = amqp.Table{"x-first-death-queue": s.home, "x-first-death-exchange": ""}
		var err error
		if last, err = s.ch.PublishWithDeferredConfirm("", s.dead, true, false, m); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := last.WaitContext(t.Context()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	s.rabbitBench.drain()
	testkit.Eventually(t, 3*time.Minute, func() bool { return s.letters() == n }, "%d letters", n)
	seen := map[uuid.UUID]bool{}
	for page := (Page{Limit: 200}); ; {
		list, err := NewLetters(s.db()).List(t.Context(), LetterFilter{State: Open}, page)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list.Items {
			seen[l.ID] = true
		}
		if list.Next == "" {
			break
		}
		page.Cursor = list.Next
	}
	if len(seen) != n {
		t.Errorf("%d letters were listed", len(seen))
	}
	if _, err := Fold(t.Context(), s.db()); err != nil {
		t.Fatal(err)
	}
	if got := one[int64](t, s.db(), "SELECT open_n FROM fault"); got != n {
		t.Errorf("the fault counts %d", got)
	}
	p := s.plan(ada, PlanRequest{Selection: Selection{Filter: &LetterFilter{State: Open}}, Target: ToGroup})
	testkit.Eventually(t, 3*time.Minute, func() bool {
		s.stepOnce(s.replays, p.ID)
		return s.get(p.ID).State == Planned
	}, "the plan is made")
	s.start(ada, p.ID)
	testkit.Eventually(t, 10*time.Minute, func() bool {
		s.stepOnce(s.replays, p.ID)
		return s.get(p.ID).Sent == n
	}, "everything is sent")
	if got := s.ready(s.home); got != n {
		t.Errorf("%d messages are in the queue", got)
	}
	s.must(s.shop.Exec(t.Context(), `insert into mq_consume_record (event_id, consumer_group) select 'e-' || i, $1 from generate_series(0, $2::int - 1) i`, s.group, n))
	s.workWhile(p.ID)
	if r := s.get(p.ID); r.Total != n || outcomes(r) != fmt.Sprint("applied ", n) {
		t.Errorf("%d items: %s", r.Total, outcomes(r))
	}
}
