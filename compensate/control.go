package compensate

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// control runs a command on one compensation in one transaction, with an audit row.
func (c *Compensations) control(ctx context.Context, actor access.Actor, act access.Act, id int64, did string, do func(pgx.Tx, *Compensation) error) error {
	if err := actor.Check(act); err != nil {
		return err
	}
	if actor.Reason == "" {
		return access.ErrReasonRequired
	}
	return pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		comp, err := get(ctx, tx, sqlLock, id)
		if err != nil {
			return err
		}
		if err := do(tx, comp); err != nil {
			return err
		}
		if err := tell(ctx, tx, id, actor.User, did, actor.Reason, nil); err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "compensation." + did, Target: fmt.Sprintf("compensation/%d", id)})
	})
}

// among refuses a command that the state does not allow.
func among(comp *Compensation, states ...State) error {
	if !slices.Contains(states, comp.State) {
		return fmt.Errorf("%w: %d is %s", ErrState, comp.ID, comp.State)
	}
	return nil
}

const (
	sqlPause  = `UPDATE compensation SET paused_by = @by WHERE id = @id`
	sqlResume = `UPDATE compensation SET paused_by = NULL WHERE id = @id`
)

// Pause keeps a compensation from its next step; a call under way is finished.
func (c *Compensations) Pause(ctx context.Context, actor access.Actor, id int64) error {
	return c.control(ctx, actor, access.ControlCompensation, id, "paused", func(tx pgx.Tx, comp *Compensation) error {
		if err := among(comp, Approved, Running); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlPause, pgx.NamedArgs{"id": id, "by": actor.User})
		return err
	})
}

// Resume lets a paused compensation go on.
func (c *Compensations) Resume(ctx context.Context, actor access.Actor, id int64) error {
	return c.control(ctx, actor, access.ControlCompensation, id, "resumed", func(tx pgx.Tx, comp *Compensation) error {
		if comp.PausedBy == nil {
			return fmt.Errorf("%w: %d is not paused", ErrState, id)
		}
		if _, err := tx.Exec(ctx, sqlResume, pgx.NamedArgs{"id": id}); err != nil {
			return err
		}
		return c.enqueue(ctx, tx, id, c.Clock())
	})
}

const sqlCancel = `UPDATE compensation SET cancel_by = @by, paused_by = NULL WHERE id = @id`

// Cancel ends a compensation. One that has begun undoes what it has done; what
// undoes cannot be cancelled.
func (c *Compensations) Cancel(ctx context.Context, actor access.Actor, id int64) error {
	return c.control(ctx, actor, access.ControlCompensation, id, "cancel_asked", func(tx pgx.Tx, comp *Compensation) error {
		if err := among(comp, Proposed, Approved, Running, NeedsAttention); err != nil {
			return err
		}
		if comp.State == Proposed || comp.State == Approved || comp.State == NeedsAttention {
			return c.cancelNow(ctx, tx, actor, comp)
		}
		if _, err := tx.Exec(ctx, sqlCancel, pgx.NamedArgs{"id": id, "by": actor.User}); err != nil {
			return err
		}
		return c.enqueue(ctx, tx, id, c.Clock())
	})
}

// cancelNow ends what waits for people. A saga undoes first what it has done; one
// that stopped while undoing or confirming has to be resolved there.
func (c *Compensations) cancelNow(ctx context.Context, tx pgx.Tx, actor access.Actor, comp *Compensation) error {
	rows, err := stepsOf(ctx, tx, comp.ID)
	if err != nil {
		return err
	}
	back := slices.ContainsFunc(rows, func(r StepRow) bool { return r.Op != Forward })
	for _, r := range rows {
		if r.Op != Forward && r.State != StepDone && r.State != StepSkipped {
			return fmt.Errorf("%w: %d has stopped at step %s while %s; resolve that first", ErrState, comp.ID, r.Step, phaseNames[r.Op])
		}
	}
	if comp.State != NeedsAttention || back {
		return c.end(ctx, tx, comp, Cancelled, actor.User, actor.Reason)
	}
	def, err := definition(ctx, tx, pgx.NamedArgs{"action": comp.Action, "version": comp.Version})
	if err != nil {
		return err
	}
	a, err := c.parsed(def)
	if err != nil {
		return err
	}
	if len(a.undoable(rows)) == 0 {
		return c.end(ctx, tx, comp, Cancelled, actor.User, actor.Reason)
	}
	if _, err := tx.Exec(ctx, sqlUndo, pgx.NamedArgs{"id": comp.ID, "by": actor.User}); err != nil {
		return fmt.Errorf("undo compensation %d: %w", comp.ID, err)
	}
	return c.enqueue(ctx, tx, comp.ID, c.Clock())
}

const sqlUndo = `UPDATE compensation SET state = 3, cancel_by = @by, why = NULL WHERE id = @id`

const (
	sqlAgain = `
UPDATE saga_step SET state = 0, tries = 0, due_at = NULL, why = NULL
WHERE compensation_id = @id AND state IN (3, 4) AND op = (SELECT max(op) FROM saga_step WHERE compensation_id = @id)`
	sqlVerifyAgain = `UPDATE compensation SET state = 4, verify_run = NULL, why = NULL WHERE id = @id`
	sqlRunAgain    = `UPDATE compensation SET state = 3, replay_id = NULL, why = NULL WHERE id = @id`
)

const sqlNow = `UPDATE saga_step SET due_at = NULL WHERE compensation_id = @id AND state = 0`

// Retry tries what needs attention once more, with the same idempotency keys:
// the step that failed or whose outcome is unknown, or the verification. One that
// waits to be tried again is tried now.
func (c *Compensations) Retry(ctx context.Context, actor access.Actor, id int64) error {
	return c.control(ctx, actor, access.ControlCompensation, id, "retried", func(tx pgx.Tx, comp *Compensation) error {
		if err := among(comp, NeedsAttention, Running); err != nil {
			return err
		}
		if comp.State == Running {
			if _, err := tx.Exec(ctx, sqlNow, pgx.NamedArgs{"id": id}); err != nil {
				return err
			}
			return c.enqueue(ctx, tx, id, c.Clock())
		}
		if err := c.undone(ctx, tx, id); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlAgain, pgx.NamedArgs{"id": id})
		if err != nil {
			return err
		}
		next := sqlRunAgain
		if tag.RowsAffected() == 0 {
			next = sqlVerifyAgain
		}
		if _, err := tx.Exec(ctx, next, pgx.NamedArgs{"id": id}); err != nil {
			return err
		}
		return c.enqueue(ctx, tx, id, c.Clock())
	})
}

// undone refuses what has been undone: its steps are barred, and would be taken
// for done without any effect.
func (c *Compensations) undone(ctx context.Context, tx pgx.Tx, id int64) error {
	rows, err := stepsOf(ctx, tx, id)
	if err != nil {
		return err
	}
	undoing, open := false, false
	for _, r := range rows {
		undoing = undoing || r.Op == Back
		open = open || r.Op == Back && r.State != StepDone && r.State != StepSkipped
	}
	if undoing && !open {
		return fmt.Errorf("%w: everything that %d has done is undone; cancel it and propose the repair anew", ErrState, id)
	}
	return nil
}

const (
	sqlAskSkip = `
UPDATE saga_step SET skip_by = @by, skip_reason = @reason WHERE compensation_id = @id AND no = @no AND op = @op AND state IN (3, 4)`
	sqlSkip = `
UPDATE saga_step SET state = 5, skip_approved_by = @by, done_at = now()
WHERE compensation_id = @id AND no = @no AND op = @op AND state IN (3, 4) AND skip_by IS NOT NULL AND skip_by <> @by`
)

// AskSkip asks that a step which stopped the compensation be left out; somebody
// else has to approve it.
func (c *Compensations) AskSkip(ctx context.Context, actor access.Actor, id int64, no int, op Op) error {
	return c.control(ctx, actor, access.ControlCompensation, id, "skip_asked", func(tx pgx.Tx, comp *Compensation) error {
		if err := among(comp, NeedsAttention); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlAskSkip, pgx.NamedArgs{"id": id, "no": no, "op": op, "by": actor.User, "reason": actor.Reason})
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("%w: step %d of %d has not stopped it", ErrState, no, id)
		}
		return err
	})
}

// ApproveSkip lets the compensation go on without the step. Error: ErrOwn.
func (c *Compensations) ApproveSkip(ctx context.Context, actor access.Actor, id int64, no int, op Op) error {
	return c.control(ctx, actor, access.ApproveCompensation, id, "skipped", func(tx pgx.Tx, comp *Compensation) error {
		if err := among(comp, NeedsAttention); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlSkip, pgx.NamedArgs{"id": id, "no": no, "op": op, "by": actor.User})
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: nobody else has asked to skip step %d of %d", ErrOwn, no, id)
		}
		if _, err := tx.Exec(ctx, sqlRunAgain, pgx.NamedArgs{"id": id}); err != nil {
			return err
		}
		return c.enqueue(ctx, tx, id, c.Clock())
	})
}
