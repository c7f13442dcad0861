package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Options tune a Relay. The zero value is the default.
type Options struct {
	MaxRows  int // on their way at once; 0 is 4000
	MaxBytes int // of their contents; 0 is 32 MiB. A larger row goes alone.

	// Attempts is how often a row is tried that the broker refuses; then it is
	// dead. 0 is 10. What is not the row's fault, such as a broker that is down,
	// counts for nothing and is waited for as long as it takes.
	Attempts int
	Initial  time.Duration // pause after the first refusal, doubled with each; 0 is 1 s
	Max      time.Duration // longest pause; 0 is 1 min

	Poll  time.Duration // how often an idle relay looks; 0 is 250 ms. In PostgreSQL Add wakes it earlier.
	Keep  time.Duration // how long rows stay that were sent or skipped; 0 is 72 h, negative for ever
	Sweep time.Duration // how often older ones are removed; 0 is 30 s

	// FinishTimeout bounds how long rows on their way are waited for when the
	// relay stops; 0 is 5 s. What is not confirmed by then is published again.
	FinishTimeout time.Duration
	Logger        *slog.Logger         // nil: slog.Default()
	Traces        trace.TracerProvider // nil: otel.GetTracerProvider()
	Now           func() time.Time     // nil: time.Now; it has to be monotonic
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		is *time.Duration
		to time.Duration
	}{
		{&o.Initial, time.Second}, {&o.Max, time.Minute}, {&o.Poll, 250 * time.Millisecond}, {&o.Keep, 72 * time.Hour},
		{&o.Sweep, 30 * time.Second}, {&o.FinishTimeout, 5 * time.Second},
	} {
		if *d.is == 0 {
			*d.is = d.to
		}
	}
	for _, n := range []struct {
		is *int
		to int
	}{{&o.MaxRows, 4000}, {&o.MaxBytes, 32 << 20}, {&o.Attempts, 10}} {
		if *n.is == 0 {
			*n.is = n.to
		}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (o Options) validate() error {
	if o.MaxRows < 1 || o.MaxBytes < 1 || o.Attempts < 1 || o.Initial < 0 || o.Max < o.Initial || o.Poll < 0 || o.Sweep < 0 || o.FinishTimeout < 0 {
		return errors.New("outbox: options of a relay must not be negative, and Max not less than Initial")
	}
	return nil
}

// backoff is the pause after so many refusals.
func (o Options) backoff(attempts int) time.Duration {
	d := o.Initial
	for range attempts - 1 {
		if d *= 2; d >= o.Max {
			return o.Max
		}
	}
	return min(d, o.Max)
}

// Relay publishes an outbox. Several, in one process or in many, share the keys:
// each owns part of them by a session lock, so that a key has one relay at a
// time. What a relay owned that crashed, others take over within seconds.
type Relay struct {
	box  *Box
	to   Publisher
	opts Options

	mu     sync.Mutex
	status Status
	first  bool // it owns the first shard
}

// Status is what a relay of this process does.
type Status struct {
	Connected   bool // it holds a session; without one it publishes nothing
	Shards      int  // that it owns, of Shards
	OnTheWay    int  // rows
	Sent        int64
	Refused     int64 // attempts
	Died        int64
	Lost        int64 // sessions that ended without being asked to
	LastError   string
	LastErrorAt time.Time
}

// NewRelay makes a relay. The publisher may be shared; the caller closes it when
// its relays have stopped.
func NewRelay(box *Box, to Publisher, o Options) (*Relay, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Relay{box: box, to: to, opts: o}, nil
}

// Status is how it stands now.
func (r *Relay) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

func (r *Relay) tell(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.status)
}

func (r *Relay) setSweeps(first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.first = first
}

func (r *Relay) sweeps() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// noteError keeps the error for Status.
func (r *Relay) noteError(err error) {
	now := r.opts.Now()
	r.tell(func(s *Status) { s.LastError, s.LastErrorAt = err.Error(), now })
}

// Run relays until ctx ends, whatever fails meanwhile: a database or a broker
// that is down is waited for. It returns nil.
func (r *Relay) Run(ctx context.Context) error {
	var sweeping sync.WaitGroup
	sweeping.Go(func() { r.sweep(ctx) })
	defer sweeping.Wait()
	down, pause := false, firstPause
	for ctx.Err() == nil {
		err := r.work(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.noteError(err)
		if lost, yes := errors.AsType[*lostError](err); yes {
			down, pause = false, firstPause
			r.tell(func(s *Status) { s.Lost++ })
			r.opts.Logger.WarnContext(ctx, "outbox relay lost its session and begins anew", "table", r.box.table, "error", lost.err)
		} else if !down {
			down = true
			r.opts.Logger.ErrorContext(ctx, "outbox relay cannot begin", "table", r.box.table, "error", err)
		}
		sleep(ctx, pause)
		pause = min(2*pause, lastPause)
	}
	return nil
}

// Pauses between two sessions.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// lostError is what ended a session that had begun.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// work is one session, from its locks to its end.
func (r *Relay) work(ctx context.Context) error {
	beginning, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	began := r.opts.Now()
	s, err := r.box.db.session(beginning)
	if err != nil {
		return fmt.Errorf("begin session on %s: %w", r.box.table, err)
	}
	defer s.close()
	sh := newShift(r, s, began)
	r.tell(func(s *Status) { s.Connected = true })
	defer func() {
		r.tell(func(s *Status) { s.Connected, s.Shards, s.OnTheWay = false, 0, 0 })
		r.setSweeps(false)
	}()
	if err := sh.run(ctx); err != nil {
		return &lostError{err}
	}
	return nil
}

// sweepRows is how many rows one transaction removes.
const sweepRows = 5000

// sweep removes old rows while this relay owns the first shard, so that one of
// all relays does it, on a connection of its own.
func (r *Relay) sweep(ctx context.Context) {
	if r.opts.Keep < 0 {
		return
	}
	for sleep(ctx, r.opts.Sweep) {
		if !r.sweeps() {
			continue
		}
		n, err := r.box.Sweep(ctx, r.opts.Keep, sweepRows)
		if err != nil && ctx.Err() == nil {
			r.noteError(err)
			r.opts.Logger.WarnContext(ctx, "old outbox rows not removed", "table", r.box.table, "error", err)
		}
		if n > 0 {
			r.opts.Logger.DebugContext(ctx, "old outbox rows removed", "table", r.box.table, "rows", n)
		}
	}
}

// sleep reports whether d went by before ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
