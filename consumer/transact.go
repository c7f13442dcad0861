package consumer

import (
	"context"
	"runtime/debug"
)

// transact claims the events of a chunk, runs the handlers of the fresh ones in
// order and commits, all in one transaction. Copies of an id within the chunk
// share one representative, so they are finished only with its commit.
func (w *Worker[T]) transact(ctx context.Context, chunk []Delivery) error {
	events, known := w.sieve(ctx, representatives(chunk))
	fresh, err := w.attempt(ctx, events)
	if err != nil {
		return err
	}
	w.remember(ctx, events)
	w.meter.filtered.Add(filtered(chunk, known))
	w.meter.consumed.Add(int64(fresh))
	w.meter.duplicates.Add(int64(len(chunk) - fresh))
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

func (w *Worker[T]) attempt(ctx context.Context, events []Event) (fresh int, err error) {
	if len(events) == 0 {
		return 0, nil
	}
	claim, err := w.cfg.Store.Claim(ctx, w.cfg.Group, ids(events))
	if err != nil {
		return 0, err
	}
	defer claim.Rollback(ctx)
	for _, ev := range events {
		if !claim.Fresh(ev.ID) {
			continue
		}
		fresh++
		if err := w.handle(ctx, claim.Tx(), ev); err != nil {
			return 0, claim.Blame(err)
		}
	}
	return fresh, claim.Commit(ctx)
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
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return w.cfg.Handler(ctx, tx, ev)
}
