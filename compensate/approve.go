package compensate

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

const (
	sqlApprove = `
INSERT INTO compensation_approval (compensation_id, by, maker, at, reason, hash, approve_by)
SELECT id, @by, asked_by, @now, @reason, @hash, approve_by FROM compensation WHERE id = @id`
	sqlApprovals = `SELECT count(*) FROM compensation_approval WHERE compensation_id = @id AND hash = @hash`
	sqlApproved  = `
UPDATE compensation SET state = 2, approved_at = now(), expires_at = @expires, due_at = @due WHERE id = @id AND state = 1`
)

// Approve agrees to what a compensation would do, as the actor has seen it: hash
// is that of what was shown. With the last approval that is needed the repair
// starts. What has changed since it was proposed is voided, never executed.
// Errors: ErrOwn, ErrVoid, ErrExpired, ErrState, access.ErrForbidden,
// access.ErrReasonRequired.
func (c *Compensations) Approve(ctx context.Context, actor access.Actor, id int64, hash []byte) error {
	if err := actor.Check(access.ApproveCompensation); err != nil {
		return err
	}
	if actor.Reason == "" {
		return access.ErrReasonRequired
	}
	why, err := c.unlike(ctx, id)
	if err != nil {
		return err
	}
	var outcome error // what ends the compensation is committed, and told
	err = pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		comp, err := get(ctx, tx, sqlLock, id)
		if err != nil {
			return err
		}
		switch {
		case comp.State != Proposed:
			return fmt.Errorf("%w: %d is %s", ErrState, id, comp.State)
		case comp.AskedBy == actor.User:
			return fmt.Errorf("%w: %d", ErrOwn, id)
		case !bytes.Equal(comp.Hash, hash):
			return fmt.Errorf("%w: %d is not what was shown", ErrVoid, id)
		}
		if outcome, err = c.outdated(ctx, tx, comp, why); err != nil || outcome != nil {
			return err
		}
		return c.approve(ctx, tx, actor, comp)
	})
	return errors.Join(err, outcome)
}

// unlike says what is different from what was proposed, of one that waits for
// approval.
func (c *Compensations) unlike(ctx context.Context, id int64) (string, error) {
	comp, err := c.Get(ctx, id)
	if err != nil || comp.State != Proposed {
		return "", err
	}
	return c.changed(ctx, comp)
}

// outdated ends a compensation that is too old, or whose effect would no longer
// be what it was, which why says. The first error says how it ended, the second
// that it could not be told.
func (c *Compensations) outdated(ctx context.Context, tx pgx.Tx, comp *Compensation, why string) (ended, err error) {
	switch {
	case comp.ExpiresAt != nil && !c.Clock().Before(*comp.ExpiresAt):
		return fmt.Errorf("%w: %d", ErrExpired, comp.ID), c.end(ctx, tx, comp, Expired, "system", "nobody approved or started it in time")
	case why != "":
		return fmt.Errorf("%w: %d: %s", ErrVoid, comp.ID, why), c.end(ctx, tx, comp, Voided, "system", why)
	}
	return nil, nil
}

func (c *Compensations) approve(ctx context.Context, tx pgx.Tx, actor access.Actor, comp *Compensation) error {
	args := pgx.NamedArgs{"id": comp.ID, "by": actor.User, "now": c.Clock(), "reason": actor.Reason, "hash": comp.Hash}
	_, err := tx.Exec(ctx, sqlApprove, args)
	if violated, ok := errors.AsType[*pgconn.PgError](err); ok && violated.Code == "23505" {
		return fmt.Errorf("%w: %s has approved %d", ErrState, actor.User, comp.ID)
	}
	if err != nil {
		return fmt.Errorf("approve %d: %w", comp.ID, err)
	}
	if err := tell(ctx, tx, comp.ID, actor.User, "approved", actor.Reason, nil); err != nil {
		return err
	}
	var have int
	if err := tx.QueryRow(ctx, sqlApprovals, args).Scan(&have); err != nil {
		return fmt.Errorf("count approvals of %d: %w", comp.ID, err)
	}
	if have >= comp.Checkers {
		if err := c.ready(ctx, tx, comp); err != nil {
			return err
		}
	}
	return audit.Write(ctx, tx, actor, audit.Entry{Action: "compensation.approved", Target: fmt.Sprintf("compensation/%d", comp.ID), Detail: map[string]any{"hash": fmt.Sprintf("%x", comp.Hash), "approvals": have, "of": comp.Checkers}})
}

// ready lets an approved compensation start, when its action's rate allows.
func (c *Compensations) ready(ctx context.Context, tx pgx.Tx, comp *Compensation) error {
	def, err := definition(ctx, tx, pgx.NamedArgs{"action": comp.Action, "version": comp.Version})
	if err != nil {
		return err
	}
	a, err := c.parsed(def)
	if err != nil {
		return err
	}
	due, err := c.turn(ctx, tx, a)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, sqlApproved, pgx.NamedArgs{"id": comp.ID, "expires": due.Add(a.Approval.Expires), "due": due})
	if err != nil {
		return fmt.Errorf("approve %d: %w", comp.ID, err)
	}
	return c.enqueue(ctx, tx, comp.ID, due)
}

// Reject declines a compensation for a reason. Errors: ErrOwn, ErrState.
func (c *Compensations) Reject(ctx context.Context, actor access.Actor, id int64) error {
	if err := actor.Check(access.ApproveCompensation); err != nil {
		return err
	}
	if actor.Reason == "" {
		return access.ErrReasonRequired
	}
	return pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		comp, err := get(ctx, tx, sqlLock, id)
		switch {
		case err != nil:
			return err
		case comp.State != Proposed:
			return fmt.Errorf("%w: %d is %s", ErrState, id, comp.State)
		case comp.AskedBy == actor.User:
			return fmt.Errorf("%w: %d", ErrOwn, id)
		}
		if err := c.end(ctx, tx, comp, Rejected, actor.User, actor.Reason); err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "compensation.rejected", Target: fmt.Sprintf("compensation/%d", id)})
	})
}
