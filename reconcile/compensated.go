package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
)

const (
	sqlCompensating = `UPDATE reconcile_break SET state = 4 WHERE id = @id AND state IN (1, 2, 7)`
	sqlUncompensate = `UPDATE reconcile_break SET state = CASE WHEN owner IS NULL THEN 7 ELSE 2 END WHERE id = @id AND state = 4`
)

// MarkCompensating says that a compensation is at work on a break, in the
// transaction that starts it. Error: ErrBreakState.
func MarkCompensating(ctx context.Context, tx pgx.Tx, by access.Actor, id, compensation int64) error {
	tag, err := tx.Exec(ctx, sqlCompensating, pgx.NamedArgs{"id": id})
	if err != nil {
		return fmt.Errorf("mark break %d: %w", id, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("%w: %d is not open", ErrBreakState, id)
	}
	return told(ctx, tx, by, id, "compensating", compensation)
}

// MarkNotCompensated gives a break back whose compensation has ended without
// effect.
func MarkNotCompensated(ctx context.Context, tx pgx.Tx, by access.Actor, id, compensation int64) error {
	if _, err := tx.Exec(ctx, sqlUncompensate, pgx.NamedArgs{"id": id}); err != nil {
		return fmt.Errorf("give break %d back: %w", id, err)
	}
	return told(ctx, tx, by, id, "not_compensated", compensation)
}

// MarkUnverified gives a break back whose compensation was carried out and looks
// no further: the next run tells whether the key is whole.
func MarkUnverified(ctx context.Context, tx pgx.Tx, by access.Actor, id, compensation int64) error {
	if _, err := tx.Exec(ctx, sqlUncompensate, pgx.NamedArgs{"id": id}); err != nil {
		return fmt.Errorf("give break %d back: %w", id, err)
	}
	return told(ctx, tx, by, id, "unverified", compensation)
}

// sqlVerified turns what the single-key run has closed by itself into what a
// compensation has repaired: the same money, under its right name.
const sqlVerified = `
WITH b AS (
  UPDATE reconcile_break SET state = 5, closed_how = 'compensated' WHERE id = @id AND state = 6 AND closed_run = @run RETURNING id
)
UPDATE reconcile_movement m SET kind = 'compensated' FROM b WHERE m.break_id = b.id AND m.run_id = @run AND m.kind = 'auto_closed'`

// MarkVerified says that the run that has just closed a break did so because a
// compensation had repaired it.
func MarkVerified(ctx context.Context, tx pgx.Tx, by access.Actor, id, compensation, run int64) error {
	if _, err := tx.Exec(ctx, sqlVerified, pgx.NamedArgs{"id": id, "run": run}); err != nil {
		return fmt.Errorf("mark break %d verified: %w", id, err)
	}
	return told(ctx, tx, by, id, "verified", compensation)
}

func told(ctx context.Context, tx pgx.Tx, by access.Actor, id int64, kind string, compensation int64) error {
	_, err := tx.Exec(ctx, sqlRemark, pgx.NamedArgs{"id": id, "by": by.User, "kind": kind, "text": "", "detail": map[string]any{"compensation": compensation}})
	if err != nil {
		return fmt.Errorf("note on break %d: %w", id, err)
	}
	return nil
}

// State says what a break's key looks like now, read in full on all sides;
// nothing is booked. An empty type: it is whole.
func (r *Runs) State(ctx context.Context, b Break) (Finding, error) {
	def, err := r.jobs.Current(ctx, b.Job)
	if err != nil {
		return Finding{}, err
	}
	job, err := def.Parse()
	if err != nil {
		return Finding{}, err
	}
	c, err := prepare(ctx, job, r.databases)
	if err != nil {
		return Finding{}, err
	}
	key, err := encodeKey(c.kinds, b.Key)
	if err != nil {
		return Finding{}, err
	}
	found, err := c.reread(ctx, [][]byte{key}, everything, r.opts.Clock())
	if err != nil {
		return Finding{}, err
	}
	return found[0], nil
}
