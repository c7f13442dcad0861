package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"oncemore/consumer"
)

// The unique key must be on exactly the two columns in their full length. A
// column without a collation is binary.
const sqlCheck = `
SELECT t.engine,
       (SELECT COUNT(*) = 2 AND SUM(s.column_name IN ('event_id', 'consumer_group')) = 2
               AND SUM(s.non_unique) = 0 AND COUNT(s.sub_part) = 0
        FROM information_schema.statistics s
        WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.index_name = ?) AS uniq,
       COALESCE(e.collation_name, 'binary'), e.column_type,
       COALESCE(g.collation_name, 'binary'), g.column_type, g.character_maximum_length
FROM information_schema.tables t
LEFT JOIN information_schema.columns e
       ON e.table_schema = t.table_schema AND e.table_name = t.table_name AND e.column_name = 'event_id'
LEFT JOIN information_schema.columns g
       ON g.table_schema = t.table_schema AND g.table_name = t.table_name AND g.column_name = 'consumer_group'
WHERE t.table_schema = DATABASE() AND t.table_name = 'mq_consume_record'`

// Check says whether mq_consume_record can keep records of the group; without
// records, whether the database answers. All its errors are Unavailable: the
// operator mends the table, meanwhile the consumer waits.
func (s *Store) Check(ctx context.Context, group string) error {
	if s.bare {
		if err := s.pool.PingContext(ctx); err != nil {
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
	c, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer c.Rollback(ctx)
	table, err := c.describe(ctx)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("the table is missing in this database: run console migrate --target, or mysqlstore.Migrate")
	case err != nil:
		return err
	}
	if err := table.fits(group); err != nil || s.archive == nil {
		return err
	}
	return c.checkArchive(ctx)
}

const sqlArchiveThere = `
SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'mq_consume_record_archive'`

func (c *claim) checkArchive(ctx context.Context) error {
	var there bool
	if err := c.tx.conn.QueryRowContext(ctx, sqlArchiveThere).Scan(&there); err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("%s is missing in this database: run console migrate --target, or mysqlstore.MigrateArchive", Archive)
	}
	return nil
}

// description is what is known of the table; of columns that are not there, nothing.
type description struct {
	engine, eventType, groupType   sql.NullString
	eventCollation, groupCollation string
	unique                         bool
	groupWidth                     sql.NullInt64 // characters
}

func (c *claim) describe(ctx context.Context) (d description, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.tx.limit)
	defer cancel()
	var unique sql.NullBool
	err = c.tx.conn.QueryRowContext(ctx, sqlCheck, uniqueKey).Scan(&d.engine, &unique,
		&d.eventCollation, &d.eventType, &d.groupCollation, &d.groupType, &d.groupWidth)
	d.unique = unique.Bool
	return d, err
}

func (d description) fits(group string) error {
	switch {
	case !strings.EqualFold(d.engine.String, "InnoDB"):
		return fmt.Errorf("its engine is %q, but only InnoDB undoes a record together with its effect", d.engine.String)
	case !d.unique:
		return fmt.Errorf("no unique key %s on (event_id, consumer_group) in full length, without which duplicates take effect twice", uniqueKey)
	case !binary(d.eventCollation) || !binary(d.groupCollation):
		return d.collationError()
	case int64(utf8.RuneCountInString(group)) > d.groupWidth.Int64:
		return fmt.Errorf("group %s is longer than the column consumer_group, which holds %d characters", group, d.groupWidth.Int64)
	}
	return nil
}

// binary reports whether the collation compares by code: utf8mb4_bin,
// utf8mb4_0900_bin, latin1_bin, binary.
func binary(collation string) bool {
	return collation == "binary" || strings.HasSuffix(collation, "_bin")
}

func (d description) collationError() error {
	return fmt.Errorf("event_id is %s and consumer_group %s, which take different events (EVT-1 and evt-1) for one. To change that: "+
		"ALTER TABLE %s MODIFY event_id %s CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, MODIFY consumer_group %s CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
		d.eventCollation, d.groupCollation, Table, d.eventType.String, d.groupType.String)
}
