package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Archive is where old consume records are, by months.
const Archive = "mq_consume_record_archive"

// The archive has the columns' own types and collations, so that an id is equal
// to the same ids as before. A month of a TIMESTAMP would depend on the session.
const sqlArchiveColumns = `
SELECT column_name, CONCAT(column_type, COALESCE(CONCAT(' CHARACTER SET ', character_set_name, ' COLLATE ', collation_name), ''), ' NOT NULL'), data_type
FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = 'mq_consume_record' AND column_name IN ('event_id', 'consumer_group', 'consumed_at')`

// The key begins as the probe asks. Records from before the first month are in it.
const sqlCreateArchive = `
CREATE TABLE IF NOT EXISTS mq_consume_record_archive (
	event_id       %s,
	consumer_group %s,
	consumed_at    %s,
	PRIMARY KEY (event_id, consumer_group, consumed_at)
) ENGINE = InnoDB PARTITION BY RANGE COLUMNS (consumed_at) (%s)`

// The guard is for programs that do not look into the archive, such as a consumer
// that was not restarted yet: for them an archived event is what it was before it
// moved, a violation of the unique key. It comes after the insert, which has
// waited for a move under way, and it locks what it finds, so that it sees what
// was committed meanwhile.
const sqlGuardTrigger = `
CREATE TRIGGER mq_consume_record_guard AFTER INSERT ON mq_consume_record FOR EACH ROW
BEGIN
	DECLARE found INT DEFAULT 0;
	IF @oncemore_probes IS NULL THEN
		SELECT COUNT(*) INTO found FROM mq_consume_record_archive a
		WHERE a.event_id = NEW.event_id AND a.consumer_group = NEW.consumer_group LOCK IN SHARE MODE;
		IF found > 0 THEN
			SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062,
				MESSAGE_TEXT = 'Duplicate entry, its record is in mq_consume_record_archive, for key ''uk_event_consumer''';
		END IF;
	END IF;
END`

const sqlGuarded = `
SELECT COUNT(*) FROM information_schema.triggers
WHERE trigger_schema = DATABASE() AND event_object_table = 'mq_consume_record' AND trigger_name = 'mq_consume_record_guard'`

// codeNoTrigger: with a binary log the user needs SUPER, or the server the option.
const codeNoTrigger = 1419

// MigrateArchive gives mq_consume_record, which may be in use and full, an
// archive. It may run again. Consumers go on: from now on the database itself
// refuses events that are in the archive, for programs that do not look there. It
// locks the table for a moment, at most two seconds, and fails when it does not
// get the lock. Moving is a Keeper's work. The pool is one of OpenPool; its user
// needs CREATE and TRIGGER.
func MigrateArchive(ctx context.Context, db *sql.DB) error {
	err := migrateArchive(ctx, db)
	if errorNumber(err) == codeNoTrigger {
		err = fmt.Errorf("%w: set log_bin_trust_function_creators = 1 on the server, or let a user with SUPER run this once", err)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", Archive, err)
	}
	return nil
}

func migrateArchive(ctx context.Context, db *sql.DB) error {
	columns, err := archiveColumns(ctx, db)
	if err != nil {
		return err
	}
	months, err := firstMonths(ctx, db)
	if err != nil {
		return err
	}
	create := fmt.Sprintf(sqlCreateArchive, columns["event_id"], columns["consumer_group"], columns["consumed_at"], strings.Join(months, ", "))
	if _, err := db.ExecContext(ctx, create); err != nil {
		return err
	}
	var guarded bool
	if err := db.QueryRowContext(ctx, sqlGuarded).Scan(&guarded); err != nil || guarded {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, sqlShortWait); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, sqlGuardTrigger)
	return err
}

// sqlShortWait: a change of a table's shape waits for the transactions on it,
// and what comes after waits for the change.
const sqlShortWait = `SET SESSION lock_wait_timeout = 2`

func archiveColumns(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, sqlArchiveColumns)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns := map[string]string{}
	for rows.Next() {
		var name, definition, kind string
		if err := rows.Scan(&name, &definition, &kind); err != nil {
			return nil, err
		}
		if name == "consumed_at" {
			switch kind {
			case "datetime":
			case "timestamp":
				definition = "DATETIME(6) NOT NULL"
			default:
				return nil, fmt.Errorf("consumed_at has to be of type datetime or timestamp, and is %s", kind)
			}
		}
		columns[name] = definition
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(columns) != 3 {
		return nil, fmt.Errorf("%s is missing or lacks a column: there are %s", Table, slices.Sorted(maps.Keys(columns)))
	}
	return columns, nil
}

const sqlOldest = `SELECT COALESCE(MIN(consumed_at), UTC_TIMESTAMP()), UTC_TIMESTAMP() FROM mq_consume_record`

// firstMonths are partitions from the oldest record's month to the next one:
// later ones are added behind these.
func firstMonths(ctx context.Context, db *sql.DB) (all []string, _ error) {
	var oldest, now time.Time
	if err := db.QueryRowContext(ctx, sqlOldest).Scan(&oldest, &now); err != nil {
		return nil, err
	}
	for month := monthOf(oldest); !month.After(monthOf(now)); month = month.AddDate(0, 1, 0) {
		all = append(all, partition(month))
	}
	if len(all) == 0 {
		return nil, errors.New("the oldest record is from the future: see whether consumed_at is UTC")
	}
	return all, nil
}

// monthOf is when the month of at begins, in UTC.
func monthOf(at time.Time) time.Time {
	return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
}

func partition(month time.Time) string {
	return fmt.Sprintf("PARTITION %s VALUES LESS THAN ('%s')", partitionName(month), month.AddDate(0, 1, 0).Format(time.DateTime))
}

func partitionName(month time.Time) string { return month.Format("p2006_01") }

// ArchiveOptions are for Options.Archive. The zero value is safe.
type ArchiveOptions struct {
	// SkipProbe leaves out the look into the archive. It is refused unless Hot,
	// the age at which records move there, covers Required, how long an event may
	// come back: then the archive holds nothing that is still asked for.
	SkipProbe     bool
	Hot, Required time.Duration
}

func (o *ArchiveOptions) validate() error {
	if o != nil && o.SkipProbe && (o.Required <= 0 || o.Required == Forever || o.Hot < o.Required) {
		return fmt.Errorf("mysqlstore: the archive may be left out only where the hot window (%s) covers how long events may come back (%s)", o.Hot, o.Required)
	}
	return nil
}

// sqlProbing tells the guard that we look ourselves.
const sqlProbing = `SET @oncemore_probes = 1`

const (
	sqlProbe   = `SELECT event_id FROM mq_consume_record_archive WHERE consumer_group = ? AND event_id IN (?%s)`
	sqlUnclaim = `DELETE FROM mq_consume_record WHERE consumer_group = ? AND event_id IN (?%s)`
)

// probe takes those of the fresh ids that are in the archive out again. The insert
// came first, in a statement of its own (READ COMMITTED): it has waited for a
// record that was being moved, and now the archive shows it. So the mover cannot
// slip between the two.
func (c *claim) probe(ctx context.Context, group string) error {
	ctx, cancel := context.WithTimeout(ctx, c.tx.limit)
	defer cancel()
	fresh := slices.Sorted(maps.Keys(c.fresh))
	found := map[string]bool{}
	for some := range slices.Chunk(fresh, perStatement) {
		if err := c.selectIDs(ctx, sqlProbe, group, some, found); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(found)), perStatement) {
		args := []any{group}
		for _, id := range some {
			args = append(args, id)
			delete(c.fresh, id)
		}
		if _, err := c.tx.conn.ExecContext(ctx, repeat(sqlUnclaim, moreIDs, len(some)), args...); err != nil {
			return err
		}
	}
	return nil
}
