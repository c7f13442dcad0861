package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errStale is returned when a position is not where a fetch began: another replica
// drains the partition, or has. Nothing was stored.
var errStale = errors.New("dlq: another replica has drained this partition further")

const (
	sqlOpenPositions = `
INSERT INTO drain_position (cluster, topic_id, topic, partition, next_offset)
SELECT @cluster, t, n, p, 0 FROM unnest(@topics::uuid[], @names::text[], @partitions::int[]) u(t, n, p)
ORDER BY t, p
ON CONFLICT (cluster, topic_id, partition) DO NOTHING`
	sqlPositions = `
SELECT topic_id, partition, next_offset FROM drain_position WHERE cluster = @cluster AND topic_id = ANY(@topics::uuid[])`
)

// openPositions reads where each partition goes on, and makes the missing rows: a
// topic id that was never seen begins at 0, even if its name is an old one.
func openPositions(ctx context.Context, pool *pgxpool.Pool, cluster string, wanted map[partitionKey]string) (map[partitionKey]int64, error) {
	var topics []uuid.UUID
	var names []string
	var partitions []int32
	for key, name := range wanted {
		topics, names, partitions = append(topics, key.topic), append(names, name), append(partitions, key.partition)
	}
	args := pgx.NamedArgs{"cluster": cluster, "topics": topics, "names": names, "partitions": partitions}
	if _, err := pool.Exec(ctx, sqlOpenPositions, args); err != nil {
		return nil, fmt.Errorf("open positions: %w", err)
	}
	rows, err := pool.Query(ctx, sqlPositions, args)
	if err != nil {
		return nil, fmt.Errorf("query positions: %w", err)
	}
	next := map[partitionKey]int64{}
	var key partitionKey
	var offset int64
	if _, err := pgx.ForEachRow(rows, []any{&key.topic, &key.partition, &offset}, func() error { next[key] = offset; return nil }); err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return next, nil
}

// The rows are locked in order, so that replicas that overlap during a rebalance
// cannot deadlock; a row whose position has moved meanwhile falls out.
const sqlFence = `
WITH mine AS (
  SELECT p.topic_id, p.partition, u.next
  FROM unnest(@topics::uuid[], @partitions::int[], @from::bigint[], @next::bigint[]) u(topic, partition, was, next)
  JOIN drain_position p ON p.cluster = @cluster AND p.topic_id = u.topic AND p.partition = u.partition AND p.next_offset = u.was
  ORDER BY p.topic_id, p.partition FOR NO KEY UPDATE OF p),
moved AS (
  UPDATE drain_position p SET next_offset = mine.next, drained_at = now() FROM mine
  WHERE p.cluster = @cluster AND p.topic_id = mine.topic_id AND p.partition = mine.partition RETURNING 1)
SELECT count(*), clock_timestamp() FROM moved`

// fence moves the positions of all parts from where their fetches began, and
// returns the database's time. Errors: errStale.
func fence(ctx context.Context, tx pgx.Tx, cluster string, parts []*partitionBatch) (now time.Time, err error) {
	n := len(parts)
	topics, partitions := make([]uuid.UUID, n), make([]int32, n)
	from, next := make([]int64, n), make([]int64, n)
	for i, p := range parts {
		topics[i], partitions[i], from[i], next[i] = p.TopicID, p.Partition, p.From, p.Next
	}
	var moved int
	err = tx.QueryRow(ctx, sqlFence, pgx.NamedArgs{"cluster": cluster, "topics": topics, "partitions": partitions, "from": from, "next": next}).
		Scan(&moved, &now)
	switch {
	case err != nil:
		return now, fmt.Errorf("move positions: %w", err)
	case moved != n:
		return now, errStale
	}
	return now, nil
}
