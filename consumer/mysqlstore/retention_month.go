package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	sqlLockRecords = `SELECT id FROM mq_consume_record WHERE id IN (%s) FOR UPDATE`
	sqlMoveRecords = `
INSERT INTO mq_consume_record_archive (event_id, consumer_group, consumed_at)
SELECT event_id, consumer_group, consumed_at FROM mq_consume_record WHERE id IN (%s)
ON DUPLICATE KEY UPDATE consumed_at = mq_consume_record_archive.consumed_at`
)

// move puts records from before hot into the archive. Nothing is lost by it, so
// no share is implausible. It refuses to work without the guard.
func (s *sweep) move(ctx context.Context, hot time.Time, moved *int64) error {
	var guarded bool
	if err := s.conn.QueryRowContext(ctx, sqlGuarded).Scan(&guarded); err != nil {
		return err
	}
	if !guarded {
		return fmt.Errorf("%s has no archive, or its guard was removed: run console migrate --target, or mysqlstore.MigrateArchive", Table)
	}
	if err := s.insist(ctx, func() error { return s.makeMonths(ctx, hot) }); err != nil {
		return fmt.Errorf("make months until %s: %w", hot.Format("2006-01"), err)
	}
	return s.walk(ctx, "(consumed_at < CAST(? AS DATETIME(6)))", []any{hot}, hot, func(ids string) error {
		n, err := s.moveChunk(ctx, ids)
		*moved += n
		return err
	})
}

func (s *sweep) moveChunk(ctx context.Context, ids string) (n int64, _ error) {
	tx, err := s.conn.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // harmless after Commit
	for _, query := range []string{sqlLockRecords, sqlMoveRecords, sqlDeleteRecords} {
		result, err := tx.ExecContext(ctx, fmt.Sprintf(query, ids))
		if err != nil {
			return 0, err
		}
		if n, err = result.RowsAffected(); err != nil {
			return 0, err
		}
	}
	return n, tx.Commit()
}

// month is a partition of the archive.
type month struct {
	name string
	end  time.Time // of the records in it
}

// The description of a partition is its bound, in quotes.
const sqlPartitions = `
SELECT partition_name, TRIM(BOTH '''' FROM partition_description)
FROM information_schema.partitions
WHERE table_schema = DATABASE() AND table_name = 'mq_consume_record_archive' AND partition_name IS NOT NULL
ORDER BY partition_ordinal_position`

func (s *sweep) months(ctx context.Context) (all []month, _ error) {
	rows, err := s.conn.QueryContext(ctx, sqlPartitions)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var m month
		var end string
		if err := rows.Scan(&m.name, &end); err != nil {
			return nil, err
		}
		if m.end, err = time.Parse(time.DateTime, strings.Split(end, ".")[0]); err != nil {
			return nil, fmt.Errorf("partition %s ends at %q: %w", m.name, end, err)
		}
		all = append(all, m)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("the archive has no partitions")
	}
	return all, nil
}

const sqlAddMonths = `ALTER TABLE mq_consume_record_archive ADD PARTITION (%s)`

// makeMonths adds the months until that of at.
func (s *sweep) makeMonths(ctx context.Context, at time.Time) error {
	months, err := s.months(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for month := months[len(months)-1].end; !month.After(at); month = month.AddDate(0, 1, 0) {
		missing = append(missing, partition(month))
	}
	if len(missing) == 0 {
		return nil
	}
	return s.reshape(ctx, fmt.Sprintf(sqlAddMonths, strings.Join(missing, ", ")))
}

// reshape changes the archive's partitions, when no claim is reading it.
func (s *sweep) reshape(ctx context.Context, statement string) error {
	if _, err := s.conn.ExecContext(ctx, sqlShortWait); err != nil {
		return err
	}
	_, err := s.conn.ExecContext(ctx, statement)
	return err
}

const (
	sqlCountHot   = `SELECT COUNT(*) FROM mq_consume_record`
	sqlCountMonth = `SELECT COUNT(*), COALESCE(SUM(NOT COALESCE(%s, FALSE)), 0) FROM mq_consume_record_archive PARTITION (%s)`
	sqlDropMonth  = `ALTER TABLE mq_consume_record_archive DROP PARTITION %s`
)

// dropMonths drops the months in which no record is needed, unless that is an
// implausible share of all records, hot ones included. Most runs find none that
// ended before the newest cutoff and count nothing. The last month stays: a table
// has to have one.
func (s *sweep) dropMonths(ctx context.Context, d due, maxShare float64, dropped *[]string) error {
	months, err := s.months(ctx)
	if err != nil || months[0].end.After(d.newest) {
		return err
	}
	names, old, all, err := s.countMonths(ctx, d, months)
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	if err := plausible(old, all, maxShare); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.insist(ctx, func() error { return s.reshape(ctx, fmt.Sprintf(sqlDropMonth, name)) }); err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
		*dropped = append(*dropped, name)
	}
	return nil
}

// countMonths names the months that may go. Records of a group that is not known
// are needed.
func (s *sweep) countMonths(ctx context.Context, d due, months []month) (names []string, old, all int64, err error) {
	if err := s.conn.QueryRowContext(ctx, sqlCountHot).Scan(&all); err != nil {
		return nil, 0, 0, err
	}
	condition, args := d.isDue()
	for i, m := range months {
		var n, needed int64
		if err := s.conn.QueryRowContext(ctx, fmt.Sprintf(sqlCountMonth, condition, m.name), args...).Scan(&n, &needed); err != nil {
			return nil, 0, 0, err
		}
		all += n
		if needed == 0 && i < len(months)-1 && !m.end.After(d.newest) {
			names, old = append(names, m.name), old+n
		}
	}
	return names, old, all, nil
}
