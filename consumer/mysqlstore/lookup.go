package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Microseconds since 1970 are the same whatever the zone of the session and the
// driver's parseTime.
const (
	sqlMicros = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', `

	sqlSince = `SELECT ` + sqlMicros + `MIN(consumed_at)) FROM mq_consume_record WHERE consumer_group = ?`
	sqlFind  = `SELECT event_id, consumer_group, ` + sqlMicros + `consumed_at) FROM mq_consume_record WHERE event_id = ? AND consumer_group = ?`
)

// Since is the time of the group's oldest consume record, nil when there is
// none: of events before that, a missing record proves nothing. Any pool on the
// business database will do; a consumed_at of type TIMESTAMP wants a session in UTC.
func Since(ctx context.Context, db *sql.DB, group string) (*time.Time, error) {
	var micros sql.NullInt64
	if err := db.QueryRowContext(ctx, sqlSince, group).Scan(&micros); err != nil {
		return nil, fmt.Errorf("oldest consume record of %s: %w", group, err)
	}
	if !micros.Valid {
		return nil, nil
	}
	return utc(micros.Int64), nil
}

// Find is when the group consumed the event, by the database's clock; nil when
// there is no record of just this id.
func Find(ctx context.Context, db *sql.DB, group, eventID string) (*time.Time, error) {
	at, err := find(ctx, db, group, eventID)
	if err != nil {
		return nil, fmt.Errorf("consume record of %s in %s: %w", eventID, group, err)
	}
	return at, nil
}

func find(ctx context.Context, db *sql.DB, group, eventID string) (*time.Time, error) {
	rows, err := db.QueryContext(ctx, sqlFind, eventID, group)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, of string
		var micros int64
		if err := rows.Scan(&id, &of, &micros); err != nil {
			return nil, err
		}
		if id == eventID && of == group { // the collation may find others
			return utc(micros), nil
		}
	}
	return nil, rows.Err()
}

func utc(micros int64) *time.Time {
	at := time.UnixMicro(micros).UTC()
	return &at
}
