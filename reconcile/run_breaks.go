package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// What a run says of a break, as RunBreak and Said hold it.
const (
	SaidNew       = saidNew       // it was not known before
	SaidThere     = saidThere     // it still stands
	SaidWhole     = saidWhole     // its key was found whole: it is closed
	SaidBack      = saidBack      // it was done with, and is back
	SaidExplained = saidExplained // it still stands, and is explained
)

// RunBreak is a break with what one run said of it: type, currency, amount and
// sides are those of the run, everything else is as it stands now.
type RunBreak struct {
	Break
	What int
}

// RunBreakFilter narrows what a run said; zero values do not.
type RunBreakFilter struct {
	What     []int
	Type     Type
	States   []BreakState
	Owner    string // "none": nobody's
	Opened   Opened
	ByAmount bool  // the largest first, without signs; else the newest
	Before   int64 // id of the last one of the page before
	Limit    int
}

// Opened is when a break was opened; zero ends are open.
type Opened struct {
	From, To time.Time // To is exclusive
}

const sqlRunBreakColumns = `
  b.id, b.job, b.key_text, x.type, b.event_id, b.state, x.currency, x.amount::text, x.sides, b.opened_at, b.opened_run,
  b.seen_at, b.seen_run, b.closed_at, b.closed_run, b.closed_how, b.returns, b.owner, b.reason_code, b.explanation, b.explained_by, x.what`

func (f RunBreakFilter) where(run int64) (string, pgx.NamedArgs) {
	args := pgx.NamedArgs{"run": run, "limit": f.Limit + 1}
	conditions := []string{"x.run_id = @run"}
	add := func(set bool, condition, name string, value any) {
		if set {
			conditions, args[name] = append(conditions, condition), value
		}
	}
	add(len(f.What) > 0, "x.what = ANY(@what)", "what", f.What)
	add(f.Type != "", "x.type = @type", "type", f.Type)
	add(len(f.States) > 0, "b.state = ANY(@states)", "states", f.States)
	add(f.Owner == "none", "b.owner IS NULL", "owner", f.Owner)
	add(f.Owner != "" && f.Owner != "none", "b.owner = @owner", "owner", f.Owner)
	add(!f.Opened.From.IsZero(), "b.opened_at >= @opened_from", "opened_from", f.Opened.From)
	add(!f.Opened.To.IsZero(), "b.opened_at < @opened_to", "opened_to", f.Opened.To)
	add(f.Before != 0 && !f.ByAmount, "b.id < @before", "before", f.Before)
	add(f.Before != 0 && f.ByAmount, "(abs(x.amount), b.id) < (SELECT abs(p.amount), p.break_id FROM reconcile_run_break p WHERE p.run_id = @run AND p.break_id = @before)", "before", f.Before)
	return strings.Join(conditions, " AND "), args
}

// OfRun lists what a run said of breaks, in the filter's order, and whether there
// is more.
func (b *Breaks) OfRun(ctx context.Context, run int64, f RunBreakFilter) ([]RunBreak, bool, error) {
	where, args := f.where(run)
	order := "b.id DESC"
	if f.ByAmount {
		order = "abs(x.amount) DESC, b.id DESC"
	}
	rows, err := b.pool.Query(ctx, "SELECT"+sqlRunBreakColumns+
		" FROM reconcile_run_break x JOIN reconcile_break b ON b.id = x.break_id WHERE "+where+" ORDER BY "+order+" LIMIT @limit", args)
	if err != nil {
		return nil, false, fmt.Errorf("query breaks of run %d: %w", run, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RunBreak])
	if err != nil {
		return nil, false, fmt.Errorf("read breaks of run %d: %w", run, err)
	}
	return all[:min(len(all), f.Limit)], len(all) > f.Limit, nil
}

// RunFigure sums up what a run said of breaks of one type in one currency.
type RunFigure struct {
	What     int
	Type     Type
	Currency string
	Items    int64
	Net      Amount
	Gross    Amount // without signs
}

const sqlRunFigures = `
SELECT what, type, currency, count(*), sum(amount)::text, sum(abs(amount))::text
FROM reconcile_run_break WHERE run_id = @run GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`

// Figures sums up what a run said of breaks.
func (b *Breaks) Figures(ctx context.Context, run int64) ([]RunFigure, error) {
	rows, err := b.pool.Query(ctx, sqlRunFigures, pgx.NamedArgs{"run": run})
	if err != nil {
		return nil, fmt.Errorf("query figures of run %d: %w", run, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RunFigure])
	if err != nil {
		return nil, fmt.Errorf("read figures of run %d: %w", run, err)
	}
	return all, nil
}

const sqlRunBefore = `SELECT` + runColumns + `
FROM reconcile_run
WHERE job = @job AND roll IS NOT NULL AND (finished_at, id) < (@at, @id)
ORDER BY finished_at DESC, id DESC LIMIT 1`

// Before is the run whose roll-forward this one continues. Error: ErrNoRun for
// the first of a job, and for one that is not finished.
func (r *Runs) Before(ctx context.Context, run *Run) (*Run, error) {
	rows, err := r.pool.Query(ctx, sqlRunBefore, pgx.NamedArgs{"job": run.Job, "at": run.FinishedAt, "id": run.ID})
	if err != nil {
		return nil, fmt.Errorf("query run before %d: %w", run.ID, err)
	}
	before, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Run])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: before %d", ErrNoRun, run.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("read run before %d: %w", run.ID, err)
	}
	return before, nil
}

const sqlOutstanding = `SELECT count(*) FROM (SELECT FROM reconcile_break WHERE state IN (1, 2, 4, 7) LIMIT @limit) b`

// Outstanding counts the breaks of all jobs that are open money, up to most.
func (b *Breaks) Outstanding(ctx context.Context, most int) (n int, err error) {
	err = b.pool.QueryRow(ctx, sqlOutstanding, pgx.NamedArgs{"limit": most}).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count open breaks: %w", err)
	}
	return n, nil
}

// EventRisk is what one event's open break is about.
type EventRisk struct {
	EventID  string
	Currency string
	Amount   Amount
}

// mostEvents bounds how many events of a run are looked at for their letters.
const mostEvents = 10_000

const sqlRunEvents = `
SELECT b.event_id, x.currency, abs(x.amount)::text
FROM reconcile_run_break x JOIN reconcile_break b ON b.id = x.break_id
WHERE x.run_id = @run AND x.what IN (1, 2, 4) AND b.event_id IS NOT NULL LIMIT @limit`

// Events lists the events of the breaks that a run found open, at most 10,000.
func (b *Breaks) Events(ctx context.Context, run int64) ([]EventRisk, error) {
	rows, err := b.pool.Query(ctx, sqlRunEvents, pgx.NamedArgs{"run": run, "limit": mostEvents})
	if err != nil {
		return nil, fmt.Errorf("query events of run %d: %w", run, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[EventRisk])
	if err != nil {
		return nil, fmt.Errorf("read events of run %d: %w", run, err)
	}
	return all, nil
}
