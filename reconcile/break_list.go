package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// BreakFilter narrows a list; zero values do not.
type BreakFilter struct {
	Job       string
	Run       int64 // breaks that this run found, or saw again, or closed
	Type      Type
	States    []BreakState
	Currency  string
	Owner     string
	EventID   string
	Key       string // the text of one of the key's columns
	OlderThan time.Duration
	AmountMin *Amount // without its sign
	ByAmount  bool    // the largest first, without signs; else the newest
	Before    int64   // id of the last one of the page before
	Limit     int
}

const breakColumns = `
  b.id, b.job, b.key_text, b.type, b.event_id, b.state, b.currency, b.amount::text, b.sides, b.opened_at, b.opened_run,
  b.seen_at, b.seen_run, b.closed_at, b.closed_run, b.closed_how, b.returns, b.owner, b.reason_code, b.explanation, b.explained_by`

// where writes the filter's conditions; the values are in args.
func (f BreakFilter) where(now time.Time) (string, pgx.NamedArgs) {
	args := pgx.NamedArgs{}
	conditions := []string{"true"}
	add := func(set bool, condition, name string, value any) {
		if set {
			conditions = append(conditions, condition)
			args[name] = value
		}
	}
	add(f.Job != "", "b.job = @job", "job", f.Job)
	add(f.Run != 0, "EXISTS (SELECT FROM reconcile_run_break x WHERE x.run_id = @run AND x.break_id = b.id)", "run", f.Run)
	add(f.Type != "", "b.type = @type", "type", f.Type)
	add(len(f.States) > 0, "b.state = ANY(@states)", "states", f.States)
	add(f.Currency != "", "b.currency = @currency", "currency", f.Currency)
	add(f.Owner != "", "b.owner = @owner", "owner", f.Owner)
	add(f.EventID != "", "b.event_id = @event_id", "event_id", f.EventID)
	add(f.Key != "", "@key = ANY(b.key_text)", "key", f.Key)
	add(f.OlderThan != 0, "b.opened_at < @older", "older", now.Add(-f.OlderThan))
	add(f.Before != 0 && !f.ByAmount, "b.id < @before", "before", f.Before)
	add(f.Before != 0 && f.ByAmount, "(abs(b.amount), b.id) < (SELECT abs(p.amount), p.id FROM reconcile_break p WHERE p.id = @before)", "before", f.Before)
	if f.AmountMin != nil {
		add(true, "abs(b.amount) >= @amount::numeric", "amount", f.AmountMin.String())
	}
	return strings.Join(conditions, " AND "), args
}

// List gives breaks, in the filter's order, and whether there are more.
func (b *Breaks) List(ctx context.Context, f BreakFilter, now time.Time) ([]Break, bool, error) {
	where, args := f.where(now)
	args["limit"] = f.Limit + 1
	order := "b.id DESC"
	if f.ByAmount {
		order = "abs(b.amount) DESC, b.id DESC"
	}
	rows, err := b.pool.Query(ctx, "SELECT"+breakColumns+" FROM reconcile_break b WHERE "+where+" ORDER BY "+order+" LIMIT @limit", args)
	if err != nil {
		return nil, false, fmt.Errorf("query breaks: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Break])
	if err != nil {
		return nil, false, fmt.Errorf("read breaks: %w", err)
	}
	return all[:min(len(all), f.Limit)], len(all) > f.Limit, nil
}

// Get reads one break. Error: ErrNoBreak.
func (b *Breaks) Get(ctx context.Context, id int64) (Break, error) {
	rows, err := b.pool.Query(ctx, "SELECT"+breakColumns+" FROM reconcile_break b WHERE b.id = @id", pgx.NamedArgs{"id": id})
	if err != nil {
		return Break{}, fmt.Errorf("query break %d: %w", id, err)
	}
	one, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Break])
	if errors.Is(err, pgx.ErrNoRows) {
		return Break{}, fmt.Errorf("%w: %d", ErrNoBreak, id)
	}
	if err != nil {
		return Break{}, fmt.Errorf("read break %d: %w", id, err)
	}
	return one, nil
}

// Note is one line of a break's timeline.
type Note struct {
	ID     int64
	At     time.Time
	By     string
	Kind   string // opened, reopened, changed, closed, assigned, comment, explained, unexplained, file, compensating, verified
	Text   string
	Detail map[string]any
}

const sqlNotes = `SELECT id, at, by, kind, text, detail FROM reconcile_note WHERE break_id = @id ORDER BY id`

// Notes is a break's timeline, oldest first.
func (b *Breaks) Notes(ctx context.Context, id int64) ([]Note, error) {
	rows, err := b.pool.Query(ctx, sqlNotes, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query notes of break %d: %w", id, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Note])
	if err != nil {
		return nil, fmt.Errorf("read notes of break %d: %w", id, err)
	}
	return all, nil
}

// Bucket is how long breaks have been open.
type Bucket struct {
	UpTo     time.Duration // 0: longer than all others
	Currency string
	Items    int64
	Amount   Amount // without signs
}

// Ages are the upper bounds of the buckets of Aging.
var Ages = []time.Duration{24 * time.Hour, 3 * 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

const sqlAging = `
SELECT width_bucket(extract(epoch FROM @now::timestamptz - opened_at)::float8, @ages::float8[]), currency, count(*), sum(abs(amount))::text
FROM reconcile_break WHERE job = @job AND state IN (1, 2, 4, 7) GROUP BY 1, 2 ORDER BY 1, 2`

// Aging sorts a job's outstanding breaks by how long they have been open.
func (b *Breaks) Aging(ctx context.Context, job string, now time.Time) ([]Bucket, error) {
	return aging(ctx, b.pool, job, now)
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func aging(ctx context.Context, q querier, job string, now time.Time) ([]Bucket, error) {
	ages := make([]float64, len(Ages))
	for i, a := range Ages {
		ages[i] = a.Seconds()
	}
	rows, err := q.Query(ctx, sqlAging, pgx.NamedArgs{"job": job, "now": now, "ages": ages})
	if err != nil {
		return nil, fmt.Errorf("query aging of %s: %w", job, err)
	}
	buckets, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k Bucket, err error) {
		var no int
		err = row.Scan(&no, &k.Currency, &k.Items, &k.Amount)
		if no < len(Ages) {
			k.UpTo = Ages[no]
		}
		return k, err
	})
	if err != nil {
		return nil, fmt.Errorf("read aging of %s: %w", job, err)
	}
	return buckets, nil
}

// Said is what a run said of a break.
type Said struct {
	Run    int64
	What   int // SaidNew, …
	Amount Amount
	At     time.Time
}

const sqlSayings = `
SELECT x.run_id, x.what, x.amount::text, coalesce(r.finished_at, r.asked_at)
FROM reconcile_run_break x JOIN reconcile_run r ON r.id = x.run_id WHERE x.break_id = @id ORDER BY x.run_id DESC LIMIT 100`

// Said lists what runs said of a break, newest first, the last hundred.
func (b *Breaks) Said(ctx context.Context, id int64) ([]Said, error) {
	rows, err := b.pool.Query(ctx, sqlSayings, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query runs of break %d: %w", id, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Said])
	if err != nil {
		return nil, fmt.Errorf("read runs of break %d: %w", id, err)
	}
	return all, nil
}

// File is evidence that somebody added; Content only where File is asked for.
type File struct {
	ID        int64
	BreakID   int64
	At        time.Time
	By        string
	Name      string
	MediaType string
	SHA256    []byte
	Bytes     int64
	Content   []byte
}

const (
	sqlFiles = `SELECT id, break_id, at, by, name, media_type, sha256, length(content)::bigint, NULL::bytea FROM reconcile_file WHERE break_id = @id ORDER BY id`
	sqlFile  = `SELECT id, break_id, at, by, name, media_type, sha256, length(content)::bigint, content FROM reconcile_file WHERE id = @id`
)

// Files lists a break's evidence.
func (b *Breaks) Files(ctx context.Context, id int64) ([]File, error) {
	rows, err := b.pool.Query(ctx, sqlFiles, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query files of break %d: %w", id, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[File])
}

// File reads one file. Error: ErrNoBreak where it does not exist.
func (b *Breaks) File(ctx context.Context, id int64) (File, error) {
	rows, err := b.pool.Query(ctx, sqlFile, pgx.NamedArgs{"id": id})
	if err != nil {
		return File{}, fmt.Errorf("query file %d: %w", id, err)
	}
	f, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[File])
	if errors.Is(err, pgx.ErrNoRows) {
		return f, fmt.Errorf("%w: file %d", ErrNoBreak, id)
	}
	return f, err
}

const sqlNeighbours = `
SELECT coalesce((SELECT min(id) FROM reconcile_break WHERE job = @job AND state IN (1, 2, 4, 7) AND id > @id), 0),
  coalesce((SELECT max(id) FROM reconcile_break WHERE job = @job AND state IN (1, 2, 4, 7) AND id < @id), 0)`

// Neighbours are the outstanding breaks of a job next to one; 0: there is none.
func (b *Breaks) Neighbours(ctx context.Context, job string, id int64) (newer, older int64, err error) {
	err = b.pool.QueryRow(ctx, sqlNeighbours, pgx.NamedArgs{"job": job, "id": id}).Scan(&newer, &older)
	if err != nil {
		return 0, 0, fmt.Errorf("find neighbours of break %d: %w", id, err)
	}
	return newer, older, nil
}
