// Package consumertest helps users of the library to test their handlers with the
// runtime's own worker, and without a broker.
//
// A Kit delivers events one call at a time, can fail at the worst moment, lose a
// commit's answer or die at a chosen point, and says what became of each:
//
//	kit := consumertest.New(t, consumer.Config[pgstore.Tx]{
//		Group: "points", Store: pgstore.New(pool, pgstore.Options{}), Handler: addPoints,
//		EventID: consumer.EventIDSource{JSON: "$.eventId"},
//	})
//	kit.OnlyOnce(consumertest.JSON("order.paid", `{"eventId":"payment-success-10001","orderId":"10001"}`), points)
//
// A Broker has topics with partitions, groups whose members share them, redelivery
// and dead letters, all in memory, for services of several consumers. A Memory
// keeps records without a database, and a Clock makes pauses take no time.
package consumertest

import (
	"context"
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
	Crashes    int           // how often the process died on the way
	Waited     time.Duration // pauses, by the kit's clock
	Letters    []consumer.Letter
}

// Kit runs one handler on one partition. It is for one goroutine.
type Kit[T any] struct {
	t      testing.TB
	cfg    consumer.Config[T]
	faults faults
	meter  consumer.Meter
	twice  bool
	offset int64
	past   consumer.Status // counters before the call under way
}

// New makes a kit of the config that the service runs. Pauses between attempts
// take no time, by a Clock unless the config has its own; nothing is logged unless
// the config has a logger.
func New[T any](t testing.TB, cfg consumer.Config[T]) *Kit[T] {
	t.Helper()
	if cfg.Retry.Attempts == 0 {
		cfg.Retry.Attempts = 3
	}
	cfg, err := ready(cfg)
	if err != nil {
		t.Fatal(err)
	}
	k := &Kit[T]{t: t, cfg: cfg}
	k.cfg.Store = faultyStore[T]{cfg.Store, &k.faults} // the strategy's, if it needs another
	if err := k.cfg.Store.Check(t.Context(), cfg.Group); err != nil {
		t.Fatal(err)
	}
	return k
}

// ready completes a config for tests: it is quiet, and its clock jumps.
func ready[T any](cfg consumer.Config[T]) (consumer.Config[T], error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil && cfg.After == nil {
		clock := NewClock(time.Now())
		cfg.Now, cfg.After = clock.Now, clock.After
	}
	return cfg.Complete()
}

// JSON is an event as a producer sends it, without headers and key.
func JSON(topic, value string) consumer.Event {
	return consumer.Event{Topic: topic, Value: []byte(value), Time: time.Now()}
}

// limit bounds one call: a handler that is unavailable is asked for ever.
const limit = 30 * time.Second

// Deliver hands the events to the handler, in one batch where they fit, until
// each is consumed, recognised or dead-lettered; after a crash those that were not
// acknowledged come again. Group and offset are set, and the event id is found as
// the config says. A handler that stays unavailable fails the test after 30 s.
func (k *Kit[T]) Deliver(events ...consumer.Event) Result {
	k.t.Helper()
	began := k.cfg.Now()
	deliveries := k.deliveries(events)
	port := &port{faults: &k.faults}
	crashes := k.process(port, deliveries)
	if k.twice {
		port.done = 0
		crashes += k.process(port, deliveries)
	}
	r := k.result(port.letters)
	r.Crashes, r.Waited = crashes, k.cfg.Now().Sub(began)
	return r
}

func (k *Kit[T]) deliveries(events []consumer.Event) []consumer.Delivery {
	var all []consumer.Delivery
	for _, ev := range events {
		ev.Group, ev.Offset = k.cfg.Group, k.offset
		k.offset++
		all = append(all, consumer.NewDelivery(ev, k.cfg.EventID))
		if k.twice {
			all = append(all, all[len(all)-1])
		}
	}
	return all
}

// process runs one worker after another until all is acknowledged, and returns how
// many of them died.
func (k *Kit[T]) process(port *port, deliveries []consumer.Delivery) (crashes int) {
	k.t.Helper()
	within, cancel := context.WithTimeout(k.t.Context(), limit)
	defer cancel()
	for ; port.done < len(deliveries); crashes++ {
		ctx, die := context.WithCancel(within)
		k.faults.live(die)
		worker := consumer.NewWorker(k.cfg, port, &k.meter, &consumer.Gate{})
		err := worker.Process(ctx, nil, deliveries[port.done:])
		died := ctx.Err() != nil
		die()
		switch {
		case within.Err() != nil || err != nil && !died:
			var now consumer.Status
			k.meter.Fill(&now)
			k.t.Fatalf("not finished within %s: %v; last error: %s", limit, err, now.LastError)
		case err == nil && !died:
			if port.done != len(deliveries) {
				k.t.Fatalf("%d of %d deliveries were finished", port.done, len(deliveries))
			}
			return crashes
		}
	}
	return crashes
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

// FailBeforeCommit makes the next n transactions fail after their handlers and
// before their commit, with an error that counts as an attempt.
func (k *Kit[T]) FailBeforeCommit(n int) { k.faults.failures(n, k.faults.lose) }

// LoseCommit makes the next n commits happen without the runtime learning of it,
// as a connection that breaks at that moment would.
func (k *Kit[T]) LoseCommit(n int) { k.faults.failures(k.faults.fail, n) }

// Crash lets the process die at that point, the next times that it comes there. A
// new one begins where the acknowledgements ended, with the attempts anew.
func (k *Kit[T]) Crash(at Point, times int) { k.faults.plan(at, times) }

// EveryDeliveryTwice repeats each event right behind itself in its batch, and the
// batch after it was acknowledged. What is dead-lettered is so at each delivery.
func (k *Kit[T]) EveryDeliveryTwice() { k.twice = true }

// OnlyOnce delivers ev again and again, through failures, crashes and a lost
// commit, and fails the test unless its effect appears exactly once, and not
// without the consume record. effect describes what the handler changes, such as
// the points of an order; it is compared as text.
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
	k.Crash(BeforeCommit, 1)
	k.LoseCommit(1)
	if r := k.Deliver(ev); len(r.Letters) != 0 {
		k.t.Fatalf("dead-lettered: %v", r.Letters[0].Err)
	}
	once := effect()
	if once == before {
		k.t.Fatalf("the event was consumed, and still it is %q", before)
	}
	k.Crash(AfterCommit, 1)
	if r := k.Deliver(ev, ev); r.Duplicates < 2 {
		k.t.Fatalf("two more deliveries gave %+v, want two duplicates", r)
	}
	if got := effect(); got != once {
		k.t.Fatalf("another delivery took effect again: %q became %q", once, got)
	}
}

// port is a broker adapter that only counts and keeps.
type port struct {
	faults  *faults
	done    int
	letters []consumer.Letter
}

// Done acknowledges, unless the process dies meanwhile.
func (p *port) Done(n int) {
	p.done += p.faults.acknowledged(n)
}

// DeadLetter keeps the letter.
func (p *port) DeadLetter(_ context.Context, l consumer.Letter) error {
	p.letters = append(p.letters, l)
	return nil
}

// Waiting needs nothing: what is delivered is here.
func (p *port) Waiting(bool) {}
