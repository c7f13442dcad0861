package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const sqlSinceArchived = `
SELECT least((SELECT min(consumed_at) FROM mq_consume_record WHERE consumer_group = $1),
             (SELECT min(consumed_at) FROM mq_consume_record_archive WHERE consumer_group = $1))`

// SinceArchived is Since of a table whose older records are in the archive; it
// may have none yet.
func SinceArchived(ctx context.Context, pool *pgxpool.Pool, group string) (oldest *time.Time, _ error) {
	var there bool
	err := pool.QueryRow(ctx, sqlArchiveThere).Scan(&there)
	if err == nil && !there {
		return Since(ctx, pool, group)
	}
	if err == nil {
		err = pool.QueryRow(ctx, sqlSinceArchived, group).Scan(&oldest)
	}
	if err != nil {
		return nil, fmt.Errorf("oldest consume record of %s: %w", group, err)
	}
	return oldest, nil
}

// One statement, so that a record that moves meanwhile is seen in one of the two.
const sqlFindArchived = `
SELECT consumed_at FROM mq_consume_record WHERE event_id = $1 AND consumer_group = $2
UNION ALL
SELECT consumed_at FROM mq_consume_record_archive WHERE event_id = $1 AND consumer_group = $2
LIMIT 1`

// FindArchived is Find that looks into the archive, too.
func FindArchived(ctx context.Context, pool *pgxpool.Pool, group, eventID string) (*time.Time, error) {
	return find(ctx, pool, sqlFindArchived, group, eventID)
}
