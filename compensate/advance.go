package compensate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
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
	Answer         json.RawMessage // of the last attempt, secrets masked; nil: none
	Barrier        *string         // what the participant's barrier said to it: applied, duplicate, empty, suspended; nil: nothing
}

const (
	stepColumns = `no, op, step, state, tries, due_at, started_at, done_at, why, skip_by, skip_reason, skip_approved_by`
	sqlSteps    = `
SELECT ` + stepColumns + `, a.answer, a.answer->>'barrier'
FROM saga_step s LEFT JOIN LATERAL (
  SELECT answer FROM compensation_attempt WHERE compensation_id = s.compensation_id AND no = s.no AND op = s.op ORDER BY id DESC LIMIT 1) a ON true
WHERE compensation_id = @id ORDER BY op, no`
	sqlRows = `SELECT ` + stepColumns + `, NULL::jsonb, NULL::text FROM saga_step WHERE compensation_id = @id ORDER BY op, no`
)

// Steps lists the steps of a compensation, forward before back.
func (c *Compensations) Steps(ctx context.Context, id int64) ([]StepRow, error) {
	return stepsOf(ctx, c.Pool, id)
}

func stepsOf(ctx context.Context, db querier, id int64) ([]StepRow, error) {
	rows, err := db.Query(ctx, sqlSteps, pgx.NamedArgs{"id": id})
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
		return confirming(a, by[Confirm], now)
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
	case cancelled && !busy && (!through || len(a.undoable(rows)) > 0):
		return turnBack(a, rows, broken, cancelled)
	case through && a.Mode == TryConfirmCancel:
		return course{phase: Confirm, plan: numbers(rows)}
	case through:
		return course{end: Verifying}
	case broken != nil && !busy:
		return turnBack(a, rows, broken, cancelled)
	case broken != nil || cancelled:
		return ready(a, rows, now, func(r StepRow) bool { return r.State == StepRunning })
	}
	return ready(a, rows, now, func(r StepRow) bool {
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
	undo := a.undoable(rows)
	if len(undo) == 0 {
		return halted(rows, broken, cancelled)
	}
	return course{phase: Back, plan: undo}
}

// undoable are the steps that were done or may have been, and can be undone. A
// reservation is released even if it was refused: a participant may have kept it.
func (a *Action) undoable(rows []StepRow) (undo []int) {
	if a.Kind != Saga {
		return nil
	}
	for _, r := range rows {
		begun := r.Tries > 0 || r.State == StepDone
		if r.Op != Forward || !begun || r.State == StepSkipped {
			continue
		}
		if a.Mode == TryConfirmCancel || a.Steps[r.No].Compensate != "" && r.State != StepFailed {
			undo = append(undo, r.No)
		}
	}
	return undo
}

// halted ends what has nothing that could be undone.
func halted(rows []StepRow, broken *StepRow, cancelled bool) course {
	switch {
	case broken != nil && broken.State == StepUnknown:
		return course{end: NeedsAttention, why: fmt.Sprintf("step %s: %s", broken.Step, text(broken.Why, "its outcome is not known"))}
	case broken != nil && !cancelled:
		return course{end: NeedsAttention, why: fmt.Sprintf("step %s: %s", broken.Step, text(broken.Why, "it failed"))}
	}
	var stay []string
	for _, r := range rows {
		if r.State == StepDone {
			stay = append(stay, r.Step)
		}
	}
	if len(stay) > 0 {
		return course{end: Cancelled, why: "cancelled; nothing undoes what was done: " + strings.Join(stay, ", ")}
	}
	return course{end: Cancelled, why: "cancelled before anything was done"}
}

// backwards runs what undoes, the last step first, and stops at the first that
// fails.
func backwards(a *Action, by map[Op][]StepRow, cancelled bool, now time.Time) course {
	rows := by[Back]
	for i := len(rows) - 1; i >= 0; i-- {
		switch r := rows[i]; r.State {
		case StepDone, StepSkipped:
		case StepFailed, StepUnknown:
			return course{end: NeedsAttention, why: fmt.Sprintf("stopped at what undoes %s: %s", r.Step, text(r.Why, "it failed"))}
		default:
			return ready(a, rows[i:i+1], now, func(StepRow) bool { return true })
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
func confirming(a *Action, rows []StepRow, now time.Time) course {
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
	return ready(a, rows, now, func(StepRow) bool { return true })
}

// ready picks the steps that may run now, or says when the next one may.
func ready(a *Action, rows []StepRow, now time.Time, may func(StepRow) bool) (c course) {
	for _, r := range rows {
		if r.State != StepWaiting && r.State != StepRunning || !may(r) {
			continue
		}
		due := a.due(r)
		if due == nil || !due.After(now) {
			c.run = append(c.run, r)
		} else if c.wait == nil || due.Before(*c.wait) {
			c.wait = due
		}
	}
	return c
}

// due is when a step may be done; nil: now. What a process that died has left
// running in a saga is left alone for the step's time-out: its call may be under way.
func (a *Action) due(r StepRow) *time.Time {
	if r.State != StepRunning || a.Kind != Saga || r.StartedAt == nil {
		return r.DueAt
	}
	over := r.StartedAt.Add(mostTimeout)
	if r.Op == Forward {
		over = r.StartedAt.Add(a.Steps[r.No].Timeout)
	}
	return &over
}

func text(s *string, otherwise string) string {
	if s == nil || *s == "" {
		return otherwise
	}
	return *s
}

// advance follows the course by one move.
func (s *step) advance(ctx context.Context) (*time.Time, error) {
	now := s.c.Clock()
	next := chart(s.action, s.rows, s.comp.CancelBy != nil, now)
	switch {
	case next.end != 0:
		return s.through(ctx, next)
	case next.phase != 0:
		return &now, s.planPhase(ctx, next)
	case len(next.run) > 0:
		var group errgroup.Group // one that fails leaves the calls of the others alone
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
			return s.end(ctx, tx, next.end, next.why)
		}
		if err := tell(ctx, tx, s.id, "system", "executed", "", nil); err != nil {
			return err
		}
		if !s.verifies() {
			return s.finish(ctx, tx, 0)
		}
		_, err := tx.Exec(ctx, sqlVerifying, pgx.NamedArgs{"id": s.id})
		return err
	})
	if next.end != Verifying || !s.verifies() {
		return nil, err
	}
	return &now, err
}

// phaseNames are kinds of notes, too.
var phaseNames = map[Op]string{Back: "undoing", Confirm: "confirming"}

const sqlPlanPhase = `
INSERT INTO saga_step (compensation_id, no, op, step)
SELECT @id, no, @op, step FROM saga_step WHERE compensation_id = @id AND op = 1 AND no = ANY(@no)
ON CONFLICT DO NOTHING`

func (s *step) planPhase(ctx context.Context, next course) error {
	return s.fenced(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlPlanPhase, pgx.NamedArgs{"id": s.id, "op": next.phase, "no": next.plan}); err != nil {
			return fmt.Errorf("plan phase of compensation %d: %w", s.id, err)
		}
		return tell(ctx, tx, s.id, "system", phaseNames[next.phase], "", nil)
	})
}
