package rabbit

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
)

// retrying is a shop with retry queues that are deleted in the end.
func retrying(s *shop, cfg consumer.Config[pgstore.Tx]) Options {
	opts := s.opts()
	opts.RetryQueues = true
	for _, pause := range retryPauses(cfg.Retry.Pauses()) {
		s.deleteLater(s.T, RetryQueue(s.name, pause))
	}
	return opts
}

// A failing message waits in its retry queues, and nobody behind it waits.
func TestRetryQueuesGiveUpOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		const n = 5
		s := openShop(t, b)
		var mu sync.Mutex
		var order []string
		cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if ev.ID == paymentID(1) && ev.Attempt < 3 || ev.ID == paymentID(2) {
				return errBoom
			}
			order = append(order, ev.ID)
			return addPoints(ctx, tx, ev)
		})
		cfg.BatchSize = 1
		cfg.Retry = consumer.RetryPolicy{Attempts: 3, Initial: 200 * time.Millisecond, Max: 400 * time.Millisecond}
		s.pay(n)
		m := s.run(cfg, retrying(s, cfg))
		s.settled(n + 2 + 3) // each time it goes into a retry queue it is acknowledged
		mu.Lock()
		if want := []string{paymentID(3), paymentID(4), paymentID(5), paymentID(1)}; !slices.Equal(order, want) {
			t.Errorf("took effect in the order %v, want %v", order, want)
		}
		mu.Unlock()
		letters := s.takeAll(t, s.dead)
		if len(letters) != 1 || letters[0].Headers[attempts] != int32(4) || letters[0].Headers[headerEventID] != paymentID(2) || letters[0].Headers[originAdded] != headerEventID {
			t.Fatalf("letters %+v", letters)
		}
		for name := range letters[0].Headers {
			if isDeath(name) || strings.HasPrefix(name, retryPrefix) {
				t.Errorf("the letter carries %s of its retries", name)
			}
		}
		if st := m.Status(); st.Retried != 5 || st.Consumed != n-1 || st.DeadLettered != 1 {
			t.Errorf("retried %d, consumed %d, letters %d", st.Retried, st.Consumed, st.DeadLettered)
		}
	})
}

// Through any number of retries a message stays what it was, also in what the
// broker would act on or overwrite: routing, expiration, its own death history.
func TestRetryKeepsTheMessage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		copies := testkit.Name("copies")
		s.declare(t, copies, nil)
		sent := rich()
		sent.Headers["CC"] = []any{copies}
		sent.Headers["oncemore-item"] = "7"
		sent.Expiration = "3600000"
		s.send(t, s.name, sent)
		s.await("the copy that the producer asked for", func() bool { return s.ready(copies) == 1 })
		seen := make(chan consumer.Event, 10)
		cfg := s.config(func(_ context.Context, _ pgstore.Tx, ev consumer.Event) error { seen <- ev; return errBoom })
		cfg.EventID = consumer.EventIDSource{Header: "event-id"}
		cfg.Retry = consumer.RetryPolicy{Attempts: 2, Initial: 50 * time.Millisecond}
		s.run(cfg, retrying(s, cfg))
		s.settled(3)
		for attempt := 1; attempt <= 3; attempt++ {
			ev := <-seen
			d, _ := Message(ev)
			if ev.Attempt != attempt || d.Exchange != "" || d.RoutingKey != s.name || d.Expiration != "3600000" {
				t.Errorf("attempt %d: says %d, from %q by %q, expiration %q", attempt, ev.Attempt, d.Exchange, d.RoutingKey, d.Expiration)
			}
			d.UserId = ""
			sameMessage(t, d, sent)
		}
		if got := s.ready(copies); got != 1 {
			t.Errorf("%d copies after two retries, want 1", got)
		}
	})
}

func TestRetryKeepsAnEarlierDeathHistory(t *testing.T) {
	t.Parallel()
	own := []any{amqp.Table{"queue": "elsewhere", "count": int64(2)}}
	d := amqp.Delivery{Exchange: "orders", RoutingKey: "paid", Headers: amqp.Table{"x-death": own, "x-first-death-queue": "elsewhere", "x-delivery-count": int64(1), "a": nil}}
	for attempt := 2; attempt < 5; attempt++ {
		w := wrapped(d, attempt)
		if w.Headers["x-death"] != nil {
			t.Error("the broker would go on counting an earlier history")
		}
		w.Headers["x-death"] = []any{amqp.Table{"queue": "orders.retry.1s"}} // as the broker adds it
		w.Headers["x-last-death-reason"] = "expired"
		back, n := unwrapped(amqp.Delivery{Headers: w.Headers, RoutingKey: "orders"})
		entry, _ := back.Headers["x-death"].([]any)
		if n != attempt || back.Exchange != "orders" || back.RoutingKey != "paid" || len(back.Headers) != 3 || len(entry) != 1 || entry[0].(amqp.Table)["queue"] != "elsewhere" {
			t.Fatalf("attempt %d came back as %d: %+v", attempt, n, back)
		}
		d = back
	}
}

// RetryAfter asks for pauses of its own: rounded up to one that has a queue.
func TestRetryAfterGoesToALongerQueue(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		s.pay(1)
		cfg := s.config(func(context.Context, pgstore.Tx, consumer.Event) error {
			return consumer.RetryAfter(errBoom, 90*time.Second)
		})
		s.run(cfg, retrying(s, cfg))
		s.settled(1)
		if got := s.ready(s.name + ".retry.2m"); got != 1 {
			t.Errorf("%d messages wait for 2 minutes, want 1", got)
		}
	})
}

// Blocking retries hold a delivery no longer than half of the consumer time-out.
func TestBlockingPauseIsBounded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		s.pay(1)
		cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			if ev.Attempt == 1 {
				return consumer.RetryAfter(errBoom, time.Hour)
			}
			return addPoints(ctx, tx, ev)
		})
		opts := s.opts()
		opts.ConsumerTimeout = 4 * time.Second
		began := time.Now()
		s.run(cfg, opts)
		s.await("it took effect", func() bool { return s.records() == 1 })
		if took := time.Since(began); took < opts.ConsumerTimeout/2 {
			t.Errorf("it was tried again after %s", took)
		}
		s.effectsOnce(1)
	})
}

func TestRetryQueueNames(t *testing.T) {
	t.Parallel()
	for pause, want := range map[time.Duration]string{time.Second: "q.retry.1s", 1500 * time.Millisecond: "q.retry.1.5s", 10 * time.Second: "q.retry.10s",
		time.Minute: "q.retry.1m", 90 * time.Second: "q.retry.1m30s", time.Hour: "q.retry.1h", 90 * time.Minute: "q.retry.1h30m"} {
		if got := RetryQueue("q", pause); got != want {
			t.Errorf("%s: %s, want %s", pause, got, want)
		}
	}
	pauses := retryPauses(consumer.RetryPolicy{Attempts: 4}.Pauses()) // 1, 2, 4, 8 s
	for asked, want := range map[time.Duration]time.Duration{0: time.Second, 801 * time.Millisecond: time.Second, 1601 * time.Millisecond: 2 * time.Second,
		4 * time.Second: 4 * time.Second, 9 * time.Second: 10 * time.Second, 72 * time.Hour: 24 * time.Hour} {
		if got := rung(pauses, asked); got != want {
			t.Errorf("%s waits for %s, want %s", asked, got, want)
		}
	}
}
