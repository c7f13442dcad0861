package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// transact claims the events of a chunk, runs the handlers of the fresh ones in
// order and commits, all in one transaction. Copies of an id within the chunk
// share one representative, so they are finished only with its commit.
func (w *Worker[T]) transact(ctx context.Context, chunk []Delivery) (err error) {
	fresh, result := 0, resultDuplicate
	ctx, span := w.traces.transaction(ctx, chunk)
	defer func() { ended(span, result, err) }()
	events, known := w.sieve(ctx, representatives(chunk))
	if fresh, err = w.attempt(ctx, events, len(chunk) > 1); err != nil {
		return err
	}
	w.remember(ctx, events)
	if len(events) > 0 {
		w.meter.committed(len(chunk))
	}
	w.meter.filtered.Add(filtered(chunk, known))
	w.meter.consumed.Add(int64(fresh))
	w.meter.duplicates.Add(int64(len(chunk) - fresh))
	if fresh > 0 {
		result = resultConsumed
	}
	return nil
}

// representatives are the first deliveries of each event id, in order.
func representatives(chunk []Delivery) []Event {
	seen := make(map[string]bool, len(chunk))
	events := make([]Event, 0, len(chunk))
	for _, d := range chunk {
		if !seen[d.ID] {
			seen[d.ID] = true
			events = append(events, d.Event)
		}
	}
	return events
}

// attempt returns how many events took effect now. Each of several has a span of
// its own.
func (w *Worker[T]) attempt(ctx context.Context, events []Event, several bool) (fresh int, err error) {
	if len(events) == 0 {
		return 0, nil
	}
	began := time.Now()
	claim, err := w.claim(ctx, events)
	w.meter.claimed(time.Since(began))
	if err != nil {
		return 0, named(err, events)
	}
	defer claim.Rollback(ctx)
	var t tally
	ctx = context.WithValue(ctx, tallyKey{}, &t)
	todo := slices.DeleteFunc(slices.Clone(events), func(ev Event) bool { return !claim.Fresh(ev.ID) })
	if err := w.handleAll(ctx, claim.Tx(), todo, several); err != nil {
		return 0, claim.Blame(named(err, todo))
	}
	if err := claim.Commit(ctx); err != nil {
		return 0, err
	}
	return max(len(todo)-t.duplicates, 0), nil
}

func (w *Worker[T]) handleAll(ctx context.Context, tx T, events []Event, several bool) error {
	if w.cfg.BatchHandler != nil {
		return w.handleBatch(ctx, tx, events)
	}
	handle := w.handle
	if several {
		handle = w.handleTraced
	}
	for _, ev := range events {
		if err := handle(ctx, tx, ev); err != nil {
			return err
		}
	}
	return nil
}

// culpritError is a batch error by the id of its event: indexes change with the
// events that are left out.
type culpritError struct {
	id  string
	err error
}

func (e *culpritError) Error() string { return e.err.Error() }
func (e *culpritError) Unwrap() error { return e.err }

// named turns the index of a batch error into the event's id. An event that was
// alone needs none.
func named(err error, handled []Event) error {
	var batch *BatchError
	switch {
	case !errors.As(err, &batch):
		return err
	case len(handled) == 1:
		return batch.Err
	case batch.Index < 0 || batch.Index >= len(handled):
		return fmt.Errorf("batch error names none of %d events: %w", len(handled), err)
	}
	return &culpritError{id: handled[batch.Index].ID, err: batch.Err}
}

func ids(events []Event) []string {
	all := make([]string, len(events))
	for i, ev := range events {
		all[i] = ev.ID
	}
	return all
}

// handle runs the handler and turns its panic into an error with the stack.
func (w *Worker[T]) handle(ctx context.Context, tx T, ev Event) (err error) {
	defer recovered(&err)
	return w.cfg.Handler(ctx, tx, ev)
}

func (w *Worker[T]) handleTraced(ctx context.Context, tx T, ev Event) error {
	ctx, span := w.traces.delivery(ctx, ev)
	err := w.handle(ctx, tx, ev)
	ended(span, resultConsumed, err)
	return err
}

func (w *Worker[T]) handleBatch(ctx context.Context, tx T, events []Event) (err error) {
	if len(events) == 0 {
		return nil
	}
	defer recovered(&err)
	return w.cfg.BatchHandler(ctx, tx, events)
}

func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
