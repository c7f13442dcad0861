package dlq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// monthsAhead is how many months have their partitions beyond the present one.
const monthsAhead = 3

const sqlAddMonth = `call letter_add_month(now() + make_interval(months => $1))`

// EnsureMonths makes the partitions of the present month and the next three by
// the database's clock. It may run in several processes at once. A drain that meets
// a missing month calls it by itself.
func EnsureMonths(ctx context.Context, pool *pgxpool.Pool) error {
	for ahead := range monthsAhead + 1 {
		if _, err := pool.Exec(ctx, sqlAddMonth, ahead); err != nil {
			return fmt.Errorf("add month %d ahead: %w", ahead, err)
		}
	}
	return nil
}

// letterMonth is a month that has partitions. UTC.
type letterMonth struct {
	start, end   time.Time
	lower, upper uuid.UUID // ids from lower on and below upper
}

func newLetterMonth(start time.Time) letterMonth {
	m := letterMonth{start: start, end: start.AddDate(0, 1, 0)}
	m.lower, m.upper = idAt(m.start.UnixMilli()), idAt(m.end.UnixMilli())
	return m
}

// suffix is the end of its partitions' names.
func (m letterMonth) suffix() string { return m.start.Format("200601") }

const sqlMonths = `
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'dead_letter'::regclass`

// monthsOf lists the months in the order in which a list is read.
func monthsOf(ctx context.Context, db querier, direction byte) ([]letterMonth, error) {
	rows, err := db.Query(ctx, sqlMonths)
	if err != nil {
		return nil, fmt.Errorf("query months: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read months: %w", err)
	}
	months := []letterMonth{}
	for _, name := range names {
		start, err := time.Parse("dead_letter_200601", name)
		if err != nil {
			continue // somebody else's partition
		}
		months = append(months, newLetterMonth(start))
	}
	slices.SortFunc(months, func(a, b letterMonth) int { return a.start.Compare(b.start) })
	if direction == older {
		slices.Reverse(months)
	}
	return months, nil
}

// beforeID is the greatest id below id.
func beforeID(id uuid.UUID) uuid.UUID {
	for i := 15; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			return id
		}
	}
	return uuid.Nil
}

func maxID(a, b uuid.UUID) uuid.UUID {
	if strings.Compare(string(a[:]), string(b[:])) >= 0 {
		return a
	}
	return b
}

func minID(a, b uuid.UUID) uuid.UUID {
	if lessID(a, b) {
		return a
	}
	return b
}
