package fleet

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

const sqlIsReported = `
SELECT EXISTS (SELECT FROM consumer_status WHERE consumer_group = @group)`

const sqlCommand = `
INSERT INTO consumer_command (consumer_group, paused, actor, reason)
VALUES (@group, @paused, @actor, @reason)
ON CONFLICT (consumer_group) DO UPDATE SET
  paused = excluded.paused, actor = excluded.actor, reason = excluded.reason, at = now()`

// Pause makes every replica stop starting transactions for the group, within
// about two seconds. It lasts across restarts until Resume. Errors:
// access.ErrForbidden, ErrUnknownGroup for a group that is not ours.
func (f *Fleet) Pause(ctx context.Context, actor access.Actor, group string) error {
	return f.command(ctx, actor, group, true, "consumer.paused")
}

// Resume ends a pause. Errors: as for Pause.
func (f *Fleet) Resume(ctx context.Context, actor access.Actor, group string) error {
	return f.command(ctx, actor, group, false, "consumer.resumed")
}

func (f *Fleet) command(ctx context.Context, actor access.Actor, group string, paused bool, action string) error {
	if err := actor.Check(access.PauseConsumer); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, f.pool, func(tx pgx.Tx) error {
		if err := f.knows(ctx, tx, group); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlCommand, pgx.NamedArgs{"group": group, "paused": paused, "actor": actor.User, "reason": actor.Reason})
		if err != nil {
			return fmt.Errorf("%s %s: %w", action, group, err)
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: action, Target: "consumer/" + group})
	})
}

// knows returns ErrUnknownGroup unless the group is ours.
func (f *Fleet) knows(ctx context.Context, tx pgx.Tx, group string) error {
	for _, d := range f.declared {
		if d.Ours && d.Name == group {
			return nil
		}
	}
	var reported bool
	if err := tx.QueryRow(ctx, sqlIsReported, pgx.NamedArgs{"group": group}).Scan(&reported); err != nil {
		return fmt.Errorf("look for group %s: %w", group, err)
	}
	if !reported {
		return fmt.Errorf("%w: %s", ErrUnknownGroup, group)
	}
	return nil
}
