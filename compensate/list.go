package compensate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"oncemore/reconcile"
)

// Filter narrows a list of compensations; zero values do not.
type Filter struct {
	IDs       []int64
	States    []State
	Action    string
	Job       string
	Currency  string
	AmountMin *reconcile.Amount // without its sign
	AskedBy   string
	BreakID   int64
	LetterID  uuid.UUID
	EventID   string
	OlderThan time.Duration
	Bulk      int64 // the selection that they were asked for with
	Sagas     bool  // with several steps, or steps that undo
	Before    int64 // id, for the next page
	Limit     int
}

// Row is one compensation in a list, with what its steps add up to.
type Row struct {
	Compensation
	Approvals int  // of its present hash
	Tries     int  // attempts, in all steps
	Unknown   bool // a step may have been applied: nobody knows
	Retrying  bool // a step waits to be tried again
	Steps     int  // in the plan; 0: not started
}

// where writes the filter's conditions; the values are in args.
func (f Filter) where(now time.Time) (string, pgx.NamedArgs) {
	args := pgx.NamedArgs{}
	conditions := []string{"true"}
	add := func(set bool, condition, name string, value any) {
		if set {
			conditions, args[name] = append(conditions, condition), value
		}
	}
	add(len(f.IDs) > 0, "c.id = ANY(@ids)", "ids", f.IDs)
	add(len(f.States) > 0, "c.state = ANY(@states)", "states", f.States)
	add(f.Action != "", "c.action = @action", "action", f.Action)
	add(f.Job != "", "c.job = @job", "job", f.Job)
	add(f.Currency != "", "c.currency = @currency", "currency", f.Currency)
	add(f.AskedBy != "", "c.asked_by = @asked_by", "asked_by", f.AskedBy)
	add(f.BreakID != 0, "c.break_id = @break", "break", f.BreakID)
	add(f.LetterID != uuid.Nil, "c.letter_id = @letter", "letter", f.LetterID)
	add(f.EventID != "", "c.event_id = @event", "event", f.EventID)
	add(f.OlderThan != 0, "c.asked_at < @older", "older", now.Add(-f.OlderThan))
	add(f.Bulk != 0, "c.bulk_id = @bulk", "bulk", f.Bulk)
	add(f.Sagas, "jsonb_array_length(c.effect) > @one", "one", 1)
	add(f.Before != 0, "c.id < @before", "before", f.Before)
	if f.AmountMin != nil {
		add(true, "abs(c.amount) >= @amount::numeric", "amount", f.AmountMin.String())
	}
	return strings.Join(conditions, " AND "), args
}

// sqlList numbers the steps' states as StepRow has them: 0 waiting, 4 unknown.
const sqlList = `
SELECT` + columns + `,
  (SELECT count(*) FROM compensation_approval a WHERE a.compensation_id = c.id AND a.hash = c.hash),
  s.tries, s.unknown, s.retrying, s.steps
FROM compensation c CROSS JOIN LATERAL (
  SELECT coalesce(sum(tries), 0) AS tries, coalesce(bool_or(state = 4), false) AS unknown,
    coalesce(bool_or(state = 0 AND tries > 0), false) AS retrying, count(*) FILTER (WHERE op = 1) AS steps
  FROM saga_step WHERE compensation_id = c.id) s
WHERE `

// List gives compensations, newest first, and whether there are more.
func (c *Compensations) List(ctx context.Context, f Filter) ([]Row, bool, error) {
	where, args := f.where(c.Clock())
	args["limit"] = f.Limit + 1
	rows, err := c.Pool.Query(ctx, sqlList+where+" ORDER BY c.id DESC LIMIT @limit", args)
	if err != nil {
		return nil, false, fmt.Errorf("query compensations: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Row])
	if err != nil {
		return nil, false, fmt.Errorf("read compensations: %w", err)
	}
	return all[:min(len(all), f.Limit)], len(all) > f.Limit, nil
}

// Summary is one compensation with what its steps add up to. Error: ErrNotFound.
func (c *Compensations) Summary(ctx context.Context, id int64) (Row, error) {
	all, _, err := c.List(ctx, Filter{IDs: []int64{id}, Limit: 1})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: %d", ErrNotFound, id)
	}
	if err != nil {
		return Row{}, err
	}
	return all[0], nil
}

// CountLimit is where counting ends: a list says "10,000+".
const CountLimit = 10_000

// Count says how many match, up to one more than CountLimit.
func (c *Compensations) Count(ctx context.Context, f Filter) (int, error) {
	where, args := f.where(c.Clock())
	args["limit"] = CountLimit + 1
	var n int
	err := c.Pool.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM compensation c WHERE "+where+" LIMIT @limit) x", args).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count compensations: %w", err)
	}
	return n, nil
}

// Total is how much some compensations are about, in one currency.
type Total struct {
	Currency string
	Items    int64
	Amount   reconcile.Amount // without signs
}

const sqlTotals = `
SELECT c.currency, count(*), sum(abs(c.amount))::text FROM compensation c WHERE %s GROUP BY 1 ORDER BY 1`

// Totals adds up what matches, by currency.
func (c *Compensations) Totals(ctx context.Context, f Filter) ([]Total, error) {
	where, args := f.where(c.Clock())
	rows, err := c.Pool.Query(ctx, fmt.Sprintf(sqlTotals, where), args)
	if err != nil {
		return nil, fmt.Errorf("query totals of compensations: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Total])
	if err != nil {
		return nil, fmt.Errorf("read totals of compensations: %w", err)
	}
	return all, nil
}
