package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const sqlVersions = `
SELECT job, version, hash, definition, loaded_at, loaded_by FROM reconcile_job_version WHERE job = @job ORDER BY version DESC LIMIT 200`

// Versions lists a job's definitions, newest first, at most 200. Error: ErrNoJob.
func (b *Jobs) Versions(ctx context.Context, job string) ([]Definition, error) {
	rows, err := b.pool.Query(ctx, sqlVersions, pgx.NamedArgs{"job": job})
	if err != nil {
		return nil, fmt.Errorf("query versions of %s: %w", job, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Definition])
	if err != nil {
		return nil, fmt.Errorf("read versions of %s: %w", job, err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoJob, job)
	}
	return all, nil
}

const sqlSignedUntil = `SELECT job, max(window_to) FROM reconcile_run WHERE sign = 2 GROUP BY job`

// SignedUntil is the end of the last signed window of each job that has one.
func (b *Jobs) SignedUntil(ctx context.Context) (map[string]time.Time, error) {
	rows, err := b.pool.Query(ctx, sqlSignedUntil)
	if err != nil {
		return nil, fmt.Errorf("query signed windows: %w", err)
	}
	until := map[string]time.Time{}
	var job string
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&job, &at}, func() error {
		until[job] = at
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read signed windows: %w", err)
	}
	return until, nil
}

// LastWindow is the last whole window whose grace is over.
func (j *Job) LastWindow(now time.Time) (from, to time.Time) {
	to = j.windowEnd(now.Add(-j.Window.Grace))
	return j.windowStart(to), to
}
