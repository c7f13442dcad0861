package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const sqlLastRoll = `
SELECT roll FROM reconcile_run WHERE job = @job AND roll IS NOT NULL ORDER BY finished_at DESC, id DESC LIMIT 1`

const sqlMovements = `
SELECT kind, currency, sum(items)::bigint, sum(amount)::text, max(id) FROM reconcile_movement
WHERE job = @job AND id > @after GROUP BY kind, currency`

// moved is a sum of movements.
type moved struct {
	Kind     Movement
	Currency string
	Items    int64
	Amount   Amount
	Last     int64
}

// rollForward continues the roll-forward of the job's last run.
func rollForward(ctx context.Context, tx pgx.Tx, job string) (*Roll, error) {
	before := &Roll{}
	rows, err := tx.Query(ctx, sqlLastRoll, pgx.NamedArgs{"job": job})
	if err != nil {
		return nil, fmt.Errorf("query last roll-forward: %w", err)
	}
	last, err := pgx.CollectRows(rows, pgx.RowTo[*Roll])
	if err != nil {
		return nil, fmt.Errorf("read last roll-forward: %w", err)
	}
	if len(last) > 0 {
		before = last[0]
	}
	rows, err = tx.Query(ctx, sqlMovements, pgx.NamedArgs{"job": job, "after": before.Last})
	if err != nil {
		return nil, fmt.Errorf("query movements: %w", err)
	}
	since, err := pgx.CollectRows(rows, pgx.RowToStructByPos[moved])
	if err != nil {
		return nil, fmt.Errorf("read movements: %w", err)
	}
	return before.next(since), nil
}

// next opens with what the last one closed with, and adds what moved since.
func (r *Roll) next(since []moved) *Roll {
	n := &Roll{Currencies: map[string]RollCurrency{}, Last: r.Last}
	for currency, c := range r.Currencies {
		n.Currencies[currency] = RollCurrency{Opening: c.Closing, Moved: map[Movement]Line{}, Closing: c.Closing}
	}
	for _, m := range since {
		c, ok := n.Currencies[m.Currency]
		if !ok {
			c.Moved = map[Movement]Line{}
		}
		c.Moved[m.Kind] = Line{m.Items, m.Amount}
		c.Closing = Line{c.Closing.Keys + m.Items, c.Closing.Amount.Add(m.Amount)}
		n.Currencies[m.Currency] = c
		n.Last = max(n.Last, m.Last)
	}
	return n
}

const sqlAtRisk = `
SELECT currency, count(*), sum(abs(amount))::text FROM reconcile_break
WHERE job = @job AND state IN (1, 2, 4, 7) AND type <> 'timing' GROUP BY currency`

// atRisk is the open money of a job, by currency and without signs: too much and
// too little do not cancel. Timing is left out.
func atRisk(ctx context.Context, tx pgx.Tx, job string) (map[string]Line, error) {
	rows, err := tx.Query(ctx, sqlAtRisk, pgx.NamedArgs{"job": job})
	if err != nil {
		return nil, fmt.Errorf("query amount at risk: %w", err)
	}
	risk := map[string]Line{}
	var currency string
	var line Line
	_, err = pgx.ForEachRow(rows, []any{&currency, &line.Keys, &line.Amount}, func() error {
		risk[currency] = line
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read amount at risk: %w", err)
	}
	return risk, nil
}
