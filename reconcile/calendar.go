package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/schedule"
)

const day = 24 * time.Hour

// windowEnd is the last end of a window at or before t. Windows of whole days
// end at midnight in the job's zone, so such a day may have 23 or 25 hours;
// shorter ones are counted from midnight UTC.
func (j *Job) windowEnd(t time.Time) time.Time {
	if j.Window.Size%day != 0 {
		return t.Truncate(j.Window.Size).UTC()
	}
	local := t.In(j.Zone)
	midnight := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, j.Zone)
	days := int(j.Window.Size / day)
	number := int(midnight.Add(12*time.Hour).Unix() / int64(day.Seconds())) // days since 1970, as the zone counts them
	return midnight.AddDate(0, 0, -(number % days)).UTC()
}

// windowStart is where the window begins that ends at end.
func (j *Job) windowStart(end time.Time) time.Time {
	if j.Window.Size%day != 0 {
		return end.Add(-j.Window.Size)
	}
	return end.In(j.Zone).AddDate(0, 0, -int(j.Window.Size/day)).UTC()
}

// nextDue is when the schedule asks for the next run after t.
func (j *Job) nextDue(t time.Time) (time.Time, error) {
	due, err := schedule.NextCron(j.Schedule, j.Zone, t)
	if err != nil {
		return due, fmt.Errorf("schedule of %s: %w", j.Name, err)
	}
	return due, nil
}

// Plan puts every job that has a schedule into it, and takes out the others.
func (r *Runs) Plan(ctx context.Context, jobs []*Job) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		for _, j := range jobs {
			if err := r.planJob(ctx, tx, j); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *Runs) planJob(ctx context.Context, tx pgx.Tx, j *Job) error {
	if j.Schedule == "" {
		return schedule.Drop(ctx, tx, scheduleRun, j.Name)
	}
	due, err := j.nextDue(r.opts.Clock())
	if err != nil {
		return err
	}
	return schedule.Put(ctx, tx, scheduleRun, j.Name, due)
}

const (
	sqlPaused  = `SELECT paused_by IS NOT NULL OR gone_at IS NOT NULL FROM reconcile_job WHERE name = @job`
	sqlLastEnd = `SELECT max(window_to) FROM reconcile_run WHERE job = @job AND kind = 1`
	sqlFailed  = `
SELECT DISTINCT f.window_from, f.window_to FROM reconcile_run f
WHERE f.job = @job AND f.kind = 1 AND f.state = 5 AND f.window_to > now() - interval '7 days'
  AND NOT EXISTS (SELECT FROM reconcile_run g WHERE g.job = f.job AND g.kind = 1 AND g.state <> 5 AND g.window_from = f.window_from AND g.window_to = f.window_to)
ORDER BY 1`
)

// mostMissed bounds how many windows one due time makes good; the next ones
// follow at the next.
const mostMissed = 48

// scheduled makes a run of every window that has ended since the last one, and
// of those whose run has failed.
func (r *Runs) scheduled(ctx context.Context, tx pgx.Tx, name string, at time.Time) (time.Time, error) {
	def, err := r.jobs.Current(ctx, name)
	if errors.Is(err, ErrNoJob) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	job, err := def.Parse()
	if err != nil || job.Schedule == "" {
		return time.Time{}, err
	}
	var paused bool
	if err := tx.QueryRow(ctx, sqlPaused, pgx.NamedArgs{"job": name}).Scan(&paused); err != nil {
		return time.Time{}, err
	}
	if !paused {
		if err := r.windows(ctx, tx, def.Version, job); err != nil {
			return time.Time{}, err
		}
	}
	return job.nextDue(r.opts.Clock())
}

func (r *Runs) windows(ctx context.Context, tx pgx.Tx, version int, job *Job) error {
	var last *time.Time
	if err := tx.QueryRow(ctx, sqlLastEnd, pgx.NamedArgs{"job": job.Name}).Scan(&last); err != nil {
		return fmt.Errorf("last window of %s: %w", job.Name, err)
	}
	plan, reason, err := choosePlan(job, "", r.databases)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sqlFailed, pgx.NamedArgs{"job": job.Name})
	if err != nil {
		return fmt.Errorf("query failed runs of %s: %w", job.Name, err)
	}
	windows, err := pgx.CollectRows(rows, pgx.RowToStructByPos[window])
	if err != nil {
		return fmt.Errorf("read failed runs of %s: %w", job.Name, err)
	}
	for _, w := range append(windows, job.due(last, r.opts.Clock().Add(-job.Window.Grace))...) {
		q := Request{Job: job.Name, From: w.From, To: w.To, kind: ByClock}
		if _, err := r.add(ctx, tx, access.System(), q, version, job, plan, reason); err != nil {
			return err
		}
	}
	return nil
}

// window is what one run covers.
type window struct{ From, To time.Time }

// due lists the windows that have ended by now, oldest first: from the last one
// on, or the latest alone where there was none.
func (j *Job) due(last *time.Time, now time.Time) []window {
	var windows []window
	for end := j.windowEnd(now); len(windows) < 10*mostMissed; end = j.windowStart(end) {
		if last != nil && !end.After(*last) {
			break
		}
		windows = append([]window{{j.windowStart(end), end}}, windows...)
		if last == nil {
			break
		}
	}
	return windows[:min(len(windows), mostMissed)]
}
