package compensate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/reconcile"
)

// Tally counts attempts of this process by what they were and how they ended.
type Tally struct {
	Kind    Kind
	Op      Op
	Outcome string // done, retry, refused, unknown, already
	N       int64
}

type counter struct {
	mu sync.Mutex
	by map[Tally]int64 // N is 0 in the key
}

func (c *Compensations) count(kind Kind, op Op, o outcome) {
	if o == waiting {
		return
	}
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	if c.counts.by == nil {
		c.counts.by = map[Tally]int64{}
	}
	c.counts.by[Tally{Kind: kind, Op: op, Outcome: string(o)}]++
}

// Attempted counts the attempts of this process since its start.
func (c *Compensations) Attempted() []Tally {
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	all := make([]Tally, 0, len(c.counts.by))
	for k, n := range c.counts.by {
		k.N = n
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Tally) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Outcome, b.Outcome))
	})
	return all
}

// Figure is how many compensations of an action are in a state, and since when.
type Figure struct {
	Action string
	State  State
	Items  int64
	Oldest time.Time // asked for
}

const sqlFigures = `
SELECT action, state, count(*), min(asked_at) FROM compensation WHERE state IN (1, 2, 3, 4, 7) GROUP BY 1, 2 ORDER BY 1, 2`

// Figures counts what is not ended, by action and state.
func (c *Compensations) Figures(ctx context.Context) ([]Figure, error) {
	rows, err := c.Pool.Query(ctx, sqlFigures)
	if err != nil {
		return nil, fmt.Errorf("query figures of compensations: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Figure])
	if err != nil {
		return nil, fmt.Errorf("read figures of compensations: %w", err)
	}
	return all, nil
}

// Spent is what an action has started on a day of its zone, in one currency.
type Spent struct {
	Action   string
	Currency string
	Amount   reconcile.Amount // without signs
	Items    int64
	Limit    *reconcile.Amount // limits.amount_per_day; nil: none
}

const sqlSpent = `SELECT currency, amount::text, items FROM compensation_day WHERE action = @action AND day = @day ORDER BY 1`

// SpentToday is what an action has started today, by currency. Error: ErrNoAction.
func (c *Compensations) SpentToday(ctx context.Context, action string) ([]Spent, error) {
	_, a, err := c.current(ctx, action)
	if err != nil {
		return nil, err
	}
	rows, err := c.Pool.Query(ctx, sqlSpent, pgx.NamedArgs{"action": action, "day": c.Clock().In(a.Zone).Format(time.DateOnly)})
	if err != nil {
		return nil, fmt.Errorf("query what %s has spent: %w", action, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Spent, err error) {
		s.Action, s.Limit = action, a.Limits.AmountPerDay
		err = row.Scan(&s.Currency, &s.Amount, &s.Items)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("read what %s has spent: %w", action, err)
	}
	return all, nil
}
