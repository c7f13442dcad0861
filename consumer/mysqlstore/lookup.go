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

	sqlSince         = `SELECT ` + sqlMicros + `MIN(consumed_at)) FROM mq_consume_record WHERE consumer_group = ?`
	sqlSinceArchived = `SELECT ` + sqlMicros + `MIN(at)) FROM (
	  SELECT MIN(consumed_at) AS at FROM mq_consume_record WHERE consumer_group = ?
	  UNION ALL SELECT MIN(consumed_at) FROM mq_consume_record_archive WHERE consumer_group = ?) both_tables`
	sqlFind = `SELECT event_id, consumer_group, ` + sqlMicros + `consumed_at) FROM mq_consume_record WHERE event_id = ? AND consumer_group = ?`
)

// Since is the time of the group's oldest consume record, nil when there is
// none: of events before that, a missing record proves nothing. Any pool on the
// business database will do; a consumed_at of type TIMESTAMP wants a session in UTC.
func Since(ctx context.Context, db *sql.DB, group string) (*time.Time, error) {
	return since(ctx, db, sqlSince, group, group)
}

// SinceArchived is Since of a table whose older records are in the archive; it
// may have none yet.
func SinceArchived(ctx context.Context, db *sql.DB, group string) (*time.Time, error) {
	var there bool
	if err := db.QueryRowContext(ctx, sqlArchiveThere).Scan(&there); err != nil {
		return nil, fmt.Errorf("oldest consume record of %s: %w", group, err)
	}
	if !there {
		return Since(ctx, db, group)
	}
	return since(ctx, db, sqlSinceArchived, group, group, group)
}

func since(ctx context.Context, db *sql.DB, query, group string, args ...any) (*time.Time, error) {
	var micros sql.NullInt64
	if err := db.QueryRowContext(ctx, query, args...).Scan(&micros); err != nil {
		return nil, fmt.Errorf("oldest consume record of %s: %w", group, err)
	}
	if !micros.Valid {
		return nil, nil
	}
	return utc(micros.Int64), nil
}

// sqlFindArchived asks both in one statement, so that a record that moves
// meanwhile is seen in one of them.
const sqlFindArchived = sqlFind + `
UNION ALL SELECT event_id, consumer_group, ` + sqlMicros + `consumed_at) FROM mq_consume_record_archive WHERE event_id = ? AND consumer_group = ?`

// Find is when the group consumed the event, by the database's clock; nil when
// there is no record of just this id.
func Find(ctx context.Context, db *sql.DB, group, eventID string) (*time.Time, error) {
	return find(ctx, db, sqlFind, group, eventID, eventID, group)
}

// FindArchived is Find that looks into the archive, too.
func FindArchived(ctx context.Context, db *sql.DB, group, eventID string) (*time.Time, error) {
	return find(ctx, db, sqlFindArchived, group, eventID, eventID, group, eventID, group)
}

func find(ctx context.Context, db *sql.DB, query, group, eventID string, args ...any) (*time.Time, error) {
	at, err := scanFound(ctx, db, query, group, eventID, args...)
	if err != nil {
		return nil, fmt.Errorf("consume record of %s in %s: %w", eventID, group, err)
	}
	return at, nil
}

func scanFound(ctx context.Context, db *sql.DB, query, group, eventID string, args ...any) (*time.Time, error) {
	rows, err := db.QueryContext(ctx, query, args...)
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
