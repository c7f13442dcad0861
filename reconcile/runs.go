package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// Options tune Runs. The zero value is the default.
type Options struct {
	StepTime time.Duration // how long one step works before it hands over; 0 is 20 s
	Lease    time.Duration // how long a step may be silent before it is overtaken; 0 is 60 s
	Clock    func() time.Time
	Log      *slog.Logger
}

// Runs makes and carries out runs. It is safe for any number of replicas.
type Runs struct {
	pool      *pgxpool.Pool
	jobs      *Jobs
	databases map[string]Database
	opts      Options
	river     *river.Client[pgx.Tx] // inserts steps
}

// NewRuns makes the runs of the jobs in book, on named databases.
func NewRuns(pool *pgxpool.Pool, jobs *Jobs, databases map[string]Database, o Options) (*Runs, error) {
	if o.StepTime == 0 {
		o.StepTime = 20 * time.Second
	}
	if o.Lease == 0 {
		o.Lease = time.Minute
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: o.Log})
	if err != nil {
		return nil, fmt.Errorf("make the queue of runs: %w", err)
	}
	return &Runs{pool: pool, jobs: jobs, databases: guarded(databases), opts: o, river: client}, nil
}

// Request is a run that is asked for.
type Request struct {
	Job       string
	From, To  time.Time  // the window; of keys: ignored
	Keys      [][]string // not empty: only these keys are read again
	Plan      string     // empty: chosen
	kind      RunKind
	recheckOf *int64
}

// Errors of Ask.
var (
	// ErrWindow is returned for a window that is empty, too young or closed.
	ErrWindow = errors.New("reconcile: the window cannot be run")
	// ErrPlan is returned for a plan that does not fit the job.
	ErrPlan = errors.New("reconcile: the plan does not fit the job")
	// ErrKey is returned for a key of more or fewer columns than the job's.
	ErrKey = errors.New("reconcile: the key does not fit the job")
)

const sqlAddRun = `
INSERT INTO reconcile_run (job, version, kind, window_from, window_to, keys, recheck_of, plan, plan_reason, asked_by)
VALUES (@job, @version, @kind, @from, @to, @keys, @recheck, @plan, @plan_reason, @by)
RETURNING id`

const sqlAddSegments = `
INSERT INTO reconcile_segment (run_id, no, seg_from, seg_to)
SELECT @run, n, to_timestamp(f / 1e6), to_timestamp(t / 1e6) FROM unnest(@no::int[], @from::bigint[], @to::bigint[]) u(n, f, t)`

// Ask makes a run, which a River client with AddWorkers or Do carries out. It
// pins the job's present version. Errors: ErrNoJob, ErrWindow, ErrPlan, ErrKey,
// access.ErrForbidden.
func (r *Runs) Ask(ctx context.Context, actor access.Actor, q Request) (int64, error) {
	if err := actor.Check(access.RunJob); err != nil {
		return 0, err
	}
	def, err := r.jobs.Current(ctx, q.Job)
	if err != nil {
		return 0, err
	}
	job, err := def.Parse()
	if err != nil {
		return 0, err
	}
	if q, err = r.complete(q, job); err != nil {
		return 0, err
	}
	plan, reason, err := choosePlan(job, q.Plan, r.databases)
	if err != nil {
		return 0, err
	}
	var id int64
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if q.kind == ByHand {
			if err := notClosed(ctx, tx, q); err != nil {
				return err
			}
		}
		id, err = r.add(ctx, tx, actor, q, def.Version, job, plan, reason)
		return err
	})
	return id, err
}

const sqlClosedBy = `
SELECT id, window_from, window_to FROM reconcile_run
WHERE job = @job AND sign = 2 AND window_from < @to AND window_to > @from ORDER BY id LIMIT 1`

// notClosed refuses a window that somebody has signed for.
func notClosed(ctx context.Context, tx pgx.Tx, q Request) error {
	var id int64
	var from, to time.Time
	err := tx.QueryRow(ctx, sqlClosedBy, pgx.NamedArgs{"job": q.Job, "from": q.From, "to": q.To}).Scan(&id, &from, &to)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for signed runs of %s: %w", q.Job, err)
	}
	return fmt.Errorf("%w: run %d of %s to %s is signed; reopen it first", ErrWindow, id, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))
}

// complete fills in what a request leaves out, and refuses a window that is not
// over: rows of transactions under way would be missing from it.
func (r *Runs) complete(q Request, job *Job) (Request, error) {
	now := r.opts.Clock()
	for _, parts := range q.Keys {
		if len(parts) != len(job.Key) {
			return q, fmt.Errorf("%w: %q has %d parts, and the job's has %d: %s", ErrKey, parts, len(parts), len(job.Key), strings.Join(job.Key, ", "))
		}
	}
	if len(q.Keys) > 0 {
		q.kind, q.From, q.To = OfKeys, now.Add(-time.Second), now
		return q, nil
	}
	if q.kind == 0 {
		q.kind = ByHand
	}
	switch {
	case !q.From.Before(q.To):
		return q, fmt.Errorf("%w: it ends at %s, and begins at %s", ErrWindow, q.To.Format(time.RFC3339), q.From.Format(time.RFC3339))
	case q.To.After(now.Add(-job.Window.Grace)):
		return q, fmt.Errorf("%w: it ends at %s, and may be looked at from %s on: its last rows have a grace of %s", ErrWindow, q.To.Format(time.RFC3339), q.To.Add(job.Window.Grace).Format(time.RFC3339), job.Window.Grace)
	}
	return q, nil
}

func (r *Runs) add(ctx context.Context, tx pgx.Tx, actor access.Actor, q Request, version int, job *Job, plan, reason string) (id int64, err error) {
	var keys []byte
	if len(q.Keys) > 0 {
		if keys, err = json.Marshal(q.Keys); err != nil {
			return 0, err
		}
	}
	err = tx.QueryRow(ctx, sqlAddRun, pgx.NamedArgs{
		"job": job.Name, "version": version, "kind": q.kind, "from": q.From.UTC(), "to": q.To.UTC(), "keys": keys,
		"recheck": q.recheckOf, "plan": plan, "plan_reason": reason, "by": actor.User,
	}).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("add run of %s: %w", job.Name, err)
	}
	if q.kind != OfKeys {
		if err := addSegments(ctx, tx, id, segments(q.From, q.To, job.Window.Size)); err != nil {
			return 0, err
		}
	}
	detail := map[string]any{"job": job.Name, "from": q.From, "to": q.To, "version": version, "keys": len(q.Keys), "plan": plan}
	if err := audit.Write(ctx, tx, actor, audit.Entry{Action: "run.asked", Target: fmt.Sprintf("run/%d", id), Detail: detail}); err != nil {
		return 0, err
	}
	return id, r.enqueue(ctx, tx, id, 0)
}

func addSegments(ctx context.Context, tx pgx.Tx, run int64, parts []interval) error {
	no, from, to := make([]int, len(parts)), make([]int64, len(parts)), make([]int64, len(parts))
	for i, p := range parts {
		no[i], from[i], to[i] = i, p.from, p.to
	}
	_, err := tx.Exec(ctx, sqlAddSegments, pgx.NamedArgs{"run": run, "no": no, "from": from, "to": to})
	if err != nil {
		return fmt.Errorf("add segments of run %d: %w", run, err)
	}
	return nil
}
