package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
)

// Queue is the River queue of the steps of runs.
const Queue = "reconcile"

// stepArgs is one step of a run. Epoch is the run's when the step was asked
// for: the step takes the next one, and whoever comes with an older one changes
// nothing.
type stepArgs struct {
	Run   int64 `json:"run"`
	Epoch int   `json:"epoch"`
}

// Kind is River's name of the job.
func (stepArgs) Kind() string { return "reconcile_step" }

// InsertOpts lets a step be tried until the console's database is back.
func (stepArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: Queue, MaxAttempts: 1000}
}

// enqueue asks for a step in the caller's transaction.
func (r *Runs) enqueue(ctx context.Context, tx pgx.Tx, run int64, epoch int) error {
	if _, err := r.river.InsertTx(ctx, tx, stepArgs{run, epoch}, nil); err != nil {
		return fmt.Errorf("insert step of run %d: %w", run, err)
	}
	return nil
}

// AddWorkers makes a River client carry out runs; it has to work Queue.
func (r *Runs) AddWorkers(workers *river.Workers) { river.AddWorker(workers, &stepWorker{runs: r}) }

type stepWorker struct {
	river.WorkerDefaults[stepArgs]
	runs *Runs
}

// Timeout leaves a step time for the segment that it is at: a statement's limit
// is what bounds it.
func (w *stepWorker) Timeout(*river.Job[stepArgs]) time.Duration { return -1 }

// NextRetry is soon: a failed step has left nothing half done.
func (w *stepWorker) NextRetry(job *river.Job[stepArgs]) time.Time {
	return w.runs.opts.Clock().Add(min(time.Duration(job.Attempt)*2*time.Second, 30*time.Second))
}

// Work does one step of a run.
func (w *stepWorker) Work(ctx context.Context, job *river.Job[stepArgs]) error {
	_, wait, err := w.runs.step(ctx, job.Args.Run, job.Args.Epoch)
	switch {
	case errors.Is(err, errFenced) && wait > 0:
		return river.JobSnooze(wait)
	case errors.Is(err, errFenced):
		return nil
	}
	return err
}

// errFenced ends a step whose place another one has taken.
var errFenced = errors.New("reconcile: another step has taken over")

// Do carries a run out from where it is to its end, in this process. A run that
// another process works at is waited for.
func (r *Runs) Do(ctx context.Context, id int64) (*Run, error) {
	for {
		run, err := r.Get(ctx, id)
		if err != nil || run.State.Finished() {
			return run, err
		}
		_, wait, err := r.step(ctx, id, anyEpoch)
		if err != nil && !errors.Is(err, errFenced) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// anyEpoch is for a step that nobody asked for beforehand.
const anyEpoch = -1

const sqlAcquire = `
UPDATE reconcile_run SET epoch = epoch + 1, lease_until = now() + @lease::interval, state = 2, started_at = coalesce(started_at, now())
WHERE id = @id AND state <= 2 AND (lease_until IS NULL AND @epoch IN (-1, epoch) OR lease_until < now())
RETURNING epoch, started_at`

const sqlLease = `SELECT state <= 2 AND lease_until IS NOT NULL FROM reconcile_run WHERE id = @id`

// step does what fits into one step. finished: nothing is left to do. With
// errFenced, wait is how long to wait for another step that is at work, or has
// crashed; zero: there is nothing for this one to do.
func (r *Runs) step(ctx context.Context, id int64, epoch int) (finished bool, wait time.Duration, err error) {
	s := &step{r: r, id: id}
	args := pgx.NamedArgs{"id": id, "epoch": epoch, "lease": r.opts.Lease}
	err = r.pool.QueryRow(ctx, sqlAcquire, args).Scan(&s.epoch, &s.started)
	if errors.Is(err, pgx.ErrNoRows) {
		var busy bool
		if err := r.pool.QueryRow(ctx, sqlLease, pgx.NamedArgs{"id": id}).Scan(&busy); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return false, 0, fmt.Errorf("read lease of run %d: %w", id, err)
		}
		if busy {
			wait = 2 * time.Second
		}
		return false, wait, errFenced
	}
	if err != nil {
		return false, 0, fmt.Errorf("acquire run %d: %w", id, err)
	}
	finished, err = s.run(ctx)
	return finished, 0, err
}

// step is one process's work at one run.
type step struct {
	r       *Runs
	id      int64
	epoch   int
	started time.Time

	row     *Run
	job     *Job
	c       *comparison
	slowest atomic.Int64 // nanoseconds that the slowest of the last segments took
}

// stay renews the lease while a segment takes its time. ctx ends with errFenced
// when another step has taken over.
func (s *step) stay(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	tick := time.NewTicker(s.r.opts.Lease / 4)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			err := s.fenced(ctx, func(pgx.Tx) error { return nil })
			if errors.Is(err, errFenced) {
				cancel(err)
			}
		}
	})
	return ctx, func() {
		tick.Stop()
		cancel(nil)
		renewing.Wait()
	}
}

const sqlFence = `UPDATE reconcile_run SET lease_until = now() + @lease::interval WHERE id = @id AND epoch = @epoch AND state = 2`

// fenced runs do in a transaction that fails with errFenced when another step
// has taken over.
func (s *step) fenced(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.r.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlFence, pgx.NamedArgs{"id": s.id, "epoch": s.epoch, "lease": s.r.opts.Lease})
		if err != nil {
			return fmt.Errorf("fence: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return errFenced
		}
		return do(tx)
	})
}

// run compares segment after segment until the run is finished or the step's
// time is over.
func (s *step) run(ctx context.Context) (finished bool, err error) {
	if err := s.open(ctx); err != nil {
		return true, s.fail(ctx, err)
	}
	ctx, stop := s.stay(ctx)
	defer stop()
	end := time.Now().Add(s.r.opts.StepTime)
	for time.Now().Before(end) {
		todo, err := s.waiting(ctx)
		if err != nil {
			return false, err
		}
		if len(todo) == 0 {
			return true, s.finish(ctx)
		}
		s.slowest.Store(0)
		if err := s.compareAll(ctx, todo); err != nil {
			return false, err
		}
		if s.longest() > s.r.opts.StepTime/2 {
			if err := s.halve(ctx); err != nil {
				return false, err
			}
		}
	}
	return false, s.handOver(ctx)
}

// open reads the pinned definition and asks the databases about it.
func (s *step) open(ctx context.Context) (err error) {
	if s.row, err = s.r.Get(ctx, s.id); err != nil {
		return err
	}
	def, err := s.r.jobs.Version(ctx, s.row.Job, s.row.Version)
	if err != nil {
		return err
	}
	if s.job, err = def.Parse(); err != nil {
		return err
	}
	if s.c, err = prepare(ctx, s.job, s.r.databases); err != nil {
		return err
	}
	s.c.plan = s.row.Plan
	return nil
}

const sqlHandOver = `UPDATE reconcile_run SET lease_until = NULL WHERE id = @id`

func (s *step) handOver(ctx context.Context) error {
	return s.fenced(context.WithoutCancel(ctx), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlHandOver, pgx.NamedArgs{"id": s.id}); err != nil {
			return err
		}
		return s.r.enqueue(ctx, tx, s.id, s.epoch)
	})
}

const sqlFail = `
UPDATE reconcile_run SET state = 5, finished_at = now(), lease_until = NULL, error = @error WHERE id = @id`

// fail ends a run that cannot be compared at all: nothing it says is true.
func (s *step) fail(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return why // stopped, not failed: another step goes on
	}
	return s.fenced(ctx, func(tx pgx.Tx) error {
		if err := note(ctx, tx, s.id, "the run failed: "+why.Error()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlFail, pgx.NamedArgs{"id": s.id, "error": why.Error()})
		return err
	})
}

const sqlNote = `INSERT INTO reconcile_run_log (run_id, text) VALUES (@run, @text)`

// note writes into the run's log.
func note(ctx context.Context, tx pgx.Tx, run int64, text string) error {
	_, err := tx.Exec(ctx, sqlNote, pgx.NamedArgs{"run": run, "text": text})
	return err
}
