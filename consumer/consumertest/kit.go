// Package consumertest helps users of the library to test their handlers: it
// delivers events the way a broker adapter does, without a broker, and can lose
// a commit's answer or fail at the worst moment.
//
//	kit := consumertest.New(t, consumer.Config[pgstore.Tx]{
//		Group: "points", Store: pgstore.New(pool, pgstore.Options{}), Handler: addPoints,
//		EventID: consumer.EventIDSource{JSON: "$.eventId"},
//	})
//	kit.OnlyOnce(consumertest.JSON("order.paid", `{"eventId":"payment-success-10001","orderId":"10001"}`), points)
package consumertest

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"oncemore/consumer"
)

// Result is what became of the deliveries of one call.
type Result struct {
	Consumed   int64 // events whose record and effect were committed
	Duplicates int64 // deliveries recognised as consumed
	Retried    int64 // attempts that failed and were repeated
	Discarded  int64
	Letters    []consumer.Letter
}

// Kit runs one handler on one partition. It is for one goroutine.
type Kit[T any] struct {
	t      testing.TB
	cfg    consumer.Config[T]
	store  *faultyStore[T]
	meter  consumer.Meter
	offset int64
	past   consumer.Status // counters before the call under way
}

// New makes a kit of the config that the service runs. Pauses between attempts
// shrink to a millisecond, their number stays; nothing is logged unless the
// config has a logger.
func New[T any](t testing.TB, cfg consumer.Config[T]) *Kit[T] {
	t.Helper()
	if cfg.Retry.Attempts == 0 {
		cfg.Retry.Attempts = 3
	}
	cfg.Retry.Initial, cfg.Retry.Multiplier, cfg.Retry.Max = time.Millisecond, 1, time.Millisecond
	cfg.Outage = 10 * time.Millisecond
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg, err := cfg.Complete()
	if err != nil {
		t.Fatal(err)
	}
	store := &faultyStore[T]{Store: cfg.Store} // the strategy's, if it needs another
	cfg.Store = store
	if err := cfg.Store.Check(t.Context(), cfg.Group); err != nil {
		t.Fatal(err)
	}
	return &Kit[T]{t: t, cfg: cfg, store: store}
}

// JSON is an event as a producer sends it, without headers and key.
func JSON(topic, value string) consumer.Event {
	return consumer.Event{Topic: topic, Value: []byte(value), Time: time.Now()}
}

// limit bounds one call: a handler that is unavailable is asked for ever.
const limit = 30 * time.Second

// Deliver hands the events to the handler, in one batch where they fit, until
// each is consumed, recognised or dead-lettered. Group and offset are set, and
// the event id is found as the config says. A handler that stays unavailable
// fails the test after 30 s.
func (k *Kit[T]) Deliver(events ...consumer.Event) Result {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), limit)
	defer cancel()
	deliveries := make([]consumer.Delivery, len(events))
	for i, ev := range events {
		ev.Group, ev.Offset = k.cfg.Group, k.offset
		k.offset++
		deliveries[i] = consumer.NewDelivery(ev, k.cfg.EventID)
	}
	port := &port{}
	worker := consumer.NewWorker(k.cfg, port, &k.meter, &consumer.Gate{})
	if err := worker.Process(ctx, nil, deliveries); err != nil {
		var now consumer.Status
		k.meter.Fill(&now)
		k.t.Fatalf("not finished within %s: %v; last error: %s", limit, err, now.LastError)
	}
	if port.done != len(events) {
		k.t.Fatalf("%d of %d deliveries were finished", port.done, len(events))
	}
	return k.result(port.letters)
}

func (k *Kit[T]) result(letters []consumer.Letter) Result {
	var now consumer.Status
	k.meter.Fill(&now)
	past := k.past
	k.past = now
	return Result{
		Consumed: now.Consumed - past.Consumed, Duplicates: now.Duplicates - past.Duplicates,
		Retried: now.Retried - past.Retried, Discarded: now.Discarded - past.Discarded, Letters: letters,
	}
}

// ErrInjected is the failure that FailBeforeCommit brings about.
var ErrInjected = errors.New("consumertest: injected failure")

// FailBeforeCommit makes the next n transactions fail after their handlers and
// before their commit, as a crash there would.
func (k *Kit[T]) FailBeforeCommit(n int) { k.store.fail = n }

// LoseCommit makes the next n commits happen without the runtime learning of it,
// as a connection that breaks at that moment would.
func (k *Kit[T]) LoseCommit(n int) { k.store.lose = n }

// OnlyOnce delivers ev again and again, through failures and a lost commit, and
// fails the test unless its effect appears exactly once, and not without the
// consume record. effect describes what the handler changes, such as the points
// of an order; it is compared as text.
func (k *Kit[T]) OnlyOnce(ev consumer.Event, effect func() string) {
	k.t.Helper()
	before := effect()
	k.FailBeforeCommit(k.cfg.Retry.Attempts + 1)
	if r := k.Deliver(ev); len(r.Letters) != 1 {
		k.t.Fatalf("every attempt failed before its commit, yet there are %d dead letters, want 1: %+v", len(r.Letters), r)
	}
	if got := effect(); got != before {
		k.t.Fatalf("a transaction that was rolled back left an effect: %q became %q. Is the effect outside of the transaction?", before, got)
	}
	k.LoseCommit(1)
	if r := k.Deliver(ev); len(r.Letters) != 0 {
		k.t.Fatalf("dead-lettered: %v", r.Letters[0].Err)
	}
	once := effect()
	if once == before {
		k.t.Fatalf("the event was consumed, and still it is %q", before)
	}
	if r := k.Deliver(ev, ev); r.Duplicates != 2 {
		k.t.Fatalf("two more deliveries gave %+v, want two duplicates", r)
	}
	if got := effect(); got != once {
		k.t.Fatalf("another delivery took effect again: %q became %q", once, got)
	}
}

// port is a broker adapter that only counts and keeps.
type port struct {
	done    int
	letters []consumer.Letter
}

func (p *port) Done(n int) { p.done += n }

func (p *port) DeadLetter(_ context.Context, l consumer.Letter) error {
	p.letters = append(p.letters, l)
	return nil
}

func (p *port) Waiting(bool) {}
