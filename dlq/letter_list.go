package dlq

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Letters reads dead letters.
type Letters struct {
	pool    *pgxpool.Pool
	budgets budgets
}

// NewLetters reads letters from the console's database.
func NewLetters(pool *pgxpool.Pool) *Letters { return &Letters{pool: pool, budgets: usualBudgets} }

// LetterPage is a part of a list, in the filter's order.
type LetterPage struct {
	Items   []Letter
	Next    string     // cursor of the following page; "" at the end
	Prev    string     // cursor of the page before; "" at the start
	Stopped *time.Time // looked through as far as letters of this arrival; nil: as far as the page needed
}

// letterSelect and letterNames read a Letter from dead_letter d.
const (
	letterSelect = `
  d.id, d.state, d.state_at, s.cluster, s.broker, s.name, n.name, d.event_id, d.event_time, g.name,
  o.name, d.origin_partition, d.origin_offset, c.name, d.error_message, d.attempts, d.occurrences,
  d.failed_at, d.fault_id, d.replay_count, d.verdict, d.verdict_at, d.flags, d.drain_partition, d.drain_offset, w.name`
	letterNames = `
JOIN letter_source s ON s.id = d.source_id
JOIN letter_name n ON n.id = d.dialect_id
LEFT JOIN letter_name g ON g.id = d.group_id
LEFT JOIN letter_name c ON c.id = d.class_id
LEFT JOIN letter_name o ON o.id = d.origin_id
LEFT JOIN fault f ON f.id = d.fault_id
LEFT JOIN letter_name w ON w.id = coalesce(d.owner_id, f.owner_id)`
)

// scanLetter reads letterSelect, and whatever more the caller selects after them.
func scanLetter(row pgx.CollectableRow, more ...any) (Letter, error) {
	var l Letter
	var broker int16
	err := row.Scan(append([]any{
		&l.ID, &l.State, &l.StateAt, &l.Cluster, &broker, &l.Source, &l.Dialect, &l.EventID, &l.EventTime, &l.Group,
		&l.Origin.Topic, &l.Origin.Partition, &l.Origin.Offset, &l.ErrorClass, &l.ErrorMessage, &l.Attempts, &l.Occurrences,
		&l.FailedAt, &l.FaultID, &l.ReplayCount, &l.Verdict, &l.VerdictAt, &l.Flags, &l.DrainPartition, &l.DrainOffset, &l.Owner,
	}, more...)...)
	l.Broker = brokerName(broker)
	l.DrainedAt = arrived(l.ID)
	return l, err
}

// List gives one page of the letters that match. A filter that is compared letter
// by letter may stop before the page is full: Stopped then says where. Errors:
// *ErrBadFilter.
func (l *Letters) List(ctx context.Context, f LetterFilter, p Page) (LetterPage, error) {
	rows, err := p.rows()
	if err != nil {
		return LetterPage{}, err
	}
	return l.list(ctx, f, p.Cursor, rows)
}

func (l *Letters) list(ctx context.Context, f LetterFilter, came string, rows int) (LetterPage, error) {
	place := startOf(f)
	if came != "" {
		var err error
		if place, err = decodeCursor(came, f); err != nil {
			return LetterPage{}, err
		}
	}
	q, err := l.query(ctx, f)
	if err != nil || q.none {
		return LetterPage{}, err
	}
	q.place(place)
	if f.Compared() || q.unindexed {
		return l.listCompared(ctx, f, q, place, came, rows)
	}
	items, err := l.read(ctx, q.settings(), q.ids(place.direction, rows+1), q.named(), place.direction)
	if err != nil {
		return LetterPage{}, err
	}
	return letterPage(items, f, came, place.direction, rows), nil
}

// startOf is the place before the first letter of a list.
func startOf(f LetterFilter) cursor {
	if f.direction() == newer {
		return cursor{direction: newer, id: uuid.Nil}
	}
	return cursor{direction: older, id: uuid.Max}
}

func opposite(direction byte) byte { return older + newer - direction }

// letterPage cuts off the one row too many and makes the cursors.
func letterPage(items []Letter, f LetterFilter, came string, direction byte, rows int) LetterPage {
	more := len(items) > rows
	items = items[:min(len(items), rows)]
	forward := f.direction()
	if direction != forward {
		slices.Reverse(items)
	}
	page := LetterPage{Items: items}
	if len(items) == 0 {
		return page
	}
	if more && direction == forward || direction != forward {
		page.Next = cursor{direction: forward, id: items[len(items)-1].ID}.encode(f)
	}
	if more && direction != forward || direction == forward && came != "" {
		page.Prev = cursor{direction: opposite(forward), id: items[0].ID}.encode(f)
	}
	return page
}

// read reads the letters that the statement ids names, in the asked direction.
func (l *Letters) read(ctx context.Context, settings, ids string, args pgx.NamedArgs, direction byte) ([]Letter, error) {
	order := "DESC"
	if direction == newer {
		order = "ASC"
	}
	sql := "SELECT" + letterSelect + "\nFROM (" + ids + ") p JOIN dead_letter d ON d.id = p.id" +
		letterNames + "\nORDER BY p.id " + order
	var items []Letter
	b := &pgx.Batch{}
	b.Queue(settings)
	b.Queue(sql, args).Query(func(rows pgx.Rows) (err error) {
		items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Letter, error) { return scanLetter(row) })
		return err
	})
	if err := l.pool.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("list letters: %w", err)
	}
	return items, nil
}

// CountLimit is where bounded counts stop: a higher count reads "10,000+".
const CountLimit = 10_000

// Count says how many letters match. It is exact where the filter holds only a
// state and what a fault determines; else it stops at CountLimit and bounded is
// true when there are more.
func (l *Letters) Count(ctx context.Context, f LetterFilter) (n int64, bounded bool, err error) {
	if err := f.check(); err != nil {
		return 0, false, err
	}
	if f.byFault() {
		n, err = l.countByFault(ctx, f)
		return n, false, err
	}
	q, err := l.query(ctx, f)
	if err != nil || q.none {
		return 0, false, err
	}
	if f.Compared() || q.unindexed {
		return l.countCompared(ctx, f, q)
	}
	b := &pgx.Batch{}
	b.Queue(q.settings())
	b.Queue("SELECT count(*) FROM ("+q.ids(older, CountLimit+1)+") x", q.named()).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
	if err := l.pool.SendBatch(ctx, b).Close(); err != nil {
		return 0, false, fmt.Errorf("count letters: %w", err)
	}
	return min(n, CountLimit), n > CountLimit, nil
}

// countByFault adds up the counters and what is not folded into them yet, as of
// one moment.
func (l *Letters) countByFault(ctx context.Context, f LetterFilter) (int64, error) {
	dims, ok, err := l.dimensions(ctx, f)
	if err != nil || !ok {
		return 0, err
	}
	where := "true"
	if len(dims) > 0 {
		where = conditions(dims, "f")
	}
	args := dimensionArgs(dims)
	args["state"] = int16(f.State)
	sql := `
WITH hit AS (SELECT f.id, f.open_n, f.replaying_n, f.resolved_n, f.discarded_n FROM fault f WHERE ` + where + `)
SELECT coalesce((SELECT sum(CASE @state::smallint WHEN 1 THEN open_n WHEN 2 THEN replaying_n WHEN 3 THEN resolved_n
    WHEN 4 THEN discarded_n ELSE open_n + replaying_n + resolved_n + discarded_n END) FROM hit), 0)::bigint
  + coalesce((SELECT sum(x.n) FROM fault_delta x WHERE (@state = 0 OR x.state = @state)
      AND x.fault_id IN (SELECT id FROM hit)), 0)::bigint`
	var n int64
	if err := l.pool.QueryRow(ctx, sql, args).Scan(&n); err != nil {
		return 0, fmt.Errorf("count letters by fault: %w", err)
	}
	return n, nil
}

// Neighbours gives the letters before and after id in the list that f makes;
// uuid.Nil where there is none, or none within what a compared list looks through.
func (l *Letters) Neighbours(ctx context.Context, id uuid.UUID, f LetterFilter) (before, after uuid.UUID, err error) {
	q, err := l.query(ctx, f)
	if err != nil || q.none {
		return uuid.Nil, uuid.Nil, err
	}
	if f.Compared() || q.unindexed {
		return l.neighboursCompared(ctx, f, q, id)
	}
	b := &pgx.Batch{}
	b.Queue(q.settings())
	queueNeighbour(b, q, opposite(q.first), id, &before)
	queueNeighbour(b, q, q.first, id, &after)
	if err := l.pool.SendBatch(ctx, b).Close(); err != nil {
		return uuid.Nil, uuid.Nil, fmt.Errorf("neighbours of letter %s: %w", id, err)
	}
	return before, after, nil
}

func queueNeighbour(b *pgx.Batch, q letterQuery, direction byte, id uuid.UUID, out *uuid.UUID) {
	q.place(cursor{direction: direction, id: id})
	b.Queue(q.ids(direction, 1), q.named()).Query(func(rows pgx.Rows) error {
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if len(ids) == 1 {
			*out = ids[0]
		}
		return err
	})
}

const sqlArrived = `SELECT count(*) FROM (SELECT FROM dead_letter WHERE id > @since LIMIT 1000) x`

// Arrived counts the letters that arrived after since, at most 1,000.
func (l *Letters) Arrived(ctx context.Context, since time.Time) (int, error) {
	var n int
	if err := l.pool.QueryRow(ctx, sqlArrived, pgx.NamedArgs{"since": idFloor(since)}).Scan(&n); err != nil {
		return 0, fmt.Errorf("count arrived letters: %w", err)
	}
	return n, nil
}
