package pgstore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"oncemore/consumer"
)

// The unique index must be plain: valid, immediate, not partial, on exactly the
// two columns. A width of 0 is unlimited. A non-deterministic collation would
// take two events for one.
const sqlCheck = `
SELECT coalesce((SELECT CASE WHEN a.atttypmod > 4 THEN a.atttypmod - 4 ELSE 0 END
                 FROM pg_attribute a
                 WHERE a.attrelid = t.oid AND a.attname = 'consumer_group'), 0) AS width,
       EXISTS (SELECT FROM pg_index i
               WHERE i.indrelid = t.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
                 AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 2
                 AND (SELECT array_agg(a.attname::text ORDER BY a.attname)
                      FROM pg_attribute a
                      WHERE a.attrelid = t.oid AND a.attnum = ANY ((i.indkey::int2[])[0:1])
                     ) = ARRAY['consumer_group', 'event_id']) AS uniq,
       NOT EXISTS (SELECT FROM pg_attribute a
                   JOIN pg_collation c ON c.oid = a.attcollation
                   WHERE a.attrelid = t.oid AND a.attname IN ('event_id', 'consumer_group')
                     AND NOT c.collisdeterministic) AS deterministic
FROM (SELECT to_regclass('mq_consume_record') AS oid) t
WHERE t.oid IS NOT NULL`

// Check says whether mq_consume_record can keep records of the group; without
// records, whether the database answers. All its errors are Unavailable: the
// operator mends the table, meanwhile the consumer waits.
func (s *Store) Check(ctx context.Context, group string) error {
	if s.bare {
		if err := s.pool.Ping(ctx); err != nil {
			return consumer.Unavailable(fmt.Errorf("check database: %w", err))
		}
		return nil
	}
	if err := s.check(ctx, group); err != nil {
		return consumer.Unavailable(fmt.Errorf("check %s: %w", Table, err))
	}
	return nil
}

func (s *Store) check(ctx context.Context, group string) error {
	var width int
	var unique, deterministic bool
	rows, _ := s.pool.Query(ctx, sqlCheck) // its error comes with the rows
	n, err := pgx.ForEachRow(rows, []any{&width, &unique, &deterministic}, func() error { return nil })
	switch {
	case err != nil:
		return err
	case n.RowsAffected() == 0:
		return fmt.Errorf("the table is missing in this database: run console migrate --target, or pgstore.Migrate")
	case !unique:
		return fmt.Errorf("no plain unique constraint on (event_id, consumer_group), without which duplicates take effect twice")
	case !deterministic:
		return fmt.Errorf("a column has a non-deterministic collation, which takes different events for one")
	case width > 0 && len([]rune(group)) > width:
		return fmt.Errorf("group %s is longer than the column consumer_group, which holds %d characters", group, width)
	}
	return nil
}
