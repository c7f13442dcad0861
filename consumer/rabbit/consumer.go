package rabbit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"oncemore/consumer"
)

// Consumer reads one queue. Several of one group compete for its messages. It
// implements consumer.Runner.
type Consumer[T any] struct {
	cfg    consumer.Config[T]
	opts   Options
	pauses []time.Duration // those that have a retry queue
	log    *slog.Logger

	meter     consumer.Meter
	gate      consumer.Gate
	acks      acks
	publisher *publisher

	paused     chan struct{} // a token when somebody asked for a pause
	fetch      atomic.Int64  // prefetch of the next generation
	reconnects atomic.Int64

	mu      sync.Mutex
	session *session[T] // nil: not connected
	started time.Time
	running bool
}

var _ consumer.Runner = (*Consumer[any])(nil)

// New checks the config. It connects to nothing: an unreachable broker or
// database is no error here, Run waits for them.
func New[T any](cfg consumer.Config[T], opts Options) (*Consumer[T], error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	if opts, err = opts.complete(cfg.BatchSize); err == nil {
		err = opts.checkHold(cfg.Retry.Pauses())
	}
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", cfg.Group, err)
	}
	c := &Consumer[T]{cfg: cfg, opts: opts, pauses: retryPauses(cfg.Retry.Pauses()), paused: make(chan struct{}, 1),
		log:       cfg.Logger.With("consumer_group", cfg.Group, "queue", opts.Queue),
		publisher: &publisher{opts: opts, name: "oncemore " + cfg.Group + " publish"}}
	c.fetch.Store(int64(opts.Prefetch))
	return c, nil
}

func (c *Consumer[T]) prefetch() int { return int(c.fetch.Load()) }

// errRunTwice is returned by a second Run.
var errRunTwice = errors.New("rabbit: consumer runs already, or has run")

// Run consumes until ctx ends. Then a transaction under way gets FinishTimeout,
// is acknowledged, and what the broker had delivered beyond it goes back to the
// queue. It returns nil after that. Lost connections, missing queues and an
// unreachable database are waited for, as long as it takes.
func (c *Consumer[T]) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if c.patiently(ctx, "consumer cannot start yet", c.prepare) == nil {
		c.supervise(ctx)
	}
	return nil
}

func (c *Consumer[T]) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started.IsZero() {
		return errRunTwice
	}
	c.started, c.running = c.cfg.Now(), true
	return nil
}

func (c *Consumer[T]) end() {
	c.mu.Lock()
	c.running = false
	c.mu.Unlock()
	c.publisher.close()
}

// askTimeout bounds one question to the database.
const askTimeout = 15 * time.Second

func (c *Consumer[T]) storeReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return c.cfg.Store.Check(ctx, c.cfg.Group)
}

// patiently tries until it works, with growing pauses. Its error is that of ctx.
func (c *Consumer[T]) patiently(ctx context.Context, complaint string, try func(context.Context) error) error {
	for failures := 0; ; failures++ {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if err := c.trouble(ctx, complaint, err, failures); err != nil {
			return err
		}
	}
}

// trouble reports an error and waits, the longer the more have gone before.
func (c *Consumer[T]) trouble(ctx context.Context, complaint string, err error, failures int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	pause := min(c.cfg.Outage/32<<min(failures, 5), c.cfg.Outage)
	c.meter.Note(err, c.cfg.Now())
	c.log.Warn(complaint, "error", err, "after", pause)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// supervise runs one generation after another until ctx ends. It consumes only
// while the store answers: what is delivered to nobody waits in the queue, where
// no time-out and no delivery limit counts.
func (c *Consumer[T]) supervise(ctx context.Context) {
	lost := false
	for failures := 0; ; failures++ {
		if c.gate.Wait(ctx) != nil || c.patiently(ctx, "store is not available", c.storeReady) != nil {
			return
		}
		s, err := c.open(ctx)
		if err == nil {
			if lost {
				c.reconnects.Add(1)
			}
			c.show(s)
			err = c.attend(ctx, s)
			c.show(nil) // from here on nothing is consumed, though a transaction may still end
			s.finish(ctx)
			if s.finished() > 0 {
				failures = 0
			}
			lost = err != nil
			if err == nil { // paused, given back, or at the end
				failures = -1
				continue
			}
			c.slowDown(err)
		}
		if c.trouble(ctx, "connection lost, will be made anew", err, failures) != nil {
			return
		}
	}
}

// attend returns when the session is over: with why the broker has ended it, or
// nil if we do.
func (c *Consumer[T]) attend(ctx context.Context, s *session[T]) error {
	watch := time.NewTicker(max(c.opts.holdLimit()/20, 10*time.Millisecond))
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.gone:
			return s.reason()
		case <-c.paused:
			if c.gate.Closed() {
				return nil
			}
		case <-watch.C:
			if s.overdue() {
				c.log.Warn("deliveries go back to the queue: they were held too long while waiting", "after", c.opts.holdLimit())
				return nil
			}
		}
	}
}

// slowDown halves the prefetch when the broker has waited in vain for an
// acknowledgement: handlers are slower than what is delivered ahead of them.
func (c *Consumer[T]) slowDown(err error) {
	if timedOut(err) {
		c.fetch.Store(max(c.fetch.Load()/2, 1))
	}
}

func (c *Consumer[T]) show(s *session[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = s
}

func (c *Consumer[T]) shown() *session[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}
