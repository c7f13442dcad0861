package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
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

// sqlResolveRepaired resolves what was repaired: one letter, or the open letters
// of an event in a group.
const sqlResolveRepaired = `
WITH k AS (
  SELECT d.id, d.fault_id, d.verdict AS was FROM dead_letter d
  WHERE d.state = 1 AND d.id IN (
    SELECT @letter::uuid UNION ALL SELECT e.id FROM dead_letter e WHERE e.event_id = @event AND e.group_id = @group AND e.state = 1)
  ORDER BY d.id FOR NO KEY UPDATE OF d),
w AS (UPDATE dead_letter d SET state = 3, state_at = now(), verdict = @verdict, verdict_at = now() FROM k WHERE d.id = k.id)
INSERT INTO fault_delta (fault_id, state, verdict, n)
SELECT k.fault_id, s.state, s.verdict, sum(s.n) FROM k CROSS JOIN LATERAL (VALUES (1::smallint, k.was, -1), (3::smallint, @verdict::smallint, 1)) s(state, verdict, n)
GROUP BY 1, 2, 3`

// ResolveRepaired resolves the letter that a compensation has repaired, if it was
// of one, and the open letters of the event in the group: they say compensated.
// A later failure reopens them, as it does any other resolved letter.
func ResolveRepaired(ctx context.Context, tx pgx.Tx, letter *uuid.UUID, eventID, group string) error {
	groups, err := groupIDs(ctx, tx, []string{group})
	if err != nil {
		return fmt.Errorf("resolve letters of event %s: %w", eventID, err)
	}
	args := pgx.NamedArgs{"letter": letter, "event": eventID, "group": groups[group], "verdict": Compensated}
	if group == "" || eventID == "" {
		args["event"] = nil
	}
	if _, err := tx.Exec(ctx, sqlResolveRepaired, args); err != nil {
		return fmt.Errorf("resolve letters of event %s in %s: %w", eventID, group, err)
	}
	return nil
}
