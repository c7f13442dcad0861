package consumer

import "context"

// Filter remembers consumed events outside the database, to spare it a look-up.
// It may forget, and it may be down: both cost speed only. What it must never do
// is to remember an event that was not committed.
type Filter interface {
	// Seen reports, for each id, whether the group is known to have consumed it.
	// After an error nothing is known.
	Seen(ctx context.Context, group string, ids []string) ([]bool, error)

	// Committed is told the ids whose records are committed, and only then.
	Committed(ctx context.Context, group string, ids []string)
}

// sieve splits events into those that the store is asked about and the ids that
// the filter knows as consumed.
func (w *Worker[T]) sieve(ctx context.Context, events []Event) (rest []Event, known map[string]bool) {
	if w.cfg.Filter == nil {
		return events, nil
	}
	seen, err := w.cfg.Filter.Seen(ctx, w.cfg.Group, ids(events))
	if err != nil || len(seen) != len(events) {
		w.log.Debug("filter does not answer, asking the store alone", "error", err)
		return events, nil
	}
	known = map[string]bool{}
	for i, ev := range events {
		if seen[i] {
			known[ev.ID] = true
		} else {
			rest = append(rest, ev)
		}
	}
	return rest, known
}

// remember tells the filter what has been committed, by us or by others.
func (w *Worker[T]) remember(ctx context.Context, events []Event) {
	if w.cfg.Filter != nil && len(events) > 0 {
		w.cfg.Filter.Committed(ctx, w.cfg.Group, ids(events))
	}
}

// filtered counts the deliveries of known events, copies included.
func filtered(chunk []Delivery, known map[string]bool) (n int64) {
	for _, d := range chunk {
		if known[d.ID] {
			n++
		}
	}
	return n
}
