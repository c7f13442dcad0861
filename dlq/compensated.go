package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Repair says that a compensation other than a replay has repaired the
// effect of an event in a group.
type Repair struct {
	EventID      string
	Group        string // consumer group
	Compensation int64  // the compensation's number
	At           time.Time
}

// ErrBadCompensated is returned for a mark that names no event, group or
// compensation.
var ErrBadCompensated = errors.New("dlq: a compensation's mark names an event, a group and a compensation")

// sqlMarkCompensated keeps the first: the mark is permanent.
const sqlMarkCompensated = `
INSERT INTO letter_compensated (event_id, group_id, compensation_id, at)
VALUES (@event, @group, @compensation, @at) ON CONFLICT DO NOTHING`

// sqlAskAnew lets open letters of the event be judged at once, by the loop that
// looks for letters without a verdict.
const sqlAskAnew = `
WITH k AS (
  SELECT d.id, d.fault_id, d.verdict AS was FROM dead_letter d
  WHERE d.event_id = @event AND d.state = 1 AND d.verdict <> 0 ORDER BY d.id FOR NO KEY UPDATE OF d),
w AS (UPDATE dead_letter d SET verdict = 0, verdict_at = NULL FROM k WHERE d.id = k.id)
INSERT INTO fault_delta (fault_id, state, verdict, n)
SELECT k.fault_id, 1, s.verdict, sum(s.n) FROM k CROSS JOIN LATERAL (VALUES (k.was, -1), (0::smallint, 1)) s(verdict, n)
GROUP BY 1, 3`

// MarkCompensated leaves the permanent mark in the transaction that records the
// repair: from its commit on, a replay of the event to the group is refused as
// compensated. Marking twice keeps the first. Errors: ErrBadCompensated, or the
// database's.
func MarkCompensated(ctx context.Context, tx pgx.Tx, c Repair) error {
	if c.EventID == "" || c.Group == "" || c.Compensation <= 0 || c.At.IsZero() {
		return ErrBadCompensated
	}
	groups, err := groupIDs(ctx, tx, []string{c.Group})
	if err != nil {
		return fmt.Errorf("mark event %s compensated: %w", c.EventID, err)
	}
	b := &pgx.Batch{}
	b.Queue(sqlMarkCompensated, pgx.NamedArgs{"event": c.EventID, "group": groups[c.Group], "compensation": c.Compensation, "at": c.At})
	b.Queue(sqlAskAnew, pgx.NamedArgs{"event": c.EventID})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("mark event %s compensated in %s: %w", c.EventID, c.Group, err)
	}
	return nil
}
