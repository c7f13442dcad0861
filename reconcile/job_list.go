package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/internal/schedule"
)

// JobSummary is a job with where it stands.
type JobSummary struct {
	Name     string
	Version  int
	PausedBy *string
	GoneAt   *time.Time
	File     *int       // the version that its file said last; nil: it was made in the console
	NextAt   *time.Time // by its schedule
	Last     *Run       // the last finished run of a window
	Open     int64      // outstanding breaks
	Waiting  int64      // runs that wait for a signature
}

const sqlJobs = `
SELECT j.name, j.version, j.paused_by, j.gone_at, j.file_version,
  (SELECT count(*) FROM reconcile_break b WHERE b.job = j.name AND b.state IN (1, 2, 4, 7)),
  (SELECT count(*) FROM reconcile_run r WHERE r.job = j.name AND r.sign IN (1, 3)),
  (SELECT max(r.id) FROM reconcile_run r WHERE r.job = j.name AND r.state >= 3 AND r.kind <> 3)
FROM reconcile_job j ORDER BY j.name`

// List gives all jobs, those included whose file is gone.
func (b *Jobs) List(ctx context.Context, runs *Runs) ([]JobSummary, error) {
	rows, err := b.pool.Query(ctx, sqlJobs)
	if err != nil {
		return nil, fmt.Errorf("query jobs: %w", err)
	}
	last := map[string]int64{}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s JobSummary, err error) {
		var run *int64
		err = row.Scan(&s.Name, &s.Version, &s.PausedBy, &s.GoneAt, &s.File, &s.Open, &s.Waiting, &run)
		if run != nil {
			last[s.Name] = *run
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("read jobs: %w", err)
	}
	due, err := schedule.Upcoming(ctx, b.pool, scheduleRun)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if at, ok := due[all[i].Name]; ok {
			all[i].NextAt = &at
		}
		if id, ok := last[all[i].Name]; ok {
			if all[i].Last, err = runs.Get(ctx, id); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// Point is one run in a job's trend.
type Point struct {
	Run      int64
	To       time.Time
	State    RunState
	Matched  int64
	Keys     int64 // matched and not
	AtRisk   map[string]Line
	Duration time.Duration
}

const sqlTrend = `
SELECT id, window_to, state, tally, at_risk, extract(epoch FROM finished_at - started_at)::float8 FROM (
  SELECT * FROM reconcile_run WHERE job = @job AND kind IN (1, 2) AND state IN (3, 4) ORDER BY window_to DESC, id DESC LIMIT @limit
) r ORDER BY window_to, id`

// Trend gives the last runs of a job, oldest first, for its charts.
func (b *Jobs) Trend(ctx context.Context, job string, limit int) ([]Point, error) {
	rows, err := b.pool.Query(ctx, sqlTrend, pgx.NamedArgs{"job": job, "limit": limit})
	if err != nil {
		return nil, fmt.Errorf("query trend of %s: %w", job, err)
	}
	points, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Point, err error) {
		t := newTally()
		var seconds float64
		err = row.Scan(&p.Run, &p.To, &p.State, t, &p.AtRisk, &seconds)
		p.Matched, p.Keys, p.Duration = t.Matched, t.Matched+t.Wrong(), time.Duration(seconds*float64(time.Second))
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read trend of %s: %w", job, err)
	}
	return points, nil
}

const sqlPause = `UPDATE reconcile_job SET paused_by = @by, paused_reason = @reason WHERE name = @job`

// Pause stops a job's schedule, or lets it go on; by hand it can be run all the
// same. Errors: ErrNoJob, access.ErrReasonRequired.
func (b *Jobs) Pause(ctx context.Context, actor access.Actor, job string, paused bool) error {
	if err := actor.Check(access.RunJob); err != nil {
		return err
	}
	if actor.Reason == "" {
		return access.ErrReasonRequired
	}
	args, act := pgx.NamedArgs{"job": job, "by": nil, "reason": nil}, "job.resumed"
	if paused {
		args["by"], args["reason"], act = actor.User, actor.Reason, "job.paused"
	}
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlPause, args)
		if err != nil {
			return fmt.Errorf("pause %s: %w", job, err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: %s", ErrNoJob, job)
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: act, Target: "job/" + job})
	})
}
