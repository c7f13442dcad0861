package dlq

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ErrClaimed is returned where a replay or another compensation acts on the
// event of that group at this moment.
var ErrClaimed = errors.New("dlq: the event is claimed by a replay or a compensation")

const sqlClaimForCompensation = `
INSERT INTO event_claim (event_id, group_id, kind, holder_id, item_no, verdict) VALUES (@event, @group, 2, @compensation, 0, 0)
ON CONFLICT (event_id, group_id) DO NOTHING`

const sqlHolds = `
SELECT kind = 2 AND holder_id = @compensation FROM event_claim WHERE event_id = @event AND group_id = @group`

// ClaimForCompensation makes the compensation the only one to act on the event
// in the group, in the caller's transaction: until ReleaseCompensation a replay
// of it is refused. Claiming twice is no error. Error: ErrClaimed.
func ClaimForCompensation(ctx context.Context, tx pgx.Tx, eventID, group string, compensation int64) error {
	groups, err := groupIDs(ctx, tx, []string{group})
	if err != nil {
		return fmt.Errorf("claim event %s: %w", eventID, err)
	}
	args := pgx.NamedArgs{"event": eventID, "group": groups[group], "compensation": compensation}
	tag, err := tx.Exec(ctx, sqlClaimForCompensation, args)
	if err != nil {
		return fmt.Errorf("claim event %s in %s: %w", eventID, group, err)
	}
	if tag.RowsAffected() == 1 {
		return nil
	}
	var own bool
	err = tx.QueryRow(ctx, sqlHolds, args).Scan(&own)
	switch {
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("claim event %s in %s: %w", eventID, group, err)
	case !own:
		return fmt.Errorf("%w: %s in %s", ErrClaimed, eventID, group)
	}
	return nil
}

const sqlReleaseCompensation = `DELETE FROM event_claim WHERE kind = 2 AND holder_id = @compensation`

// ReleaseCompensation gives back what a compensation has claimed.
func ReleaseCompensation(ctx context.Context, tx pgx.Tx, compensation int64) error {
	if _, err := tx.Exec(ctx, sqlReleaseCompensation, pgx.NamedArgs{"compensation": compensation}); err != nil {
		return fmt.Errorf("release claims of compensation %d: %w", compensation, err)
	}
	return nil
}
