package reconcile

import (
	"context"
	"errors"
	"fmt"

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
