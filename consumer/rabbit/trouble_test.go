package rabbit

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
)

// gatekeeper is a handler that waits inside its transaction.
type gatekeeper struct {
	entered chan string
	leave   chan struct{}
}

func newGatekeeper() gatekeeper { return gatekeeper{make(chan string, 100), make(chan struct{})} }

func (g gatekeeper) handle(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	g.entered <- ev.ID
	<-g.leave
	return addPoints(ctx, tx, ev)
}

// The connection breaks while a handler is busy: its commit holds, its
// acknowledgement is void, and what comes again is a duplicate.
func TestConnectionLostDuringHandler(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		g := newGatekeeper()
		cfg := s.config(g.handle)
		cfg.BatchSize = 1
		s.pay(3)
		m := s.run(cfg, s.opts())
		<-g.entered
		s.wire.Cut()
		s.await("the broker has what was delivered", func() bool { return s.ready(s.name) == 3 })
		s.await("it shows that it waits for a connection", func() bool { return m.Status().State == consumer.Waiting })
		close(g.leave)
		s.settled(3)
		s.effectsOnce(3)
		st := m.Status()
		if st.StaleAcks != 1 || st.Reconnects != 1 || st.Consumed != 3 || st.Duplicates != 1 || st.DeadLettered != 0 {
			t.Errorf("stale %d, reconnects %d, consumed %d, duplicates %d, letters %d", st.StaleAcks, st.Reconnects, st.Consumed, st.Duplicates, st.DeadLettered)
		}
	})
}

// The broker closes the channel under a handler, as it does after consumer_timeout.
func TestChannelClosedDuringHandler(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		g := newGatekeeper()
		s.pay(2)
		m := s.run(s.config(g.handle), s.opts())
		<-g.entered
		s.wire.CloseChannels()
		s.await("the broker has what was delivered", func() bool { return s.ready(s.name) == 2 })
		close(g.leave)
		s.settled(2)
		s.effectsOnce(2)
		if st := m.Status(); st.StaleAcks == 0 || st.Duplicates == 0 || !strings.Contains(st.LastError, "406") {
			t.Errorf("stale %d, duplicates %d, last error %q", st.StaleAcks, st.Duplicates, st.LastError)
		}
	})
}

// Acknowledgements that the broker never sees bring duplicates, and no second effect.
func TestLostAcknowledgements(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		const n = 20
		s := openShop(t, b)
		s.wire.LoseAcks(true)
		s.pay(n)
		m := s.run(s.config(addPoints), s.opts())
		s.await("all is committed", func() bool { return s.records() == n })
		s.wire.LoseAcks(false)
		s.wire.Cut()
		s.settled(n)
		s.effectsOnce(n)
		if st := m.Status(); st.Consumed != n || st.Duplicates != n || st.DeadLettered != 0 {
			t.Errorf("consumed %d, duplicates %d, letters %d", st.Consumed, st.Duplicates, st.DeadLettered)
		}
	})
}

func TestConnectionsAreCutOverAndOver(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		const n, cuts = 400, 8
		s := openShop(t, b)
		s.pay(n)
		cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.002)`); err != nil {
				return err
			}
			return addPoints(ctx, tx, ev)
		})
		cfg.BatchSize = 10
		cfg.Retry.Attempts = -1
		a, z := s.run(cfg, s.opts()), s.run(cfg, s.opts())
		for i := range cuts {
			s.await("some progress", func() bool { return s.records() >= n*(i+1)/(cuts+2) })
			s.wire.Cut()
		}
		s.await("the queue is empty", func() bool { return s.records() == n && s.ready(s.name) == 0 })
		a.stop()
		z.stop()
		if got := s.ready(s.name); got != 0 {
			t.Errorf("%d messages came back after the stop", got)
		}
		s.effectsOnce(n)
		if len(s.Letters(t, s.name)) != 0 || a.Status().Reconnects+z.Status().Reconnects < cuts {
			t.Errorf("letters %v, reconnects %d and %d", s.letters, a.Status().Reconnects, z.Status().Reconnects)
		}
	})
}

// A broker that is away is waited for: no attempt is counted, no letter written,
// also of a message whose letter was due just then.
func TestBrokerDown(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) { brokerDown(t, b, 3*time.Second) })
}

func brokerDown(t *testing.T, b *broker, away time.Duration) {
	s := openShop(t, b)
	g := newGatekeeper()
	cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		if err := g.handle(ctx, tx, ev); err != nil {
			return err
		}
		if ev.ID == paymentID(2) {
			return consumer.Permanent(errBoom)
		}
		return nil
	})
	cfg.BatchSize = 1
	m := s.run(cfg, s.opts())
	s.pay(3)
	<-g.entered
	s.wire.Down()
	close(g.leave)
	s.await("it waits", func() bool { return m.Status().State == consumer.Waiting })
	s.holds(away, "nothing is acknowledged and nothing given up", func() bool {
		return s.wire.Acked() == 0 && s.ready(s.dead) == 0 && m.Status().State == consumer.Waiting
	})
	s.wire.Up()
	s.settled(3)
	if s.points(1) != 100 || s.points(2) != 0 || s.points(3) != 100 || s.records() != 2 {
		t.Errorf("points %d, %d, %d, records %d", s.points(1), s.points(2), s.points(3), s.records())
	}
	if got := s.Letters(t, s.name); len(got) != 1 || got[0].EventID != paymentID(2) || got[0].Attempt != 1 {
		t.Errorf("letters %+v", got)
	}
	if got := m.Status().Retried; got != 0 {
		t.Errorf("%d attempts were counted", got)
	}
}

// Nobody is there at the start, and it stops at once all the same.
func TestStopWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		s.wire.Down()
		m := s.run(s.config(addPoints), s.opts())
		s.await("it says so", func() bool { return m.Status().LastError != "" })
		if got := m.Status().State; got != consumer.Waiting {
			t.Errorf("state %s", got)
		}
		if strings.Contains(m.Status().LastError+s.logs.String(), "console:console") {
			t.Error("the password is in the log")
		}
		began := time.Now()
		m.stop()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the stop took %s", took)
		}
		if err := m.Run(t.Context()); err == nil {
			t.Error("it runs twice")
		}
	})
}

func TestQueueIsDeletedAndMadeAnew(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		m := s.run(s.config(addPoints), s.opts())
		s.pay(1)
		s.settled(1)
		if _, err := s.channel(t).QueueDelete(s.name, false, false, false); err != nil {
			t.Fatal(err)
		}
		s.await("it waits for the queue", func() bool {
			return m.Status().State == consumer.Waiting && strings.Contains(m.Status().LastError, "NOT_FOUND")
		})
		if !strings.Contains(s.logs.String(), errCancelled.Error()) {
			t.Errorf("the log does not say that the broker cancelled the consumer:\n%s", s.logs)
		}
		s.declare(t, s.name, nil)
		s.send(t, s.name, payment(2))
		s.settled(2)
		s.effectsOnce(2)
	})
}

// unreliable is a store that can be away, its check included.
type unreliable struct {
	consumer.Store[pgstore.Tx]
	away atomic.Bool
}

func (u *unreliable) Check(ctx context.Context, group string) error {
	if u.away.Load() {
		return consumer.Unavailable(errBoom)
	}
	return u.Store.Check(ctx, group)
}

func (u *unreliable) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[pgstore.Tx], error) {
	if u.away.Load() {
		return nil, consumer.Unavailable(errBoom)
	}
	return u.Store.Claim(ctx, group, ids)
}

// A database that is away for longer than consumer_timeout costs one delivery,
// not one per time-out: a quorum queue drops what it has delivered 20 times.
func TestDeliveriesAreNotHeldThroughALongOutage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		const n = 5
		s := openShop(t, b)
		cfg := s.config(addPoints)
		store := &unreliable{Store: cfg.Store}
		cfg.Store = store
		opts := s.opts()
		opts.ConsumerTimeout = 600 * time.Millisecond
		m := s.run(cfg, opts)
		s.await("it consumes", func() bool { return m.Status().State == consumer.Running })
		store.away.Store(true)
		s.pay(n)
		s.await("they were delivered", func() bool { return s.wire.Delivered() == n })
		s.await("they are back in the queue", func() bool { return s.ready(s.name) == n })
		s.holds(2*opts.ConsumerTimeout, "they stay there", func() bool { return s.wire.Delivered() == n && m.Status().State == consumer.Waiting })
		store.away.Store(false)
		s.settled(n)
		s.effectsOnce(n)
		if st := m.Status(); st.Retried != 0 || st.DeadLettered != 0 || st.Reconnects != 0 {
			t.Errorf("retried %d, letters %d, reconnects %d", st.Retried, st.DeadLettered, st.Reconnects)
		}
	})
}

func TestPauseGivesBackWhatWasDeliveredAhead(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		g := newGatekeeper()
		cfg := s.config(g.handle)
		cfg.BatchSize = 1
		s.pay(3)
		m := s.run(cfg, s.opts())
		<-g.entered
		m.Pause()
		close(g.leave) // the transaction under way is finished and acknowledged
		s.await("the others are back", func() bool { return s.ready(s.name) == 2 })
		if got := m.Status().State; got != consumer.Paused || s.wire.Acked() != 1 || s.records() != 1 {
			t.Errorf("state %s, acknowledged %d, records %d", got, s.wire.Acked(), s.records())
		}
		lag, err := m.Lag(t.Context())
		if err != nil || len(lag) != 1 || lag[0].Lag != 2 || lag[0].Topic != s.name || lag[0].Committed != -1 {
			t.Errorf("lag %+v, %v", lag, err)
		}
		m.Resume()
		s.settled(3)
		s.effectsOnce(3)
		if st := m.Status(); st.Duplicates != 0 || st.Reconnects != 0 || st.State != consumer.Running {
			t.Errorf("duplicates %d, reconnects %d, state %s", st.Duplicates, st.Reconnects, st.State)
		}
	})
}

// These need a broker that may be disturbed.

func onBothSoak(t *testing.T, run func(t *testing.T, b *broker)) {
	testkit.Soak(t)
	t.Run("rabbitmq 3 classic", func(t *testing.T) {
		t.Parallel()
		run(t, newBroker(t, testkit.Rabbit(t), amqp.QueueTypeClassic))
	})
	t.Run("rabbitmq 4 quorum", func(t *testing.T) {
		t.Parallel()
		run(t, newBroker(t, testkit.Rabbit4(t), amqp.QueueTypeQuorum))
	})
}

// consumer_timeout itself; the broker looks every channel_tick_interval.
func TestSoakHandlerOutlastsConsumerTimeout(t *testing.T) {
	onBothSoak(t, func(t *testing.T, b *broker) {
		b.Ctl(t, "eval", `application:set_env(rabbit, consumer_timeout, 1500), application:set_env(rabbit, channel_tick_interval, 300).`)
		t.Cleanup(func() {
			b.Ctl(t, "eval", `application:set_env(rabbit, consumer_timeout, 1800000), application:set_env(rabbit, channel_tick_interval, 60000).`)
		})
		s := openShop(t, b)
		g := newGatekeeper()
		opts := s.opts()
		opts.Prefetch = 4
		s.pay(3)
		m := s.run(s.config(g.handle), opts)
		<-g.entered
		s.await("the broker takes them back", func() bool { return s.ready(s.name) == 3 })
		close(g.leave)
		s.settled(3)
		s.effectsOnce(3)
		if st := m.Status(); st.StaleAcks != 3 || st.Duplicates != 3 || st.Consumed != 3 || st.DeadLettered != 0 || !strings.Contains(st.LastError, "timed out") {
			t.Errorf("stale %d, duplicates %d, consumed %d, letters %d, last error %q", st.StaleAcks, st.Duplicates, st.Consumed, st.DeadLettered, st.LastError)
		}
		if got := m.prefetch(); got != 2 {
			t.Errorf("prefetch %d after a time-out with 4, want 2", got)
		}
	})
}

func TestSoakBrokerIsStoppedForAMinute(t *testing.T) {
	onBothSoak(t, func(t *testing.T, b *broker) {
		const n = 600
		s := openShop(t, b)
		cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			if _, err := tx.Exec(ctx, `SELECT pg_sleep(0.005)`); err != nil {
				return err
			}
			return addPoints(ctx, tx, ev)
		})
		cfg.BatchSize = 10
		s.pay(n)
		m := s.run(cfg, s.opts())
		s.await("some progress", func() bool { return s.records() > n/10 })
		b.Ctl(t, "stop_app")
		t.Cleanup(func() { b.Ctl(t, "start_app") })
		s.await("it waits, and what was under way has ended", func() bool {
			return m.Status().State == consumer.Waiting && m.Status().LastError != ""
		})
		before := s.records()
		s.holds(time.Minute, "it waits", func() bool { return m.Status().State == consumer.Waiting && s.records() == before })
		b.Ctl(t, "start_app")
		s.await("all is consumed", func() bool { return s.records() == n })
		m.stop()
		s.effectsOnce(n)
		if st := m.Status(); st.DeadLettered != 0 || st.Retried != 0 || st.Reconnects != 1 {
			t.Errorf("letters %d, retried %d, reconnects %d", st.DeadLettered, st.Retried, st.Reconnects)
		}
	})
}

// A broker in a memory alarm takes no letter: nothing is acknowledged for it, while
// what needs no letter goes on by the other connection.
func TestSoakBrokerBlocksPublishers(t *testing.T) {
	onBothSoak(t, func(t *testing.T, b *broker) {
		s := openShop(t, b)
		g := newGatekeeper()
		cfg := s.config(func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			if err := g.handle(ctx, tx, ev); err != nil {
				return err
			}
			if ev.ID == paymentID(2) {
				return consumer.Permanent(errBoom)
			}
			return nil
		})
		cfg.BatchSize = 1
		s.pay(2)
		m := s.run(cfg, s.opts())
		<-g.entered
		b.Ctl(t, "set_vm_memory_high_watermark", "absolute", "1")
		t.Cleanup(func() { b.Ctl(t, "set_vm_memory_high_watermark", "0.4") })
		close(g.leave)
		s.await("the first is acknowledged", func() bool { return s.wire.Acked() == 1 })
		s.await("the second waits", func() bool { return strings.Contains(m.Status().LastError, "no confirmation") })
		if s.wire.Acked() != 1 || !strings.Contains(m.Status().LastError, "blocks publishers") {
			t.Errorf("acknowledged %d, last error %q", s.wire.Acked(), m.Status().LastError)
		}
		b.Ctl(t, "set_vm_memory_high_watermark", "0.4")
		s.settled(2)
		if got := s.Letters(t, s.name); len(got) == 0 || got[0].EventID != paymentID(2) {
			t.Errorf("letters %+v", got)
		}
	})
}
