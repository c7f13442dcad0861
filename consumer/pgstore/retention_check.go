package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Attaching and dropping months needs the archive's owner.
const sqlKeepable = `
SELECT has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'DELETE'),
       a.oid IS NOT NULL,
       coalesce(pg_has_role(c.relowner, 'USAGE'), false),
       current_user::text
FROM (SELECT to_regclass('mq_consume_record')::oid AS oid) t
CROSS JOIN (SELECT to_regclass('mq_consume_record_archive')::oid AS oid) a
LEFT JOIN pg_class c ON c.oid = a.oid
WHERE t.oid IS NOT NULL`

// CheckKeeper says whether a Keeper on the pool can do its work, with an archive
// or without one: the privileges of its user, the archive and the guard. The
// error says what is missing.
func CheckKeeper(ctx context.Context, pool *pgxpool.Pool, archive bool) error {
	var may, there, owns, guarded bool
	var user string
	if err := pool.QueryRow(ctx, sqlKeepable).Scan(&may, &there, &owns, &user); err != nil {
		return fmt.Errorf("look at %s: %w", Table, err)
	}
	if err := pool.QueryRow(ctx, sqlGuarded).Scan(&guarded); err != nil {
		return fmt.Errorf("look at %s: %w", Table, err)
	}
	switch {
	case !may:
		return fmt.Errorf("user %s may not delete from %s", user, Table)
	case !archive:
		return nil
	case !there:
		return fmt.Errorf("there is no table %s", Archive)
	case !guarded:
		return errors.New("the trigger mq_consume_record_guard is missing or disabled")
	case !owns:
		return fmt.Errorf("user %s does not own %s, and cannot add or drop its months", user, Archive)
	}
	return nil
}
