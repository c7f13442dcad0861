package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const sqlOpenBreaks = `
SELECT key, type, id, state, currency, amount::text FROM reconcile_break
WHERE job = @job AND state NOT IN (5, 6) AND id > @after ORDER BY id LIMIT @limit`

// recheckOpen reads every open break of the job again by its key: that is what
// closes them. It is done by the run's end, and again from the start if the
// process dies before it.
func (s *step) recheckOpen(ctx context.Context) error {
	var other error
	for after := int64(0); ; {
		rows, err := s.r.pool.Query(ctx, sqlOpenBreaks, pgx.NamedArgs{"job": s.job.Name, "after": after, "limit": lookupKeys})
		if err != nil {
			return fmt.Errorf("query open breaks of %s: %w", s.job.Name, err)
		}
		open, err := pgx.CollectRows(rows, pgx.RowToStructByPos[known])
		if err != nil {
			return fmt.Errorf("read open breaks of %s: %w", s.job.Name, err)
		}
		if len(open) == 0 {
			return other
		}
		after = open[len(open)-1].ID
		if open, err = s.ofOtherKeys(open); err != nil {
			other = err
		}
		if err := s.recheck(ctx, open); err != nil {
			return err
		}
	}
}

// ofOtherKeys leaves out breaks whose key was read from columns of other types
// than the job's now: nobody can look for them. The error names one that is open.
func (s *step) ofOtherKeys(open []known) (readable []known, err error) {
	for _, k := range open {
		if _, wrong := decodeKey(s.c.kinds, k.Key); wrong == nil {
			readable = append(readable, k)
		} else if k.State.Outstanding() {
			err = fmt.Errorf("break %d cannot be looked for: %w than the job's columns have now; explain it", k.ID, wrong)
		}
	}
	return readable, err
}

// recheck reads the keys of breaks again and books what became of them.
func (s *step) recheck(ctx context.Context, open []known) error {
	keys := make([][]byte, len(open))
	for i, k := range open {
		keys[i] = k.Key
	}
	found, err := s.c.reread(ctx, keys, everything, s.r.opts.Clock())
	if err != nil {
		return err
	}
	now := map[string]Finding{}
	for _, f := range found {
		now[string(f.Encoded)] = f
	}
	return s.bookOpen(ctx, keys, func(tx pgx.Tx, open []known) error { return s.bookRecheck(ctx, tx, open, now) })
}

// bookOpen books with the breaks of keys as they are now, which nobody else moves
// meanwhile.
func (s *step) bookOpen(ctx context.Context, keys [][]byte, book func(tx pgx.Tx, open []known) error) error {
	return s.fenced(ctx, func(tx pgx.Tx) error {
		if err := alone(ctx, tx, s.job.Name); err != nil {
			return err
		}
		open, err := openOf(ctx, tx, s.job.Name, keys)
		if err != nil {
			return err
		}
		return book(tx, open)
	})
}

func (s *step) bookRecheck(ctx context.Context, tx pgx.Tx, open []known, now map[string]Finding) error {
	b := newBooking(s.id, s.job.Name, s.job.Key)
	batch := &pgx.Batch{}
	var still []Finding
	for _, k := range open {
		f := k.stays(s.capped(now[string(k.Key)], k))
		if f.Type != k.Type {
			b.close(batch, f, k)
		}
		if f.Type != "" {
			still = append(still, f)
		}
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("close breaks: %w", err)
	}
	return b.book(ctx, tx, unique(still))
}

// capped keeps a break of a job with a cap until nothing is left of its
// difference: it may be one that its run's cap had no room for, and the next
// run's is for that run's own.
func (s *step) capped(f Finding, k known) Finding {
	if s.job.Tolerance.RunTotalCap != nil && f.Type == "" && k.Type == AmountMismatch && !f.Spared.IsZero() {
		f.Type, f.Difference = AmountMismatch, f.Spared
	}
	return f
}

// stays keeps a break whose rows are gone from all sides: nobody has found its key
// whole. An effect that nothing was consumed for is repaired by its removal, and
// what was still to come will not.
func (k known) stays(f Finding) Finding {
	switch {
	case !f.gone(), k.Type == EffectWithoutRecord, k.Type == Timing && k.Amount.IsZero():
		return f
	case k.Type == Timing:
		f.Type = MissingEffect
	default:
		f.Type = k.Type
	}
	f.Currency, f.Difference = k.Currency, k.Amount
	return f
}

// unique drops findings of a key that two breaks of different types led to.
func unique(found []Finding) []Finding {
	seen := map[string]bool{}
	kept := found[:0]
	for _, f := range found {
		if !seen[string(f.Encoded)] {
			seen[string(f.Encoded)] = true
			kept = append(kept, f)
		}
	}
	return kept
}
