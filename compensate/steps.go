package compensate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

// Queue is the River queue of the steps of compensations.
const Queue = "compensate"

// stepArgs is one step of a compensation. Epoch is the compensation's when the
// step was asked for: whoever comes with an older one changes nothing.
type stepArgs struct {
	Compensation int64 `json:"compensation"`
	Epoch        int   `json:"epoch"`
}

// Kind is River's name of the job.
func (stepArgs) Kind() string { return "compensation_step" }

// InsertOpts lets a step be tried until the console's database is back.
func (stepArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: Queue, MaxAttempts: 1000}
}

const sqlEpoch = `SELECT epoch FROM compensation WHERE id = @id`

// enqueue asks for a step in the caller's transaction, at due.
func (c *Compensations) enqueue(ctx context.Context, tx pgx.Tx, id int64, due time.Time) error {
	args := stepArgs{Compensation: id}
	if err := tx.QueryRow(ctx, sqlEpoch, pgx.NamedArgs{"id": id}).Scan(&args.Epoch); err != nil {
		return fmt.Errorf("epoch of compensation %d: %w", id, err)
	}
	delay := due.Sub(c.Clock())
	if delay <= 0 {
		due = time.Time{} // River would look at a scheduled job later
	}
	job, err := c.river.InsertTx(ctx, tx, args, &river.InsertOpts{ScheduledAt: due})
	if err != nil {
		return fmt.Errorf("insert step of compensation %d: %w", id, err)
	}
	if delay <= 0 || delay > soon {
		return nil
	}
	if _, err := tx.Exec(ctx, sqlOnTime, pgx.NamedArgs{"job": job.Job.ID}); err != nil {
		return fmt.Errorf("step of compensation %d: %w", id, err)
	}
	return nil
}

// soon is what has to begin on time. River makes scheduled jobs available every
// 5 s, all of that time at once; those that are available it fetches when they
// are due, as it does with those that are snoozed.
const (
	soon      = time.Hour
	sqlOnTime = `UPDATE river_job SET state = 'available' WHERE id = @job AND state = 'scheduled'`
)

// AddWorkers makes a River client carry out compensations; it has to work Queue.
func (c *Compensations) AddWorkers(workers *river.Workers) {
	river.AddWorker(workers, &stepWorker{compensations: c})
	river.AddWorker(workers, &bulkWorker{compensations: c})
	river.AddWorker(workers, &automaticWorker{compensations: c})
}

type stepWorker struct {
	river.WorkerDefaults[stepArgs]
	compensations *Compensations
}

// Timeout leaves a step time for the call that it is at.
func (w *stepWorker) Timeout(*river.Job[stepArgs]) time.Duration {
	return w.compensations.StepTime + mostTimeout + 30*time.Second
}

// NextRetry is soon: a failed step has left nothing half done.
func (w *stepWorker) NextRetry(job *river.Job[stepArgs]) time.Time {
	return w.compensations.Clock().Add(min(time.Duration(job.Attempt)*2*time.Second, 30*time.Second))
}

// Work does one step of a compensation.
func (w *stepWorker) Work(ctx context.Context, job *river.Job[stepArgs]) error {
	wait, err := w.compensations.step(ctx, job.Args.Compensation, job.Args.Epoch)
	switch {
	case errors.Is(err, errFenced) && wait > 0:
		return river.JobSnooze(wait)
	case errors.Is(err, errFenced):
		return nil
	}
	return err
}

// errFenced ends a step whose place another one has taken.
var errFenced = errors.New("compensate: another step has taken over")

const sqlAcquire = `
UPDATE compensation SET epoch = epoch + 1, lease_until = now() + @lease::interval
WHERE id = @id AND state IN (2, 3, 4) AND paused_by IS NULL AND (lease_until IS NULL AND @epoch IN (-1, epoch) OR lease_until < now())
RETURNING epoch`

const sqlLease = `SELECT state IN (2, 3, 4) AND lease_until IS NOT NULL FROM compensation WHERE id = @id`

// step does what fits into one step. With errFenced, wait is how long to wait for
// another step that is at work, or has crashed; zero: there is nothing to do.
func (c *Compensations) step(ctx context.Context, id int64, epoch int) (wait time.Duration, err error) {
	s := &step{c: c, id: id}
	err = c.Pool.QueryRow(ctx, sqlAcquire, pgx.NamedArgs{"id": id, "epoch": epoch, "lease": c.Lease}).Scan(&s.epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		var busy bool
		if err := c.Pool.QueryRow(ctx, sqlLease, pgx.NamedArgs{"id": id}).Scan(&busy); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return 0, fmt.Errorf("read lease of compensation %d: %w", id, err)
		}
		if busy {
			wait = 2 * time.Second
		}
		return wait, errFenced
	}
	if err != nil {
		return 0, fmt.Errorf("acquire compensation %d: %w", id, err)
	}
	return 0, s.run(ctx)
}

// step is one process's work at one compensation.
type step struct {
	c      *Compensations
	id     int64
	epoch  int
	comp   *Compensation
	action *Action
	rows   []StepRow // without answers
	ended  bool      // the lease is given back already
}

const sqlFence = `UPDATE compensation SET lease_until = now() + @lease::interval WHERE id = @id AND epoch = @epoch`

// fenced runs do in a transaction that fails with errFenced when another step
// has taken over.
func (s *step) fenced(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.c.Pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlFence, pgx.NamedArgs{"id": s.id, "epoch": s.epoch, "lease": s.c.Lease})
		if err != nil {
			return fmt.Errorf("fence: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return errFenced
		}
		return do(tx)
	})
}

// mostStep is how long a step of the queue may take.
const mostStep = 30 * time.Second

// run goes on until the compensation waits for something, has ended, or the
// step's time does not suffice for another call.
func (s *step) run(ctx context.Context) error {
	begin := s.c.Clock()
	for {
		due, err := s.once(ctx)
		if err != nil {
			return s.giveBack(ctx, err)
		}
		if due == nil && s.ended {
			return nil
		}
		if due == nil {
			return s.handOver(ctx, nil)
		}
		now := s.c.Clock()
		if due.After(now) || now.Sub(begin) >= s.c.StepTime || now.Add(s.action.longest()).Sub(begin) > mostStep {
			return s.handOver(ctx, due)
		}
	}
}

// longest is how long one call of the action may take, with its probe.
func (a *Action) longest() (most time.Duration) {
	for _, s := range a.Steps {
		most = max(most, s.Timeout)
	}
	return most + probeTimeout
}

// once does the next thing. It returns when the one after that is due, nil if
// nothing is until a person does something.
func (s *step) once(ctx context.Context) (*time.Time, error) {
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	if s.comp.PausedBy != nil {
		return nil, nil
	}
	switch s.comp.State {
	case Approved:
		return s.start(ctx)
	case Running:
		return s.advance(ctx)
	case Verifying:
		return s.verify(ctx)
	}
	return nil, nil
}

func (s *step) load(ctx context.Context) (err error) {
	b := &pgx.Batch{}
	b.Queue(sqlGet, pgx.NamedArgs{"id": s.id})
	b.Queue(sqlRows, pgx.NamedArgs{"id": s.id})
	results := s.c.Pool.SendBatch(ctx, b)
	defer func() { err = errors.Join(err, results.Close()) }()
	rows, err := results.Query()
	if err == nil {
		s.comp, err = pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Compensation])
	}
	if err == nil {
		rows, err = results.Query()
	}
	if err == nil {
		s.rows, err = pgx.CollectRows(rows, pgx.RowToStructByPos[StepRow])
	}
	if err != nil {
		return fmt.Errorf("read compensation %d: %w", s.id, err)
	}
	s.action, err = s.c.pinned(ctx, s.comp.Action, s.comp.Version)
	return err
}

const (
	sqlHandOver = `UPDATE compensation SET lease_until = NULL WHERE id = @id`
	sqlLeave    = sqlHandOver + ` AND epoch = @epoch`
)

// handOver ends the step, with a successor at due.
func (s *step) handOver(ctx context.Context, due *time.Time) error {
	if due == nil {
		return s.leave(context.WithoutCancel(ctx))
	}
	return s.release(ctx, due, func(pgx.Tx) error { return nil })
}

// leave ends the step without a successor.
func (s *step) leave(ctx context.Context) error {
	tag, err := s.c.Pool.Exec(ctx, sqlLeave, pgx.NamedArgs{"id": s.id, "epoch": s.epoch})
	switch {
	case err != nil:
		return fmt.Errorf("hand over compensation %d: %w", s.id, err)
	case tag.RowsAffected() == 0:
		return errFenced
	}
	return nil
}

func (s *step) release(ctx context.Context, due *time.Time, also func(pgx.Tx) error) error {
	ctx = context.WithoutCancel(ctx)
	return s.fenced(ctx, func(tx pgx.Tx) error {
		if err := also(tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlHandOver, pgx.NamedArgs{"id": s.id}); err != nil {
			return err
		}
		if due == nil {
			return nil
		}
		return s.c.enqueue(ctx, tx, s.id, *due)
	})
}

const sqlInterrupted = `UPDATE compensation SET why = @why WHERE id = @id`

// giveBack frees the compensation for the next try after an error that is not
// its own: the console's database or a business database does not answer.
func (s *step) giveBack(ctx context.Context, why error) error {
	if errors.Is(why, errFenced) {
		return why
	}
	s.c.Log.ErrorContext(ctx, "compensation is interrupted, it goes on soon", "compensation", s.id, "error", why)
	due := s.c.Clock().Add(5 * time.Second)
	return s.release(ctx, &due, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sqlInterrupted, pgx.NamedArgs{"id": s.id, "why": "it is tried again: " + s.c.mask(why.Error())})
		return err
	})
}

// end is Compensations.end by the engine itself.
func (s *step) end(ctx context.Context, tx pgx.Tx, state State, why string) error {
	s.ended = true // or the transaction fails, and with it the step
	return s.c.end(ctx, tx, s.comp, state, "system", why)
}

const sqlEnd = `
UPDATE compensation SET state = @state, why = nullif(@why, ''), lease_until = NULL, due_at = NULL,
  finished_at = CASE WHEN @ended THEN now() END
WHERE id = @id`

// end puts a compensation into a state in which the engine leaves it: ended, or
// waiting for a person. Claims are given back and the break is open again,
// unless it was repaired, or nobody knows.
func (c *Compensations) end(ctx context.Context, tx pgx.Tx, comp *Compensation, state State, by, why string) error {
	b := &pgx.Batch{}
	b.Queue(sqlEnd, pgx.NamedArgs{"id": comp.ID, "state": state, "why": why, "ended": state.Ended()})
	b.Queue(sqlTell, pgx.NamedArgs{"id": comp.ID, "by": by, "kind": state.String(), "text": why, "detail": nil})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("end compensation %d: %w", comp.ID, err)
	}
	if !state.Ended() {
		return nil
	}
	if err := dlq.ReleaseCompensation(ctx, tx, comp.ID); err != nil {
		return err
	}
	if state != Verified && comp.BreakID != nil && comp.StartedAt != nil {
		return reconcile.MarkNotCompensated(ctx, tx, access.System(), *comp.BreakID, comp.ID)
	}
	return nil
}
