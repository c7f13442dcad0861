package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Which months the next chunk's old records are of, in UTC.
const sqlChunkMonths = `
SELECT DISTINCT date_trunc('month', k.consumed_at AT TIME ZONE 'UTC')
FROM (SELECT consumed_at FROM mq_consume_record WHERE id > @after ORDER BY id LIMIT @size) k
WHERE k.consumed_at < @newest`

const sqlMoveChunk = `
WITH chunk AS MATERIALIZED (
  SELECT id, consumed_at FROM mq_consume_record WHERE id > @after ORDER BY id LIMIT @size
), gone AS (
  DELETE FROM mq_consume_record r
  USING chunk k
  WHERE r.id = k.id AND r.consumed_at < @newest
  RETURNING r.event_id, r.consumer_group, r.consumed_at
), kept AS (
  INSERT INTO mq_consume_record_archive (event_id, consumer_group, consumed_at)
  SELECT event_id, consumer_group, consumed_at FROM gone
  ON CONFLICT DO NOTHING
)
SELECT coalesce(max(id), @after), coalesce(bool_or(consumed_at < @newest), false), (SELECT count(*) FROM gone)
FROM chunk`

// move puts records from before hot into the archive. Nothing is lost by it, so
// no share is implausible. It refuses to work without the guard.
func (s *sweep) move(ctx context.Context, hot time.Time, moved *int64) error {
	var guarded bool
	if err := s.conn.QueryRow(ctx, sqlGuarded).Scan(&guarded); err != nil {
		return err
	}
	if !guarded {
		return fmt.Errorf("%s has no archive, or its guard was removed: run console migrate --target, or pgstore.MigrateArchive", Table)
	}
	args := pgx.NamedArgs{"newest": hot, "size": s.chunk, "after": int64(-1 << 63)}
	for more := true; more; {
		if err := s.makeMonths(ctx, args); err != nil {
			return err
		}
		var after, n int64
		if err := s.conn.QueryRow(ctx, sqlMoveChunk, args).Scan(&after, &more, &n); err != nil {
			return fmt.Errorf("move: %w", err)
		}
		args["after"] = after
		*moved += n
	}
	return nil
}

func (s *sweep) makeMonths(ctx context.Context, args pgx.NamedArgs) error {
	rows, _ := s.conn.Query(ctx, sqlChunkMonths, args) // its error comes with the rows
	months, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return err
	}
	for _, month := range months {
		if err := s.makeMonth(ctx, month); err != nil {
			return fmt.Errorf("make month %s: %w", month.Format("2006-01"), err)
		}
	}
	return nil
}

func monthTable(month time.Time) string { return Archive + month.Format("_2006_01") }

// Attaching locks the archive against other changes of its shape only; CREATE
// TABLE … PARTITION OF would lock out the consumers' probes.
const (
	sqlMakeMonth   = `CREATE TABLE %s (LIKE mq_consume_record_archive INCLUDING ALL)`
	sqlAttachMonth = `ALTER TABLE mq_consume_record_archive ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`
	sqlMonthThere  = `SELECT EXISTS (SELECT FROM pg_inherits WHERE inhrelid = to_regclass($1) AND inhparent = to_regclass('mq_consume_record_archive'))`
)

func (s *sweep) makeMonth(ctx context.Context, month time.Time) error {
	name := monthTable(month)
	var there bool
	if err := s.conn.QueryRow(ctx, sqlMonthThere, name).Scan(&there); err != nil || there {
		return err
	}
	return pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf(sqlMakeMonth, name)); err != nil {
			return err
		}
		const bound = "2006-01-02 00:00:00+00"
		_, err := tx.Exec(ctx, fmt.Sprintf(sqlAttachMonth, name, month.Format(bound), month.AddDate(0, 1, 0).Format(bound)))
		return err
	})
}

// Months of the archive with the records in them, oldest first. Records that are
// needed: of a group that keeps them longer, or that is not known.
const sqlMonths = `
SELECT a.tableoid::regclass::text, count(*), count(*) FILTER (WHERE c.name IS NULL OR a.consumed_at >= c.cutoff)
FROM mq_consume_record_archive a
LEFT JOIN unnest(@groups::text[], @cutoffs::timestamptz[]) AS c(name, cutoff) ON c.name = a.consumer_group
GROUP BY 1 ORDER BY 1`

const sqlCountHot = `SELECT count(*) FROM mq_consume_record`

// A month that would be dropped has to end before the newest cutoff; most runs
// find none and count nothing.
const sqlMonthsDue = `
SELECT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
               WHERE i.inhparent = to_regclass('mq_consume_record_archive')
                 AND CASE WHEN c.relname ~ '_\d{4}_\d{2}$'
                          THEN (to_date(right(c.relname, 7), 'YYYY_MM') + interval '1 month') AT TIME ZONE 'UTC' <= @newest END)`

// dropMonths drops the months in which no record is needed, unless that is an
// implausible share of all records, hot ones included.
func (s *sweep) dropMonths(ctx context.Context, d due, maxShare float64, dropped *[]string) error {
	if err := s.finishDetach(ctx); err != nil {
		return err
	}
	var any bool
	if err := s.conn.QueryRow(ctx, sqlMonthsDue, d.args(nil)).Scan(&any); err != nil || !any {
		return err
	}
	names, old, all, err := s.countMonths(ctx, d)
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	if err := plausible(old, all, maxShare); err != nil {
		return err
	}
	for _, name := range names {
		if err := s.dropMonth(ctx, name); err != nil {
			return fmt.Errorf("drop %s: %w", name, err)
		}
		*dropped = append(*dropped, name)
	}
	return nil
}

func (s *sweep) countMonths(ctx context.Context, d due) (names []string, old, all int64, err error) {
	if err := s.conn.QueryRow(ctx, sqlCountHot).Scan(&all); err != nil {
		return nil, 0, 0, err
	}
	var name string
	var n, needed int64
	rows, _ := s.conn.Query(ctx, sqlMonths, d.args(nil)) // its error comes with the rows
	_, err = pgx.ForEachRow(rows, []any{&name, &n, &needed}, func() error {
		all += n
		if needed == 0 {
			names, old = append(names, name), old+n
		}
		return nil
	})
	return names, old, all, err
}

// Detaching concurrently lets probes go on. One that was interrupted has to be
// finished before the next; nothing sees its records any more.
const (
	sqlDetach        = `ALTER TABLE mq_consume_record_archive DETACH PARTITION %s %s`
	sqlDetachPending = `SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass('mq_consume_record_archive') AND inhdetachpending`
	sqlDropMonth     = `DROP TABLE %s`
)

func (s *sweep) dropMonth(ctx context.Context, name string) error {
	return s.detach(ctx, name, "CONCURRENTLY")
}

func (s *sweep) finishDetach(ctx context.Context) error {
	rows, _ := s.conn.Query(ctx, sqlDetachPending) // its error comes with the rows
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		if err := s.detach(ctx, name, "FINALIZE"); err != nil {
			return fmt.Errorf("drop %s, whose detaching was interrupted: %w", name, err)
		}
	}
	return err
}

func (s *sweep) detach(ctx context.Context, name, how string) error {
	if _, err := s.conn.Exec(ctx, fmt.Sprintf(sqlDetach, name, how)); err != nil {
		return err
	}
	_, err := s.conn.Exec(ctx, fmt.Sprintf(sqlDropMonth, name))
	return err
}
