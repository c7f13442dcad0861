package compensate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

const (
	sqlApprove = `
INSERT INTO compensation_approval (compensation_id, by, maker, reason, hash) VALUES (@id, @by, @maker, @reason, @hash)`
	sqlApprovals = `SELECT count(*) FROM compensation_approval WHERE compensation_id = @id AND hash = @hash`
	sqlApproved  = `
UPDATE compensation SET state = 2, approved_at = now(), expires_at = @expires, due_at = @due WHERE id = @id AND state = 1`
)

// Approve agrees to what a compensation would do, as the actor has seen it: hash
// is that of what was shown. With the last approval that is needed the repair
// starts. What has changed since it was proposed is voided, never executed.
// Errors: ErrOwn, ErrVoid, ErrExpired, ErrState, access.ErrForbidden.
func (c *Compensations) Approve(ctx context.Context, actor access.Actor, id int64, hash []byte) error {
	if err := actor.Check(access.ApproveCompensation); err != nil {
		return err
	}
	var outcome error // what ends the compensation is committed, and told
	err := pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
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
		if outcome, err = c.outdated(ctx, tx, comp); err != nil || outcome != nil {
			return err
		}
		return c.approve(ctx, tx, actor, comp)
	})
	return errors.Join(err, outcome)
}

// outdated ends a compensation that is too old, or whose effect would no longer
// be what it was. The first error says how it ended, the second that it could
// not be told.
func (c *Compensations) outdated(ctx context.Context, tx pgx.Tx, comp *Compensation) (ended, err error) {
	if comp.ExpiresAt != nil && !c.Clock().Before(*comp.ExpiresAt) {
		return fmt.Errorf("%w: %d", ErrExpired, comp.ID), c.end(ctx, tx, comp, Expired, "system", "nobody approved or started it in time")
	}
	why, err := c.changed(ctx, comp)
	if err != nil || why == "" {
		return nil, err
	}
	return fmt.Errorf("%w: %d: %s", ErrVoid, comp.ID, why), c.end(ctx, tx, comp, Voided, "system", why)
}

// changed says what is different from what was proposed; empty: nothing.
func (c *Compensations) changed(ctx context.Context, comp *Compensation) (string, error) {
	if comp.BreakID == nil {
		return "", nil
	}
	b, err := c.Breaks.Get(ctx, *comp.BreakID)
	if err != nil {
		return "", err
	}
	def, err := c.Actions.Current(ctx, comp.Action)
	if err != nil {
		return "", err
	}
	a, err := def.Parse()
	if err != nil {
		return "", err
	}
	key, err := c.keyOf(ctx, b.Job)
	if err != nil {
		return "", err
	}
	p, err := c.plan(def, a, b, key)
	switch {
	case errors.Is(err, ErrInput), errors.Is(err, errBase):
		return err.Error(), nil
	case err != nil:
		return "", err
	case bytes.Equal(p.hash, comp.Hash):
		return "", nil
	case def.Version != comp.Version:
		return fmt.Sprintf("the action is at version %d, and %d was proposed", def.Version, comp.Version), nil
	}
	return fmt.Sprintf("the break was %s %s, and is %s %s", comp.Amount, comp.Currency, b.Amount, b.Currency), nil
}

func (c *Compensations) approve(ctx context.Context, tx pgx.Tx, actor access.Actor, comp *Compensation) error {
	args := pgx.NamedArgs{"id": comp.ID, "by": actor.User, "maker": comp.AskedBy, "reason": actor.Reason, "hash": comp.Hash}
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
	a, err := def.Parse()
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

const (
	sqlLockTurn = `SELECT pg_advisory_xact_lock(hashtextextended('compensation_turn ' || @action, 0))`
	sqlLastTurn = `SELECT max(due_at) FROM compensation WHERE action = @action`
)

// turn is when the next compensation of an action may start by its rate.
func (c *Compensations) turn(ctx context.Context, tx pgx.Tx, a *Action) (time.Time, error) {
	now := c.Clock()
	if a.Limits.Rate == 0 {
		return now, nil
	}
	if _, err := tx.Exec(ctx, sqlLockTurn, pgx.NamedArgs{"action": a.Name}); err != nil {
		return now, err
	}
	var last *time.Time
	if err := tx.QueryRow(ctx, sqlLastTurn, pgx.NamedArgs{"action": a.Name}).Scan(&last); err != nil {
		return now, fmt.Errorf("rate of %s: %w", a.Name, err)
	}
	gap := time.Duration(float64(time.Second) / a.Limits.Rate)
	if last == nil || last.Add(gap).Before(now) {
		return now, nil
	}
	return last.Add(gap), nil
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
