package compensate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const sqlTurn = `
INSERT INTO compensation_turn AS t (action, next_at) VALUES (@action, @now::timestamptz + @gap::interval)
ON CONFLICT (action) DO UPDATE SET next_at = greatest(t.next_at, @now::timestamptz) + @gap::interval
RETURNING next_at`

// turn reserves when the next compensation of an action may start by its rate.
// Turns are one row, so the rate holds across replicas.
func (c *Compensations) turn(ctx context.Context, tx pgx.Tx, a *Action) (time.Time, error) {
	now := c.Clock()
	if a.Limits.Rate == 0 {
		return now, nil
	}
	gap := a.gap()
	var next time.Time
	if err := tx.QueryRow(ctx, sqlTurn, pgx.NamedArgs{"action": a.Name, "now": now, "gap": gap}).Scan(&next); err != nil {
		return now, fmt.Errorf("turn of %s: %w", a.Name, err)
	}
	return next.Add(-gap), nil
}

// gap is what lies between two starts.
func (a *Action) gap() time.Duration { return time.Duration(float64(time.Second) / a.Limits.Rate) }

// missed reports whether a turn has gone by: after an outage all of them would
// start at once.
func (a *Action) missed(due *time.Time, now time.Time) bool {
	return a.Limits.Rate > 0 && (due == nil || now.Sub(*due) > max(a.gap(), 2*time.Second))
}
