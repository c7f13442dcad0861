package consumer

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"
)

// ErrStopped ends Process when its worker was told to stop: what is not
// reported as done will be delivered again.
var ErrStopped = errors.New("consumer: worker was stopped")

// Delivery is a message as the broker delivered it.
type Delivery struct {
	Event
	Reject error // why it cannot be handled: becomes a dead letter at once; nil if it can
}

// NewDelivery finds the event id of a message.
func NewDelivery(ev Event, source EventIDSource) Delivery {
	ev.Attempt = 1
	id, err := source.Extract(ev)
	ev.ID = id
	return Delivery{Event: ev, Reject: err}
}

// Port is what a worker needs of its broker adapter. It is called from the
// goroutine that calls Process.
type Port interface {
	// Done says that the next n deliveries are finished: committed, or confirmed
	// as dead letters. Only now may they be acknowledged.
	Done(n int)

	// DeadLetter publishes a letter and returns nil once the broker has
	// confirmed it. After an error the worker waits and calls again.
	DeadLetter(ctx context.Context, l Letter) error

	// Waiting says that the worker has begun, or ended, to wait for a retry or
	// an outage: fetching more for it is of no use.
	Waiting(bool)
}

// Deferrer is a Port that may put a failed delivery aside for its next attempt, so
// that those behind it need not wait. Their order is lost by that.
type Deferrer interface {
	Port

	// Defer returns true once the broker has confirmed that the delivery comes
	// again after the pause, with the next Attempt: then it is finished here. False
	// says that it has to be held. After an error the worker waits and calls again.
	Defer(ctx context.Context, l Letter, pause time.Duration) (bool, error)

	// LongestPause is how long a delivery may be held now.
	LongestPause() time.Duration
}

// systemOf is what a port says of its broker in traces: messaging.system.
func systemOf(port Port) string {
	if p, ok := port.(interface{ System() string }); ok {
		return p.System()
	}
	return "unknown"
}

// Worker handles the deliveries of one partition in order, in batches of one
// transaction each. It is for one goroutine.
type Worker[T any] struct {
	cfg     Config[T]
	port    Port
	meter   *Meter
	gate    *Gate
	log     *slog.Logger
	traces  tracing
	size    int  // deliveries in the next transaction
	lost    int  // transactions lost to contention in a row
	outages int  // waits for something unavailable in a row
	waiting bool // as last told to the port
}

// NewWorker makes a worker; cfg comes from Config.Complete.
func NewWorker[T any](cfg Config[T], port Port, meter *Meter, gate *Gate) *Worker[T] {
	return &Worker[T]{cfg: cfg, port: port, meter: meter, gate: gate, size: cfg.BatchSize,
		log: cfg.Logger.With("consumer_group", cfg.Group), traces: newTracing(cfg.Group, systemOf(port), cfg.Traces)}
}

// Process handles all deliveries, however long that takes, and reports each to
// the port as it is finished. It returns early, with ErrStopped once stop is
// closed and the transaction under way has ended, or with the error of ctx,
// which also cuts that transaction off.
func (w *Worker[T]) Process(ctx context.Context, stop <-chan struct{}, deliveries []Delivery) error {
	defer w.tellWaiting(false)
	for len(deliveries) > 0 {
		if err := w.gate.pass(ctx, stop); err != nil {
			return err
		}
		n, err := w.step(ctx, stop, w.chunk(deliveries))
		if err != nil {
			return err
		}
		deliveries = deliveries[n:]
	}
	return nil
}

// chunk is what goes into the next transaction: a delivery that cannot be
// handled stands alone, because its dead letter must not wait for others.
func (w *Worker[T]) chunk(deliveries []Delivery) []Delivery {
	n := min(w.size, len(deliveries))
	for i, d := range deliveries[:n] {
		if d.Reject != nil {
			return deliveries[:max(i, 1)]
		}
	}
	return deliveries[:n]
}

// step tries a chunk once in one transaction, and one by one if a handler fails.
// It returns how many deliveries from the front are finished and reported.
func (w *Worker[T]) step(ctx context.Context, stop <-chan struct{}, chunk []Delivery) (int, error) {
	if len(chunk) == 1 {
		return w.alone(ctx, stop, chunk)
	}
	err := w.transact(ctx, chunk)
	if err == nil {
		w.grow(len(chunk))
		w.progress(len(chunk))
		return len(chunk), nil
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	switch OutcomeOf(err) {
	case OutcomeContention:
		w.shrink(len(chunk))
		return 0, w.contended(ctx, stop, err)
	case OutcomeUnavailable:
		return 0, w.outage(ctx, stop, err)
	}
	w.meter.fallbacks.Add(1)
	w.log.Debug("batch rolled back, running its deliveries alone", "deliveries", len(chunk), "error", err)
	w.shrink(len(chunk))
	if n := culprit(chunk, err); n > 0 {
		return w.before(ctx, stop, chunk[:n], chunk[n:n+1])
	}
	return w.alone(ctx, stop, chunk)
}

// culprit is the position in chunk of the delivery that a batch error names; 0
// if it names none, or the first.
func culprit(chunk []Delivery, err error) int {
	var named *culpritError
	if !errors.As(err, &named) {
		return 0
	}
	return slices.IndexFunc(chunk, func(d Delivery) bool { return d.ID == named.id })
}

// before handles the deliveries before a culprit together once more, then the
// culprit alone. Those behind it go on as usual.
func (w *Worker[T]) before(ctx context.Context, stop <-chan struct{}, good, bad []Delivery) (int, error) {
	n, err := w.step(ctx, stop, good)
	if err != nil || n < len(good) {
		return n, err
	}
	_, err = w.alone(ctx, stop, bad)
	if err != nil {
		return n, err
	}
	return n + 1, nil
}

// alone runs each delivery in a transaction of its own, so that only the
// culprit meets the retry policy. Each is reported at once: its offset shall not
// wait for its neighbour's back-off.
func (w *Worker[T]) alone(ctx context.Context, stop <-chan struct{}, chunk []Delivery) (int, error) {
	for i, d := range chunk {
		if err := w.one(ctx, stop, d); err != nil {
			return i, err
		}
		w.progress(1)
	}
	return len(chunk), nil
}

// one finishes a single delivery: commits it, discards it, or confirms its dead letter.
func (w *Worker[T]) one(ctx context.Context, stop <-chan struct{}, d Delivery) error {
	if d.Reject != nil {
		return w.bury(ctx, stop, d, d.Reject)
	}
	for {
		if err := w.gate.pass(ctx, stop); err != nil {
			return err
		}
		err := w.transact(ctx, []Delivery{d})
		if err == nil {
			w.grow(1)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		finished, err := w.failed(ctx, stop, &d, err)
		if finished || err != nil {
			return err
		}
	}
}

// failed decides about a delivery whose own transaction failed. It reports
// whether the delivery is finished; if not, it has waited and d is to be tried again.
func (w *Worker[T]) failed(ctx context.Context, stop <-chan struct{}, d *Delivery, err error) (finished bool, _ error) {
	switch OutcomeOf(err) {
	case OutcomeContention:
		return false, w.contended(ctx, stop, err)
	case OutcomeUnavailable:
		return false, w.outage(ctx, stop, err)
	case OutcomeDiscard:
		w.meter.discarded.Add(1)
		w.log.Info("event discarded by its handler", logAttrs(d.Event, err)...)
		return true, nil
	case OutcomePermanent:
		return true, w.bury(ctx, stop, *d, err)
	}
	if d.Attempt > w.cfg.Retry.Attempts || !w.cfg.Retry.retries(err) {
		return true, w.bury(ctx, stop, *d, err)
	}
	return w.backOff(ctx, stop, d, err)
}

// backOff waits for the next attempt of a failed delivery, or puts the delivery
// aside for it, which finishes it here.
func (w *Worker[T]) backOff(ctx context.Context, stop <-chan struct{}, d *Delivery, err error) (finished bool, _ error) {
	pause := retryAfter(err)
	if pause == 0 {
		pause = w.cfg.Retry.pause(d.Attempt)
	}
	w.meter.retried.Add(1)
	w.meter.Note(err, w.cfg.Now())
	w.log.Warn("event failed, will be retried", append(logAttrs(d.Event, err), "attempt", d.Attempt, "after", pause)...)
	if port, ok := w.port.(Deferrer); ok {
		if finished, err := w.putAside(ctx, stop, port, Letter{Event: d.Event, Err: err}, pause); finished || err != nil {
			return finished, err
		}
		pause = min(pause, port.LongestPause())
	}
	d.Attempt++
	w.tellWaiting(true)
	return false, w.sleep(ctx, stop, pause)
}

func (w *Worker[T]) putAside(ctx context.Context, stop <-chan struct{}, port Deferrer, l Letter, pause time.Duration) (done bool, _ error) {
	ctx, span := w.traces.publishing(ctx, l, "retry")
	err := w.confirmed(ctx, stop, func() (err error) {
		done, err = port.Defer(ctx, l, pause)
		return err
	})
	ended(span, "retry", err)
	return done, err
}

// bury publishes a dead letter and waits until that is confirmed.
func (w *Worker[T]) bury(ctx context.Context, stop <-chan struct{}, d Delivery, cause error) error {
	w.meter.Note(cause, w.cfg.Now())
	letter := Letter{Event: d.Event, Err: cause}
	sending, span := w.traces.publishing(ctx, letter, "dead letter")
	err := w.confirmed(ctx, stop, func() error { return w.port.DeadLetter(sending, letter) })
	ended(span, "dead_letter", err)
	if err != nil {
		return err
	}
	w.meter.deadLettered.Add(1)
	w.log.Warn("event dead-lettered", append(logAttrs(d.Event, cause), "attempt", d.Attempt)...)
	return nil
}

// confirmed publishes until the broker has confirmed it.
func (w *Worker[T]) confirmed(ctx context.Context, stop <-chan struct{}, publish func() error) error {
	for {
		if err := w.gate.pass(ctx, stop); err != nil {
			return err
		}
		err := publish()
		if err == nil {
			w.outages = 0
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := w.outage(ctx, stop, err); err != nil {
			return err
		}
	}
}

func logAttrs(ev Event, err error) []any {
	return []any{"event_id", ev.ID, "topic", ev.Topic, "partition", ev.Partition, "offset", ev.Offset, "error", err}
}

// Contention is over soon: from 10 ms, doubling up to a second, all of it random.
const (
	contentionFirst = 10 * time.Millisecond
	contentionMost  = time.Second
)

// contended waits a moment after a transaction was lost to another one.
func (w *Worker[T]) contended(ctx context.Context, stop <-chan struct{}, err error) error {
	w.meter.contention.Add(1)
	w.log.Debug("transaction lost to contention", "error", err)
	most := min(contentionFirst<<min(w.lost, 10), contentionMost)
	w.lost++
	return w.sleep(ctx, stop, time.Millisecond+rand.N(most))
}

// outage waits for something that is down. Asking goes on for ever.
func (w *Worker[T]) outage(ctx context.Context, stop <-chan struct{}, err error) error {
	w.meter.Note(err, w.cfg.Now())
	pause := min(w.cfg.Outage/32<<min(w.outages, 5), w.cfg.Outage)
	w.outages++
	w.log.Warn("waiting for what is unavailable", "error", err, "after", pause)
	w.tellWaiting(true)
	return w.sleep(ctx, stop, pause-rand.N(pause/4+1))
}

func (w *Worker[T]) sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) error {
	select {
	case <-w.cfg.After(d):
		return nil
	case <-stop:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Worker[T]) progress(n int) {
	w.outages = 0
	w.tellWaiting(false)
	w.port.Done(n)
}

func (w *Worker[T]) tellWaiting(on bool) {
	if w.waiting != on {
		w.waiting = on
		w.port.Waiting(on)
	}
}

// grow lets the size come back slowly after batches that went well.
func (w *Worker[T]) grow(n int) {
	w.lost = 0
	if n >= w.size {
		w.size = min(w.size+max(w.size/8, 1), w.cfg.BatchSize)
	}
}

// shrink halves the size after a batch of n failed.
func (w *Worker[T]) shrink(n int) { w.size = max(n/2, 1) }
