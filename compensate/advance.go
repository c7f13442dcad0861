package compensate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// StepRow is where one step stands in one direction.
type StepRow struct {
	No             int
	Op             Op
	Step           string
	State          StepState
	Tries          int
	DueAt          *time.Time
	StartedAt      *time.Time
	DoneAt         *time.Time
	Why            *string
	SkipBy         *string
	SkipReason     *string
	SkipApprovedBy *string
}

const sqlSteps = `
SELECT no, op, step, state, tries, due_at, started_at, done_at, why, skip_by, skip_reason, skip_approved_by
FROM saga_step WHERE compensation_id = @id ORDER BY op, no`

// Steps lists the steps of a compensation, forward before back.
func (c *Compensations) Steps(ctx context.Context, id int64) ([]StepRow, error) {
	rows, err := c.Pool.Query(ctx, sqlSteps, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query steps of compensation %d: %w", id, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[StepRow])
	if err != nil {
		return nil, fmt.Errorf("read steps of compensation %d: %w", id, err)
	}
	return all, nil
}

// course is what a saga does next: run steps, go into another phase, or stop.
type course struct {
	run   []StepRow // ready, in this order or side by side
	phase Op        // steps of this direction have to be planned first
	plan  []int     // which ones
	end   State     // the saga is through
	why   string
	wait  *time.Time // nothing is ready before
}

// chart decides the course from where the steps stand. It is pure: the same rows
// give the same course on every replica and after every crash.
func chart(a *Action, rows []StepRow, cancelled bool, now time.Time) course {
	by := map[Op][]StepRow{}
	for _, r := range rows {
		by[r.Op] = append(by[r.Op], r)
	}
	switch {
	case len(by[Back]) > 0:
		return backwards(a, by, cancelled, now)
	case len(by[Confirm]) > 0:
		return confirming(by[Confirm], now)
	}
	return forwards(a, by[Forward], cancelled, now)
}

func forwards(a *Action, rows []StepRow, cancelled bool, now time.Time) course {
	state := map[string]StepState{}
	through, busy := true, false
	var broken *StepRow
	for i, r := range rows {
		state[r.Step] = r.State
		through = through && (r.State == StepDone || r.State == StepSkipped)
		busy = busy || r.State == StepRunning
		if r.State == StepFailed || r.State == StepUnknown {
			broken = &rows[i]
		}
	}
	switch {
	case through && a.Mode == TryConfirmCancel:
		return course{phase: Confirm, plan: numbers(rows)}
	case through:
		return course{end: Verifying}
	case (broken != nil || cancelled) && !busy:
		return turnBack(a, rows, broken, cancelled)
	case broken != nil || cancelled:
		return ready(rows, now, func(r StepRow) bool { return r.State == StepRunning })
	}
	return ready(rows, now, func(r StepRow) bool {
		for _, id := range a.before(r.No) {
			if state[id] != StepDone && state[id] != StepSkipped {
				return false
			}
		}
		return true
	})
}

func numbers(rows []StepRow) []int {
	no := make([]int, len(rows))
	for i, r := range rows {
		no[i] = r.No
	}
	return no
}

// turnBack plans what undoes the steps that were done, or may have been.
func turnBack(a *Action, rows []StepRow, broken *StepRow, cancelled bool) course {
	if a.Kind != Saga {
		return halted(broken, cancelled)
	}
	var undo []int
	for _, r := range rows {
		begun := r.Tries > 0 || r.State == StepDone
		if begun && r.State != StepSkipped && (a.Mode == TryConfirmCancel || a.Steps[r.No].Compensate != "" && r.State != StepFailed) {
			undo = append(undo, r.No)
		}
	}
	if len(undo) == 0 {
		return halted(broken, cancelled)
	}
	return course{phase: Back, plan: undo}
}

// halted ends what has nothing to undo.
func halted(broken *StepRow, cancelled bool) course {
	switch {
	case broken != nil && broken.State == StepUnknown:
		return course{end: NeedsAttention, why: fmt.Sprintf("step %s: %s", broken.Step, text(broken.Why, "its outcome is not known"))}
	case broken != nil && !cancelled:
		return course{end: NeedsAttention, why: fmt.Sprintf("step %s: %s", broken.Step, text(broken.Why, "it failed"))}
	}
	return course{end: Cancelled, why: "cancelled before anything was done"}
}

// backwards runs what undoes, the last step first, and stops at the first that
// fails.
func backwards(_ *Action, by map[Op][]StepRow, cancelled bool, now time.Time) course {
	rows := by[Back]
	for i := len(rows) - 1; i >= 0; i-- {
		switch r := rows[i]; r.State {
		case StepDone, StepSkipped:
		case StepFailed, StepUnknown:
			return course{end: NeedsAttention, why: fmt.Sprintf("stopped at what undoes %s: %s", r.Step, text(r.Why, "it failed"))}
		default:
			return ready(rows[i:i+1], now, func(StepRow) bool { return true })
		}
	}
	if cancelled {
		return course{end: Cancelled, why: "cancelled; everything that was done is undone"}
	}
	why := "a step failed; everything that was done is undone"
	for _, r := range by[Forward] {
		if r.State == StepFailed || r.State == StepUnknown {
			why = fmt.Sprintf("step %s: %s; everything that was done is undone", r.Step, text(r.Why, "it failed"))
		}
	}
	return course{end: NeedsAttention, why: why}
}

// confirming goes on until every step is confirmed: a reservation that was made
// may not be left.
func confirming(rows []StepRow, now time.Time) course {
	through := true
	for _, r := range rows {
		if r.State == StepFailed || r.State == StepUnknown {
			return course{end: NeedsAttention, why: fmt.Sprintf("confirmation of %s: %s", r.Step, text(r.Why, "it failed"))}
		}
		through = through && (r.State == StepDone || r.State == StepSkipped)
	}
	if through {
		return course{end: Verifying}
	}
	return ready(rows, now, func(StepRow) bool { return true })
}

// ready picks the steps that may run now, or says when the next one may.
func ready(rows []StepRow, now time.Time, may func(StepRow) bool) (c course) {
	for _, r := range rows {
		if r.State != StepWaiting && r.State != StepRunning || !may(r) {
			continue
		}
		if r.DueAt == nil || !r.DueAt.After(now) {
			c.run = append(c.run, r)
		} else if c.wait == nil || r.DueAt.Before(*c.wait) {
			c.wait = r.DueAt
		}
	}
	return c
}

func text(s *string, otherwise string) string {
	if s == nil || *s == "" {
		return otherwise
	}
	return *s
}

// advance follows the course by one move.
func (s *step) advance(ctx context.Context) (*time.Time, error) {
	rows, err := s.c.Steps(ctx, s.id)
	if err != nil {
		return nil, err
	}
	now := s.c.Clock()
	next := chart(s.action, rows, s.comp.CancelBy != nil, now)
	switch {
	case next.end != 0:
		return s.through(ctx, next)
	case next.phase != 0:
		return &now, s.planPhase(ctx, next)
	case len(next.run) > 0:
		group, ctx := errgroup.WithContext(ctx)
		for _, r := range next.run {
			group.Go(func() error { return s.execute(ctx, r) })
		}
		return &now, group.Wait()
	}
	return next.wait, nil
}

const sqlVerifying = `UPDATE compensation SET state = 4, why = NULL WHERE id = @id`

func (s *step) through(ctx context.Context, next course) (*time.Time, error) {
	now := s.c.Clock()
	err := s.fenced(ctx, func(tx pgx.Tx) error {
		if next.end != Verifying {
			return s.c.end(ctx, tx, s.comp, next.end, "system", next.why)
		}
		if _, err := tx.Exec(ctx, sqlVerifying, pgx.NamedArgs{"id": s.id}); err != nil {
			return err
		}
		return tell(ctx, tx, s.id, "system", "executed", "", nil)
	})
	if next.end != Verifying {
		return nil, err
	}
	return &now, err
}

const sqlPlanPhase = `
INSERT INTO saga_step (compensation_id, no, op, step)
SELECT @id, no, @op, step FROM saga_step WHERE compensation_id = @id AND op = 1 AND no = ANY(@no)
ON CONFLICT DO NOTHING`

func (s *step) planPhase(ctx context.Context, next course) error {
	return s.fenced(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlPlanPhase, pgx.NamedArgs{"id": s.id, "op": next.phase, "no": next.plan}); err != nil {
			return fmt.Errorf("plan phase of compensation %d: %w", s.id, err)
		}
		return tell(ctx, tx, s.id, "system", map[Op]string{Back: "undoing", Confirm: "confirming"}[next.phase], "", nil)
	})
}
