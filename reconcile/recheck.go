package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/schedule"
)

// Kinds of entries in the schedule.
const (
	scheduleRun     = "reconcile"         // ref: the job
	scheduleRecheck = "reconcile_recheck" // ref: the signed run, a slash, the recheck's number
)

// Schedule lets a scheduler start runs: those that jobs ask for by cron, and
// those that look at signed windows again.
func (r *Runs) Schedule(s *schedule.Scheduler) {
	s.Handle(scheduleRun, r.scheduled)
	s.Handle(scheduleRecheck, r.recheckDue)
}

// scheduleRechecks asks for the first look at a signed window again; each one
// asks for the next.
func (r *Runs) scheduleRechecks(ctx context.Context, tx pgx.Tx, run *Run) error {
	def, err := r.jobs.Version(ctx, run.Job, run.Version)
	if err != nil {
		return err
	}
	job, err := def.Parse()
	if err != nil || len(job.Recheck) == 0 {
		return err
	}
	return schedule.Put(ctx, tx, scheduleRecheck, recheckRef(run.ID, 0), r.opts.Clock().Add(job.Recheck[0]))
}

func recheckRef(run int64, no int) string { return fmt.Sprintf("%d/%d", run, no) }

// recheckDue runs a signed window again, as the job is defined now.
func (r *Runs) recheckDue(ctx context.Context, tx pgx.Tx, ref string, at time.Time) (time.Time, error) {
	var id int64
	var no int
	if _, err := fmt.Sscanf(ref, "%d/%d", &id, &no); err != nil {
		return time.Time{}, fmt.Errorf("recheck %q: %w", ref, err)
	}
	run, err := lockRun(ctx, tx, id)
	if err != nil || run.Sign != Signed {
		return time.Time{}, err
	}
	def, err := r.jobs.Current(ctx, run.Job)
	if err != nil {
		return time.Time{}, err
	}
	job, err := def.Parse()
	if err != nil {
		return time.Time{}, err
	}
	plan, reason, err := choosePlan(job, "", r.databases)
	if err != nil {
		return time.Time{}, err
	}
	q := Request{Job: run.Job, From: run.From, To: run.To, kind: OfAge, recheckOf: &id}
	if _, err := r.add(ctx, tx, access.System(), q, def.Version, job, plan, reason); err != nil {
		return time.Time{}, err
	}
	if no+1 < len(job.Recheck) {
		next := at.Add(job.Recheck[no+1] - job.Recheck[no])
		return time.Time{}, schedule.Put(ctx, tx, scheduleRecheck, recheckRef(id, no+1), next)
	}
	return time.Time{}, nil
}

const sqlSupersede = `
UPDATE reconcile_run SET sign = 4, superseded_by = @by WHERE id = @id AND sign = 2`

// supersede marks the signed run whose totals are no longer what they were.
func supersede(ctx context.Context, tx pgx.Tx, run *Run) error {
	if run.RecheckOf == nil || run.State != Complete {
		return nil
	}
	signed, err := lockRun(ctx, tx, *run.RecheckOf)
	if err != nil {
		return err
	}
	if sameTotals(signed.Tally, run.Tally) {
		return note(ctx, tx, run.ID, "the totals of run "+strconv.FormatInt(signed.ID, 10)+" still hold")
	}
	if _, err := tx.Exec(ctx, sqlSupersede, pgx.NamedArgs{"id": signed.ID, "by": run.ID}); err != nil {
		return fmt.Errorf("supersede run %d: %w", signed.ID, err)
	}
	return note(ctx, tx, run.ID, "the totals of run "+strconv.FormatInt(signed.ID, 10)+" have changed: it is superseded")
}

// sameTotals compares what the databases sum up, and what is not whole.
func sameTotals(a, b *Tally) bool {
	left, errLeft := json.Marshal([]any{a.Control, a.Keyless, a.Lines})
	right, errRight := json.Marshal([]any{b.Control, b.Keyless, b.Lines})
	return errLeft == nil && errRight == nil && string(left) == string(right)
}
