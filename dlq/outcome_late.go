package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// revisitAfter is how long a doubtful outcome may still be contradicted.
const revisitAfter = 30 * 24 * time.Hour

// sqlLate finds letters that came back after their outcome was told: joined to
// their lineage by the drain, or as letters of their own from where the item was
// sent. Only outcomes that leave this open are looked at.
const sqlLate = `
SELECT o.replay_id, o.item_no, o.group_id, x.letter
FROM replay_outcome o
JOIN replay_item i ON i.replay_id = o.replay_id AND i.no = o.item_no
JOIN replay_target t ON t.id = i.target_id
CROSS JOIN LATERAL (
  SELECT d.id AS letter FROM replay_item_letter l
  JOIN dead_letter d ON d.id = l.letter_id AND d.group_id = o.group_id
  JOIN letter_occurrence c ON c.letter_id = d.id AND c.replay_id = o.replay_id AND c.item_no = o.item_no
  WHERE l.replay_id = o.replay_id AND l.no = o.item_no
  UNION ALL
  SELECT d.id FROM dead_letter d JOIN letter_name n ON n.id = d.origin_id AND n.name = t.topic
  WHERE d.event_id = i.item_key AND d.group_id = o.group_id
    AND d.origin_partition = i.sent_partition AND d.origin_offset = i.sent_offset
  LIMIT 1) x
WHERE o.outcome IN (6, 7, 8, 10) AND o.at > now() - @window::interval
ORDER BY o.replay_id, o.item_no, o.group_id LIMIT 1000`

const sqlOutcomeLate = `
UPDATE replay_outcome SET outcome = @failed_again, at = now(), reason = @reason, reason_key = @key, reason_args = @args
WHERE replay_id = @replay AND item_no = @no AND group_id = @group AND outcome IN (6, 7, 8, 10)`

const sqlTouch = `UPDATE replay SET version = version + 1 WHERE id = @id`

// lateFailure is an item that came back after another outcome was told.
type lateFailure struct {
	Replay int64
	No     int
	Group  int32
	Letter uuid.UUID
}

// Revisit corrects doubtful outcomes (swallowed, not seen, unverified,
// unconfirmed) of items that came back as dead letters since, and returns how
// many.
func (r *Replays) Revisit(ctx context.Context) (int, error) {
	rows, err := r.pool.Query(ctx, sqlLate, pgx.NamedArgs{"window": revisitAfter})
	if err != nil {
		return 0, fmt.Errorf("query late failures: %w", err)
	}
	late, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lateFailure])
	if err != nil {
		return 0, fmt.Errorf("read late failures: %w", err)
	}
	for _, l := range late {
		if err := r.correct(ctx, l); err != nil {
			return 0, fmt.Errorf("correct outcome of replay %d, item %d: %w", l.Replay, l.No, err)
		}
	}
	return len(late), nil
}

// correct tells one late failure. The drain has moved the letter already.
func (r *Replays) correct(ctx context.Context, l lateFailure) error {
	why := storeReason(replayReason("reason.outcome.failed_again", "letter", l.Letter.String()))
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlTouch, pgx.NamedArgs{"id": l.Replay}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlOutcomeLate, pgx.NamedArgs{
			"failed_again": int16(FailedAgain), "reason": why.Text, "key": why.Key, "args": why.Args,
			"replay": l.Replay, "no": l.No, "group": l.Group,
		})
		return err
	})
}
