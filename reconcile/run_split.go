package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// shortest is how long a segment is that is not cut any further.
const shortest = time.Second

func (t todo) divisible() bool { return t.To.Sub(t.From) >= 2*shortest }

// MariaDB's and MySQL's numbers for a statement that took too long.
var mysqlTimeouts = []uint16{1969, 3024}

// tooSlow reports whether a statement ended at its limit. PostgreSQL says the
// same of one that somebody cancelled: that one has not taken as long.
func tooSlow(err error, took, limit time.Duration) bool {
	var my *driver.MySQLError
	if errors.As(err, &my) {
		return slices.Contains(mysqlTimeouts, my.Number)
	}
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "57014" && took >= limit
}

const sqlSplit = `
WITH first AS (
  UPDATE reconcile_segment SET seg_to = @middle WHERE run_id = @run AND no = @no AND state = 0 RETURNING run_id
)
INSERT INTO reconcile_segment (run_id, no, seg_from, seg_to)
SELECT run_id, (SELECT max(no) + 1 FROM reconcile_segment WHERE run_id = @run), @middle, @to FROM first`

// split cuts a segment that takes longer than limits.statement in two, of which
// each gets its own tries.
func (s *step) split(ctx context.Context, seg todo, why error) error {
	middle := seg.From.Add(seg.To.Sub(seg.From) / 2).Truncate(time.Microsecond)
	return s.fenced(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sqlSplit, pgx.NamedArgs{"run": s.id, "no": seg.No, "middle": middle, "to": seg.To})
		if err != nil {
			return fmt.Errorf("split segment %d of run %d: %w", seg.No, s.id, err)
		}
		return note(ctx, tx, s.id, fmt.Sprintf("segment %s to %s takes too long and is cut in two: %v", seg.From.UTC().Format(time.RFC3339), seg.To.UTC().Format(time.RFC3339), why))
	})
}

const sqlHalve = `
WITH long AS (
  SELECT no, seg_from + (seg_to - seg_from) / 2 AS middle, seg_to, row_number() OVER (ORDER BY no) AS nth
  FROM reconcile_segment WHERE run_id = @run AND state = 0 AND seg_to - seg_from >= @least::interval
), first AS (
  UPDATE reconcile_segment s SET seg_to = long.middle FROM long WHERE s.run_id = @run AND s.no = long.no
)
INSERT INTO reconcile_segment (run_id, no, seg_from, seg_to)
SELECT @run, (SELECT max(no) FROM reconcile_segment WHERE run_id = @run) + nth, middle, seg_to FROM long`

// halve cuts all segments that wait in two, since the last ones took so long that
// a step is no longer short. None is being read.
func (s *step) halve(ctx context.Context) error {
	return s.fenced(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sqlHalve, pgx.NamedArgs{"run": s.id, "least": 2 * shortest})
		if err != nil {
			return fmt.Errorf("halve segments of run %d: %w", s.id, err)
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
		return note(ctx, tx, s.id, fmt.Sprintf("segments take up to %s; the %d that wait are cut in two", s.longest().Round(time.Second), tag.RowsAffected()))
	})
}

// longest is how long the slowest segment of the last ones took.
func (s *step) longest() time.Duration { return time.Duration(s.slowest.Load()) }

func (s *step) took(d time.Duration) {
	for {
		have := s.slowest.Load()
		if int64(d) <= have || s.slowest.CompareAndSwap(have, int64(d)) {
			return
		}
	}
}
