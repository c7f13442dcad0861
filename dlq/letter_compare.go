package dlq

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// budgets are how long a list compares letters before it stops and says how far
// it came: columns are cheap, bytes are not.
type budgets struct{ columns, bytes time.Duration }

var usualBudgets = budgets{columns: 150 * time.Millisecond, bytes: 1500 * time.Millisecond}

// comparing walks the letters of a query in one direction and keeps those that
// the rest of the filter holds for.
type comparing struct {
	letters   *Letters
	query     letterQuery
	filter    LetterFilter
	terms     []Term
	months    []letterMonth // of the token index, in the walk's order; nil: the walk is not by tokens
	direction byte
	parts     int       // compared so far
	end       time.Time // when to stop; zero: at the end of the list
	besides   string    // what of the query no index finds
	where     string    // the rest of the filter as a condition on d and b
	args      pgx.NamedArgs
}

// comparing prepares a walk. A budget of 0 is none.
func (l *Letters) comparing(ctx context.Context, f LetterFilter, q letterQuery, direction byte, budget time.Duration) (*comparing, error) {
	w := &comparing{letters: l, query: q, filter: f, direction: direction, args: pgx.NamedArgs{}}
	if q.unindexed {
		w.besides, w.query.where = q.where, ""
		maps.Copy(w.args, q.args)
	}
	if budget > 0 {
		w.end = time.Now().Add(budget)
	}
	var err error
	if w.terms, err = ParseTerms(f.Search); err != nil {
		return nil, err
	}
	if len(w.terms) > 0 {
		if w.months, err = monthsOf(ctx, l.pool, direction); err != nil {
			return nil, err
		}
	}
	w.conditions()
	return w, nil
}

// of is how long a page of the filter may take to find.
func (b budgets) of(f LetterFilter) time.Duration {
	if f.Search != "" || f.Text != "" {
		return b.bytes
	}
	return b.columns
}

func (w *comparing) conditions() {
	var all []string
	add := func(condition, arg string, value any) {
		all, w.args[arg] = append(all, condition), value
	}
	f := w.filter
	if f.Verdict != 0 {
		add("d.verdict = @verdict", "verdict", max(int16(f.Verdict), 0))
	}
	if f.AttemptsMin > 0 {
		add("d.attempts >= @attempts_min", "attempts_min", f.AttemptsMin)
	}
	if f.AttemptsMax > 0 {
		add("d.attempts <= @attempts_max", "attempts_max", f.AttemptsMax)
	}
	const owner = "coalesce(d.owner_id, (SELECT f.owner_id FROM fault f WHERE f.id = d.fault_id))"
	switch {
	case f.Owner == OwnerNone:
		all = append(all, owner+" IS NULL")
	case f.Owner != "":
		add(owner+" = (SELECT id FROM letter_name WHERE kind = 4 AND name = @owner)", "owner", f.Owner)
	}
	switch {
	case f.Text != "" && f.AnyCase:
		add(sqlHoldsAnyCase, "needles", foldedNeedles(f.Text))
	case f.Text != "":
		add(sqlHoldsText, "needles", needles(f.Text))
	}
	w.where = orTrue(strings.Join(append(all, nonEmpty(w.besides)...), " AND "))
}

// sqlHoldsText compares bytes, so that any language and any binary is found.
const sqlHoldsText = `EXISTS (SELECT FROM unnest(@needles::bytea[]) n WHERE position(n IN b.value) > 0
  OR position(n IN b.headers) > 0 OR position(n IN b.key) > 0
  OR position(n IN convert_to(coalesce(d.event_id, '') || ' ' || coalesce(d.error_message, ''), 'UTF8')) > 0)`

// sqlHoldsAnyCase compares bytes as fold writes them, with Latin letters small.
// The escape format doubles backslashes; as one other character they cannot be
// taken for the beginning of an escape.
const sqlHoldsAnyCase = `EXISTS (
  SELECT FROM unnest(ARRAY[b.value, b.headers, b.key, convert_to(coalesce(d.event_id, '') || ' ' || coalesce(d.error_message, ''), 'UTF8')]) h
  CROSS JOIN LATERAL (SELECT lower(replace(encode(h, 'escape'), '\\', '¦') COLLATE "C") AS folded OFFSET 0) f
  JOIN unnest(@needles::text[]) n ON position(n IN f.folded) > 0)`

// found is a letter of a walk that matches.
type walkPart struct {
	ids  []uuid.UUID // that match, in order
	last uuid.UUID   // the last one looked at
	done bool        // nothing comes after it
}

// next looks at the following part of the list.
func (w *comparing) next(ctx context.Context) (walkPart, error) {
	if w.months != nil {
		return w.nextByTokens(ctx)
	}
	size := w.size()
	part, n, err := w.compare(ctx, w.query.ids(w.direction, size), w.query.named())
	if err != nil {
		return part, err
	}
	if part.done = n < size; !part.done {
		w.query.place(cursor{direction: w.direction, id: part.last})
	}
	return part, nil
}

// compareSizes are how many letters are compared together: few at first, since most
// pages are full soon.
var compareSizes = []int{200, 500, 2000}

// size is that of the next part. Through faults each of them gives as many, of
// which only the first are taken.
func (w *comparing) size() int {
	size := compareSizes[min(w.parts, len(compareSizes)-1)]
	for w.query.via && size > 100 && size*len(w.query.faults) > 20_000 {
		size /= 2
	}
	w.parts++
	return size
}

// compare runs the rest of the filter over the letters that ids names.
func (w *comparing) compare(ctx context.Context, ids string, args pgx.NamedArgs) (walkPart, int, error) {
	body, order := "", "DESC"
	if w.filter.Text != "" {
		body = " LEFT JOIN dead_letter_body b ON b.id = d.id"
	}
	if w.direction == newer {
		order = "ASC"
	}
	sql := "SELECT p.id, coalesce(" + w.where + ", false) FROM (" + ids + ") p JOIN dead_letter d ON d.id = p.id" + body + " ORDER BY p.id " + order
	for k, v := range w.args {
		args[k] = v
	}
	var part walkPart
	n := 0
	b := &pgx.Batch{}
	b.Queue(w.query.settings())
	b.Queue(sql, args).Query(func(rows pgx.Rows) error {
		var id uuid.UUID
		var hit bool
		_, err := pgx.ForEachRow(rows, []any{&id, &hit}, func() error {
			n++
			part.last = id
			if hit {
				part.ids = append(part.ids, id)
			}
			return nil
		})
		return err
	})
	if err := w.letters.pool.SendBatch(ctx, b).Close(); err != nil {
		return part, 0, fmt.Errorf("compare letters: %w", err)
	}
	return part, n, nil
}

// walked is what a walk found.
type walked struct {
	ids     []uuid.UUID
	at      uuid.UUID // the last one looked at
	stopped bool      // the time was over before rows were found or the end was reached
}

// collect walks until it has rows letters, the list ends or the time is over.
func (w *comparing) collect(ctx context.Context, rows int) (walked, error) {
	var found walked
	for {
		part, err := w.next(ctx)
		if err != nil {
			return found, err
		}
		found.ids = append(found.ids, part.ids...)
		if part.last != uuid.Nil {
			found.at = part.last
		}
		if len(found.ids) >= rows {
			found.ids = found.ids[:rows]
			return found, nil
		}
		if part.done {
			return found, nil
		}
		if !w.end.IsZero() && time.Now().After(w.end) {
			found.stopped = true
			return found, nil
		}
	}
}

const sqlNamedLetters = `SELECT id FROM unnest(@ids::uuid[]) u(id)`

// listCompared is List for filters that are compared letter by letter.
func (l *Letters) listCompared(ctx context.Context, f LetterFilter, q letterQuery, place cursor, came string, rows int) (LetterPage, error) {
	w, err := l.comparing(ctx, f, q, place.direction, l.budgets.of(f))
	if err != nil {
		return LetterPage{}, err
	}
	found, err := w.collect(ctx, rows+1)
	if err != nil {
		return LetterPage{}, err
	}
	items, err := l.read(ctx, sqlGeneric, sqlNamedLetters, pgx.NamedArgs{"ids": found.ids}, place.direction)
	if err != nil {
		return LetterPage{}, err
	}
	page := letterPage(items, f, came, place.direction, rows)
	if found.stopped && found.at != uuid.Nil {
		at := arrived(found.at)
		page.Stopped = &at
		on := cursor{direction: place.direction, id: found.at}.encode(f)
		if place.direction == f.direction() {
			page.Next = on
		} else {
			page.Prev = on
		}
	}
	return page, nil
}

// countCompared counts as far as the budget goes: bounded is true beyond it.
func (l *Letters) countCompared(ctx context.Context, f LetterFilter, q letterQuery) (int64, bool, error) {
	w, err := l.comparing(ctx, f, q, q.first, l.budgets.of(f))
	if err != nil {
		return 0, false, err
	}
	found, err := w.collect(ctx, CountLimit+1)
	if err != nil {
		return 0, false, err
	}
	n := int64(len(found.ids))
	return min(n, CountLimit), found.stopped || n > CountLimit, nil
}

func (l *Letters) neighboursCompared(ctx context.Context, f LetterFilter, q letterQuery, id uuid.UUID) (before, after uuid.UUID, err error) {
	for direction, out := range map[byte]*uuid.UUID{opposite(q.first): &before, q.first: &after} {
		side := q
		side.place(cursor{direction: direction, id: id})
		w, err := l.comparing(ctx, f, side, direction, l.budgets.columns)
		if err != nil {
			return uuid.Nil, uuid.Nil, err
		}
		found, err := w.collect(ctx, 1)
		if err != nil {
			return uuid.Nil, uuid.Nil, fmt.Errorf("neighbours of letter %s: %w", id, err)
		}
		if len(found.ids) == 1 {
			*out = found.ids[0]
		}
	}
	return before, after, nil
}

// eachMatch gives the ids of all letters that match, oldest first and in parts
// of at most size, whatever it costs. upper is exclusive.
func (l *Letters) eachMatch(ctx context.Context, f LetterFilter, after, upper uuid.UUID, size int, take func(ids []uuid.UUID) (more bool, err error)) error {
	f.Sort = SortOldest
	q, err := l.query(ctx, f)
	if err != nil || q.none {
		return err
	}
	q.place(cursor{direction: newer, id: after})
	if upper != uuid.Nil {
		q.place(cursor{direction: older, id: upper})
	}
	next := l.plainParts(q, size)
	if f.Compared() {
		w, err := l.comparing(ctx, f, q, newer, 0)
		if err != nil {
			return err
		}
		next = func(ctx context.Context) (walkPart, error) { return w.next(ctx) }
	}
	for {
		part, err := next(ctx)
		if err != nil {
			return err
		}
		for ids := part.ids; len(ids) > 0; {
			n := min(size, len(ids))
			more, err := take(ids[:n])
			if err != nil || !more {
				return err
			}
			ids = ids[n:]
		}
		if part.done {
			return nil
		}
	}
}

// plainParts reads the ids of a query that needs no comparing.
func (l *Letters) plainParts(q letterQuery, size int) func(context.Context) (walkPart, error) {
	return func(ctx context.Context) (part walkPart, err error) {
		rows, err := l.pool.Query(ctx, q.ids(newer, size), q.named())
		if err != nil {
			return part, fmt.Errorf("query letters of a filter: %w", err)
		}
		if part.ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]); err != nil {
			return part, fmt.Errorf("read letters of a filter: %w", err)
		}
		if part.done = len(part.ids) < size; !part.done {
			part.last = part.ids[size-1]
			q.place(cursor{direction: newer, id: part.last})
		}
		return part, nil
	}
}
