package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standing is how a job stands now, for whoever has to be told.
type Standing struct {
	Job     string
	Version int
	Paused  bool
	AtRisk  map[string]Line // outstanding breaks but timing, by currency, without signs
	Oldest  *time.Time      // since when the oldest of them is open
	LastRun int64           // the last finished run of a window; 0: none
	State   RunState        // of that run
	Error   string          // why it is partial or failed
	DueAt   *time.Time      // when the next window is to be run, or was; nil: by hand only, or paused
}

// Open is how many breaks are outstanding, timing left out.
func (s Standing) Open() (n int64) {
	for _, l := range s.AtRisk {
		n += l.Keys
	}
	return n
}

// Overdue is by how much the next window's run is late; 0 where it is not.
func (s Standing) Overdue(now time.Time) time.Duration {
	if s.DueAt == nil || !s.DueAt.Before(now) {
		return 0
	}
	return now.Sub(*s.DueAt)
}

const sqlStandings = `
SELECT j.name, j.version, j.paused_by IS NOT NULL, v.definition, first.loaded_at, last.id, last.state, coalesce(last.error, ''),
  (SELECT max(window_to) FROM reconcile_run r WHERE r.job = j.name AND r.kind = 1 AND r.state >= 3)
FROM reconcile_job j
JOIN reconcile_job_version v ON v.job = j.name AND v.version = j.version
JOIN reconcile_job_version first ON first.job = j.name AND first.version = 1
LEFT JOIN LATERAL (
  SELECT r.id, r.state, r.error FROM reconcile_run r WHERE r.job = j.name AND r.state >= 3 AND r.kind IN (1, 2) ORDER BY r.id DESC LIMIT 1
) last ON true
WHERE j.gone_at IS NULL ORDER BY j.name`

// Standings tells how every job stands whose definition is there.
func (b *Jobs) Standings(ctx context.Context) ([]Standing, error) {
	rows, err := b.pool.Query(ctx, sqlStandings)
	if err != nil {
		return nil, fmt.Errorf("query standings: %w", err)
	}
	all, err := pgx.CollectRows(rows, readStanding)
	if err != nil {
		return nil, fmt.Errorf("read standings: %w", err)
	}
	return all, b.addRisks(ctx, all)
}

func readStanding(row pgx.CollectableRow) (s Standing, err error) {
	var text string
	var since time.Time
	var run *int64
	var state *RunState
	var lastEnd *time.Time
	if err := row.Scan(&s.Job, &s.Version, &s.Paused, &text, &since, &run, &state, &s.Error, &lastEnd); err != nil {
		return s, err
	}
	s.AtRisk = map[string]Line{}
	if run != nil {
		s.LastRun, s.State = *run, *state
	}
	job, err := ParseJob(s.Job, []byte(text))
	if err != nil || s.Paused || job.Schedule == "" {
		return s, err
	}
	due, err := job.dueAfter(lastEnd, since)
	s.DueAt = &due
	return s, err
}

// dueAfter is when the schedule asks for the window after the last one that was
// run, or for the first one of a job that is there since then.
func (j *Job) dueAfter(lastEnd *time.Time, since time.Time) (time.Time, error) {
	if lastEnd == nil {
		return j.nextDue(since)
	}
	return j.nextDue(j.windowNext(*lastEnd).Add(j.Window.Grace - time.Nanosecond))
}

// windowNext is the end of the window that begins at start.
func (j *Job) windowNext(start time.Time) time.Time {
	if j.Window.Size%day != 0 {
		return start.Add(j.Window.Size)
	}
	return start.In(j.Zone).AddDate(0, 0, int(j.Window.Size/day)).UTC()
}

const sqlRisks = `
SELECT job, currency, count(*), sum(abs(amount))::text, min(opened_at) FROM reconcile_break
WHERE state IN (1, 2, 4, 7) AND type <> 'timing' GROUP BY job, currency`

func (b *Jobs) addRisks(ctx context.Context, all []Standing) error {
	of := map[string]*Standing{}
	for i := range all {
		of[all[i].Job] = &all[i]
	}
	rows, err := b.pool.Query(ctx, sqlRisks)
	if err != nil {
		return fmt.Errorf("query amounts at risk: %w", err)
	}
	var job, currency string
	var line Line
	var oldest time.Time
	_, err = pgx.ForEachRow(rows, []any{&job, &currency, &line.Keys, &line.Amount, &oldest}, func() error {
		s := of[job]
		if s == nil {
			return nil // its file is gone
		}
		s.AtRisk[currency] = line
		if at := oldest; s.Oldest == nil || at.Before(*s.Oldest) {
			s.Oldest = &at
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read amounts at risk: %w", err)
	}
	return nil
}

// RunCount is how many runs of a job are in a state.
type RunCount struct {
	Job   string
	State RunState
	N     int64
}

const sqlRunCounts = `SELECT job, state, count(*) FROM reconcile_run GROUP BY job, state ORDER BY job, state`

// Counts tells how many runs there are by job and state.
func (r *Runs) Counts(ctx context.Context) ([]RunCount, error) {
	rows, err := r.pool.Query(ctx, sqlRunCounts)
	if err != nil {
		return nil, fmt.Errorf("count runs: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RunCount])
	if err != nil {
		return nil, fmt.Errorf("count runs: %w", err)
	}
	return all, nil
}
