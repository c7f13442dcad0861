package dlq

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Gap is dead letters that the broker dropped before they were drained: offsets
// [From, To) of one partition. Holes that compaction and transactions leave in a
// log count as part of it.
type Gap struct {
	ID        int64
	Cluster   string
	Source    string // topic
	Partition int32
	From, To  int64
	FoundAt   time.Time
}

const sqlGaps = `
SELECT id, cluster, topic, partition, from_offset, to_offset, found_at
FROM drain_gap WHERE found_at >= @since ORDER BY id DESC LIMIT 1000`

// Gaps lists the gaps found since then, newest first, at most 1,000.
func Gaps(ctx context.Context, pool *pgxpool.Pool, since time.Time) ([]Gap, error) {
	rows, err := pool.Query(ctx, sqlGaps, pgx.NamedArgs{"since": since})
	if err != nil {
		return nil, fmt.Errorf("query gaps: %w", err)
	}
	gaps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Gap])
	if err != nil {
		return nil, fmt.Errorf("read gaps: %w", err)
	}
	return gaps, nil
}

const (
	sqlMovePosition = `
UPDATE drain_position SET next_offset = @to
WHERE cluster = @cluster AND topic_id = @topic_id AND partition = @partition AND next_offset = @from`
	sqlAddGap = `
INSERT INTO drain_gap (cluster, topic_id, topic, partition, from_offset, to_offset)
VALUES (@cluster, @topic_id, @topic, @partition, @from, @to)
ON CONFLICT (cluster, topic_id, partition, from_offset) DO NOTHING`
)

// partitionKey is a partition of one incarnation of a topic.
type partitionKey struct {
	topic     uuid.UUID
	partition int32
}

// recordGap moves a position over records that are not there any more and says so,
// in one transaction. False: another replica has moved the position.
func recordGap(ctx context.Context, pool *pgxpool.Pool, g Gap, topic uuid.UUID) (moved bool, err error) {
	args := pgx.NamedArgs{"cluster": g.Cluster, "topic_id": topic, "topic": g.Source, "partition": g.Partition, "from": g.From, "to": g.To}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlMovePosition, args)
		if moved = tag.RowsAffected() == 1; err != nil || !moved {
			return err
		}
		_, err = tx.Exec(ctx, sqlAddGap, args)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("record gap of %s/%d: %w", g.Source, g.Partition, err)
	}
	return moved, nil
}

// movePosition is recordGap without a gap.
func movePosition(ctx context.Context, pool *pgxpool.Pool, g Gap, topic uuid.UUID) (moved bool, err error) {
	tag, err := pool.Exec(ctx, sqlMovePosition, pgx.NamedArgs{"cluster": g.Cluster, "topic_id": topic, "partition": g.Partition, "from": g.From, "to": g.To})
	if err != nil {
		return false, fmt.Errorf("move position of %s/%d: %w", g.Source, g.Partition, err)
	}
	return tag.RowsAffected() == 1, nil
}
