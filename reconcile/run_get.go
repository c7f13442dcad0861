package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

var stateNames = [...]string{"", "queued", "running", "complete", "partial", "failed"}

// String is the state's name in the API.
func (s RunState) String() string { return stateNames[s] }

const runColumns = `
  id, job, version, kind, window_from, window_to, keys, recheck_of, superseded_by, state, plan, plan_reason,
  asked_by, asked_at, started_at, finished_at, error, tally, roll, at_risk, seal, sign`

const sqlRun = `SELECT` + runColumns + ` FROM reconcile_run WHERE id = @id`

// Get reads one run. Error: ErrNoRun.
func (r *Runs) Get(ctx context.Context, id int64) (*Run, error) {
	rows, err := r.pool.Query(ctx, sqlRun, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query run %d: %w", id, err)
	}
	run, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Run])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %d", ErrNoRun, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read run %d: %w", id, err)
	}
	return run, nil
}

var signNames = [...]string{"none", "waiting", "signed", "reopened", "superseded"}

// String is the state's name in the API.
func (s SignState) String() string { return signNames[s] }

// RunFilter narrows a list of runs; zero values do not.
type RunFilter struct {
	Job    string
	States []RunState
	Signs  []SignState
	Before int64 // id, for the next page
	Limit  int
}

const sqlRuns = `SELECT` + runColumns + `
FROM reconcile_run
WHERE (@job = '' OR job = @job) AND (@before = 0 OR id < @before)
  AND (cardinality(@states::smallint[]) = 0 OR state = ANY(@states)) AND (cardinality(@signs::smallint[]) = 0 OR sign = ANY(@signs))
ORDER BY id DESC LIMIT @limit`

// List gives runs, newest first, and whether there are more.
func (r *Runs) List(ctx context.Context, f RunFilter) ([]Run, bool, error) {
	states, signs := []int{}, []int{}
	for _, s := range f.States {
		states = append(states, int(s))
	}
	for _, s := range f.Signs {
		signs = append(signs, int(s))
	}
	rows, err := r.pool.Query(ctx, sqlRuns, pgx.NamedArgs{"job": f.Job, "before": f.Before, "states": states, "signs": signs, "limit": f.Limit + 1})
	if err != nil {
		return nil, false, fmt.Errorf("query runs: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Run])
	if err != nil {
		return nil, false, fmt.Errorf("read runs: %w", err)
	}
	return all[:min(len(all), f.Limit)], len(all) > f.Limit, nil
}

const sqlSegments = `
SELECT no, seg_from, seg_to, state, tries, cut, error, done_at, took_ms FROM reconcile_segment WHERE run_id = @run ORDER BY no`

// Segments lists the parts of a run's window.
func (r *Runs) Segments(ctx context.Context, run int64) ([]Segment, error) {
	rows, err := r.pool.Query(ctx, sqlSegments, pgx.NamedArgs{"run": run})
	if err != nil {
		return nil, fmt.Errorf("query segments of run %d: %w", run, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Segment])
	if err != nil {
		return nil, fmt.Errorf("read segments of run %d: %w", run, err)
	}
	return all, nil
}

// LogLine is one line of a run's log.
type LogLine struct {
	At   time.Time
	Text string
}

const sqlLog = `SELECT at, text FROM reconcile_run_log WHERE run_id = @run ORDER BY at`

// Log is what happened in a run, oldest first.
func (r *Runs) Log(ctx context.Context, run int64) ([]LogLine, error) {
	rows, err := r.pool.Query(ctx, sqlLog, pgx.NamedArgs{"run": run})
	if err != nil {
		return nil, fmt.Errorf("query log of run %d: %w", run, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LogLine])
	if err != nil {
		return nil, fmt.Errorf("read log of run %d: %w", run, err)
	}
	return all, nil
}
