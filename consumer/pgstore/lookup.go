package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const sqlSince = `SELECT min(consumed_at) FROM mq_consume_record WHERE consumer_group = $1`

// Since is the time of the group's oldest consume record, nil when there is
// none: of events before that, a missing record proves nothing.
func Since(ctx context.Context, pool *pgxpool.Pool, group string) (*time.Time, error) {
	var oldest *time.Time
	if err := pool.QueryRow(ctx, sqlSince, group).Scan(&oldest); err != nil {
		return nil, fmt.Errorf("oldest consume record of %s: %w", group, err)
	}
	return oldest, nil
}

const sqlFind = `SELECT consumed_at FROM mq_consume_record WHERE event_id = $1 AND consumer_group = $2`

// Find is when the group consumed the event, by the database's clock; nil when
// there is no record.
func Find(ctx context.Context, pool *pgxpool.Pool, group, eventID string) (*time.Time, error) {
	return find(ctx, pool, sqlFind, group, eventID)
}

func find(ctx context.Context, pool *pgxpool.Pool, sql, group, eventID string) (*time.Time, error) {
	var at time.Time
	err := pool.QueryRow(ctx, sql, eventID, group).Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("consume record of %s in %s: %w", eventID, group, err)
	}
	return &at, nil
}
