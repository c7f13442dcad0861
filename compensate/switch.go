package compensate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// Switch is the kill switch of what runs by itself. With nil it is on: the
// schedule proposes, approves and starts what its actions are trusted with.
type Switch struct {
	StoppedBy *string
	StoppedAt *time.Time
	Reason    *string
}

const sqlSwitch = `SELECT stopped_by, stopped_at, reason FROM compensation_switch`

// Switch reads the kill switch.
func (c *Compensations) Switch(ctx context.Context) (s Switch, err error) {
	return readSwitch(ctx, c.Pool)
}

func readSwitch(ctx context.Context, db querier) (s Switch, err error) {
	rows, err := db.Query(ctx, sqlSwitch)
	if err != nil {
		return s, fmt.Errorf("query the kill switch: %w", err)
	}
	s, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Switch])
	if err != nil {
		return s, fmt.Errorf("read the kill switch: %w", err)
	}
	return s, nil
}

const (
	sqlStop = `UPDATE compensation_switch SET stopped_by = @by, stopped_at = @now, reason = @reason WHERE stopped_by IS NULL`
	sqlGo   = `UPDATE compensation_switch SET stopped_by = NULL, stopped_at = NULL, reason = NULL WHERE stopped_by IS NOT NULL`
)

// Stop keeps the schedule from proposing, and what it has proposed from
// starting; a call under way is finished. Operators and approvers may; it needs a
// reason. Error: ErrState where it is stopped.
func (c *Compensations) Stop(ctx context.Context, actor access.Actor) error {
	act := access.ControlCompensation
	if actor.May(access.ApproveCompensation) {
		act = access.ApproveCompensation
	}
	return c.flip(ctx, actor, act, sqlStop, "compensations.stopped")
}

// Go lets the schedule go on. It needs a reason, and an approver. Error:
// ErrState where it is not stopped.
func (c *Compensations) Go(ctx context.Context, actor access.Actor) error {
	return c.flip(ctx, actor, access.ApproveCompensation, sqlGo, "compensations.resumed")
}

func (c *Compensations) flip(ctx context.Context, actor access.Actor, act access.Act, sql, did string) error {
	if err := actor.Check(act); err != nil {
		return err
	}
	if actor.Reason == "" {
		return access.ErrReasonRequired
	}
	return pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql, pgx.NamedArgs{"by": actor.User, "now": c.Clock(), "reason": actor.Reason})
		if err != nil {
			return fmt.Errorf("kill switch: %w", err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: the switch is there already", ErrState)
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: did, Target: "compensations"})
	})
}
