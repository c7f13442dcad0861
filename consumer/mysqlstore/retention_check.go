package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Explaining a statement needs the privileges of running it, and runs nothing.
const (
	sqlMayDelete = `EXPLAIN DELETE FROM mq_consume_record WHERE id < 0`
	sqlMayMove   = `EXPLAIN INSERT INTO mq_consume_record_archive (event_id, consumer_group, consumed_at) VALUES ('', '', '2000-01-01')`
)

// CheckKeeper says whether a Keeper on the pool can do its work, with an archive
// or without one: the privileges to delete and to move, the archive and the
// guard. Whether months may be added and dropped (ALTER, DROP) shows only when
// that is done. The error says what is missing.
func CheckKeeper(ctx context.Context, db *sql.DB, archive bool) error {
	if _, err := db.ExecContext(ctx, sqlMayDelete); err != nil {
		return fmt.Errorf("delete from %s: %w", Table, err)
	}
	if !archive {
		return nil
	}
	var there, guarded bool
	if err := db.QueryRowContext(ctx, sqlArchiveThere).Scan(&there); err != nil {
		return fmt.Errorf("look for %s: %w", Archive, err)
	}
	if err := db.QueryRowContext(ctx, sqlGuarded).Scan(&guarded); err != nil {
		return fmt.Errorf("look for the guard of %s: %w", Table, err)
	}
	switch {
	case !there:
		return fmt.Errorf("there is no table %s", Archive)
	case !guarded:
		return errors.New("the trigger mq_consume_record_guard is missing")
	}
	if _, err := db.ExecContext(ctx, sqlMayMove); err != nil {
		return fmt.Errorf("insert into %s: %w", Archive, err)
	}
	return nil
}
