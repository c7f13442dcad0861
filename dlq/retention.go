package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// retentionLock lets one process at a time drop months.
const retentionLock = 7_113_204_105

// Retention drops letters month by month: a month that ended longer ago than
// Keep and holds neither open nor replaying letters goes as a whole, with all
// that belongs to its letters.
type Retention struct {
	pool *pgxpool.Pool
	keep time.Duration
	log  *slog.Logger
}

// NewRetention keeps letters for keep after the end of their month; 0: for ever.
func NewRetention(pool *pgxpool.Pool, keep time.Duration, log *slog.Logger) *Retention {
	return &Retention{pool: pool, keep: keep, log: log}
}

// Keep is how long letters are kept after the end of their month; 0: for ever.
func (r *Retention) Keep() time.Duration { return r.keep }

// KeptUntil is the earliest time at which the letter may be dropped; zero: never.
func (r *Retention) KeptUntil(id uuid.UUID) time.Time {
	if r.keep == 0 {
		return time.Time{}
	}
	at := arrived(id)
	return newLetterMonth(time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)).end.Add(r.keep)
}

// LetterMonth is a month of letters and what retention makes of it.
type LetterMonth struct {
	Month   time.Time // its first instant, UTC
	Letters int64     // exact up to CountLimit, about as many beyond
	DropAt  time.Time // zero: never
	OpenN   int64     // letters that keep it beyond DropAt, as last looked; at most CountLimit
	Why     string    // why it was not dropped when it was due, English; "" it was not due or nothing keeps it
	FoundAt *time.Time
}

const sqlMonthSizes = `
SELECT c.relname, greatest(c.reltuples, 0)::bigint, k.open_n, k.reason, k.found_at
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
LEFT JOIN letter_month_kept k ON 'dead_letter_' || to_char(k.month, 'YYYYMM') = c.relname
WHERE i.inhparent = 'dead_letter'::regclass ORDER BY c.relname`

// Months lists the months that hold letters, oldest first.
func (r *Retention) Months(ctx context.Context) ([]LetterMonth, error) {
	rows, err := r.pool.Query(ctx, sqlMonthSizes)
	if err != nil {
		return nil, fmt.Errorf("query months: %w", err)
	}
	var months []LetterMonth
	var name string
	var open *int64
	var why *string
	var m LetterMonth
	_, err = pgx.ForEachRow(rows, []any{&name, &m.Letters, &open, &why, &m.FoundAt}, func() error {
		start, err := time.Parse("dead_letter_200601", name)
		if err != nil || start.After(time.Now()) {
			return nil
		}
		m.Month, m.OpenN, m.Why, m.DropAt = start, deref(open), deref(why), time.Time{}
		if r.keep > 0 {
			m.DropAt = newLetterMonth(start).end.Add(r.keep)
		}
		months = append(months, m)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read months: %w", err)
	}
	for i := range months {
		if months[i].Letters < CountLimit { // too few, or too new, for the statistics to know
			if err := r.countMonth(ctx, &months[i]); err != nil {
				return nil, err
			}
		}
	}
	return months, nil
}

const sqlMonthLetters = `SELECT count(*) FROM (SELECT FROM dead_letter WHERE id >= @lower AND id < @upper LIMIT @bound) x`

func (r *Retention) countMonth(ctx context.Context, m *LetterMonth) error {
	in := newLetterMonth(m.Month)
	err := r.pool.QueryRow(ctx, sqlMonthLetters, pgx.NamedArgs{"lower": in.lower, "upper": in.upper, "bound": CountLimit + 1}).Scan(&m.Letters)
	if err != nil {
		return fmt.Errorf("count letters of month %s: %w", in.suffix(), err)
	}
	return nil
}

// Sweep drops the months that are due and removes what belonged to their
// letters. It returns how many it dropped. A month that a reader holds for longer
// than two seconds is left for the next time.
func (r *Retention) Sweep(ctx context.Context) (dropped int, err error) {
	if r.keep > 0 {
		if dropped, err = r.dropDue(ctx); err != nil {
			return dropped, err
		}
	}
	return dropped, r.sweepDropped(ctx)
}

func (r *Retention) dropDue(ctx context.Context) (dropped int, err error) {
	months, err := monthsOf(ctx, r.pool, newer)
	if err != nil {
		return 0, err
	}
	var now time.Time
	if err := r.pool.QueryRow(ctx, "SELECT now()").Scan(&now); err != nil {
		return 0, fmt.Errorf("read the database's clock: %w", err)
	}
	for _, m := range months {
		if m.end.Add(r.keep).After(now) {
			break
		}
		gone, err := r.drop(ctx, m)
		switch {
		case lockRefused(err):
			r.log.InfoContext(ctx, "month of letters is in use, dropped later", "month", m.suffix())
		case err != nil:
			return dropped, fmt.Errorf("drop month %s: %w", m.suffix(), err)
		case gone:
			dropped++
		}
	}
	return dropped, nil
}

// lockRefused reports a lock that was not given in time, or a deadlock.
func lockRefused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "55P03" || pg.Code == "40P01")
}

const (
	sqlMonthOpen = `SELECT count(*) FROM (SELECT FROM %s WHERE state IN (1, 2) LIMIT 10001) x`
	// A later arrival's bytes stand in the month of that arrival.
	sqlMonthOwes = `
SELECT EXISTS (SELECT FROM letter_occurrence o JOIN dead_letter d ON d.id = o.letter_id
  WHERE o.body_id >= @lower AND o.body_id < @upper AND o.letter_id < @lower)`
	sqlMonthUncount = `
WITH gone AS (SELECT fault_id, state, verdict, count(*) AS n FROM %s GROUP BY 1, 2, 3),
moved AS (INSERT INTO fault_delta (fault_id, state, verdict, n) SELECT fault_id, state, verdict, -n FROM gone)
SELECT coalesce(sum(n), 0)::bigint FROM gone`
	sqlMonthDropped = `
INSERT INTO letter_month_dropped (month, letters) VALUES (@month, @letters)
ON CONFLICT (month) DO UPDATE SET letters = letter_month_dropped.letters + excluded.letters, dropped_at = now(), swept_at = NULL`
	sqlMonthKept = `
INSERT INTO letter_month_kept (month, open_n, reason, found_at) VALUES (@month, @open, @reason, now())
ON CONFLICT (month) DO UPDATE SET open_n = excluded.open_n, reason = excluded.reason, found_at = excluded.found_at`
)

// drop takes one month away, or notes why it stays. While it counts, letters of
// that month can be read but not changed; the last step locks all letters for
// a moment.
func (r *Retention) drop(ctx context.Context, m letterMonth) (gone bool, err error) {
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", retentionLock).Scan(&mine); err != nil || !mine {
			return err
		}
		table := pgx.Identifier{"dead_letter_" + m.suffix()}.Sanitize()
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '2s'; LOCK TABLE "+table+" IN SHARE MODE"); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		why, open, err := monthStays(ctx, tx, m, table)
		if err != nil {
			return err
		}
		args := pgx.NamedArgs{"month": m.start, "open": open, "reason": why}
		if why != "" {
			_, err := tx.Exec(ctx, sqlMonthKept, args)
			return err
		}
		gone = true
		return r.take(ctx, tx, m, table)
	})
	return gone && err == nil, err
}

// monthStays says why a month that is due stays, "" when it goes.
func monthStays(ctx context.Context, tx pgx.Tx, m letterMonth, table string) (why string, open int64, err error) {
	if err := tx.QueryRow(ctx, fmt.Sprintf(sqlMonthOpen, table)).Scan(&open); err != nil {
		return "", 0, fmt.Errorf("count open letters: %w", err)
	}
	if open > 0 {
		return "letters of it are open or replaying", min(open, CountLimit), nil
	}
	var owes bool
	if err := tx.QueryRow(ctx, sqlMonthOwes, pgx.NamedArgs{"lower": m.lower, "upper": m.upper}).Scan(&owes); err != nil {
		return "", 0, fmt.Errorf("look for later arrivals: %w", err)
	}
	if owes {
		return "it holds later arrivals of letters in an earlier month that stays", 0, nil
	}
	return "", 0, nil
}

func (r *Retention) take(ctx context.Context, tx pgx.Tx, m letterMonth, table string) error {
	var letters int64
	if err := tx.QueryRow(ctx, fmt.Sprintf(sqlMonthUncount, table)).Scan(&letters); err != nil {
		return fmt.Errorf("take letters off the counters: %w", err)
	}
	for _, parent := range []string{"dead_letter", "dead_letter_body", "letter_token"} {
		part := parent + "_" + m.suffix()
		if _, err := tx.Exec(ctx, fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s; DROP TABLE %[2]s", parent, part)); err != nil {
			return fmt.Errorf("drop %s: %w", part, err)
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM letter_month_kept WHERE month = $1", m.start); err != nil {
		return fmt.Errorf("forget why it stayed: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlMonthDropped, pgx.NamedArgs{"month": m.start, "letters": letters}); err != nil {
		return fmt.Errorf("note the drop: %w", err)
	}
	r.log.InfoContext(ctx, "month of letters dropped", "month", m.suffix(), "letters", letters)
	return audit.Write(ctx, tx, access.System(), audit.Entry{Action: "letters.month_dropped", Target: "month/" + m.start.Format("2006-01"),
		Detail: map[string]any{"letters": letters, "kept_for": r.keep.String()}})
}

// byLetter are the tables with rows of single letters and no month of their own.
// Where no index begins with the letter, pages are walked instead.
var byLetter = []struct {
	table   string
	indexed bool
}{
	{"letter_identity", false}, {"letter_bulk_item", false}, {"letter_occurrence", true}, {"letter_verdict", true},
	{"replay_item_letter", true}, {"letter_comment", true}, {"letter_revision", true}, {"letter_unpark", true},
}

const sqlUnswept = `SELECT month FROM letter_month_dropped WHERE swept_at IS NULL ORDER BY month`

// sweepDropped goes on where an earlier process stopped.
func (r *Retention) sweepDropped(ctx context.Context) error {
	rows, err := r.pool.Query(ctx, sqlUnswept)
	if err != nil {
		return fmt.Errorf("query dropped months: %w", err)
	}
	months, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return fmt.Errorf("read dropped months: %w", err)
	}
	for _, start := range months {
		m := newLetterMonth(start)
		for _, t := range byLetter {
			if err := r.sweepTable(ctx, t.table, t.indexed, m); err != nil {
				return fmt.Errorf("sweep %s of month %s: %w", t.table, m.suffix(), err)
			}
		}
		if _, err := r.pool.Exec(ctx, "UPDATE letter_month_dropped SET swept_at = now() WHERE month = $1", start); err != nil {
			return fmt.Errorf("note the sweep of month %s: %w", m.suffix(), err)
		}
	}
	return nil
}

const (
	sweepPages = 500    // pages in one step
	sweepRows  = 10_000 // rows in one step

	sqlSweepRows  = `DELETE FROM %[1]s WHERE ctid = ANY(ARRAY(SELECT ctid FROM %[1]s WHERE letter_id >= @lower AND letter_id < @upper LIMIT @rows))`
	sqlSweepPages = `DELETE FROM %s WHERE ctid >= @from::tid AND ctid < @to::tid AND letter_id >= @lower AND letter_id < @upper`
	sqlPages      = `SELECT pg_relation_size(@table::regclass) / current_setting('block_size')::int`
)

// sweepTable deletes in steps, a commit each. Rows of months that stay are not touched.
func (r *Retention) sweepTable(ctx context.Context, table string, indexed bool, m letterMonth) error {
	args := pgx.NamedArgs{"lower": m.lower, "upper": m.upper, "rows": sweepRows}
	for indexed {
		tag, err := r.pool.Exec(ctx, fmt.Sprintf(sqlSweepRows, table), args)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
	}
	var pages int64
	if err := r.pool.QueryRow(ctx, sqlPages, pgx.NamedArgs{"table": table}).Scan(&pages); err != nil {
		return err
	}
	for from := int64(0); from < pages; from += sweepPages {
		args["from"], args["to"] = fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", from+sweepPages)
		if _, err := r.pool.Exec(ctx, fmt.Sprintf(sqlSweepPages, table), args); err != nil {
			return err
		}
	}
	return nil
}

// Run sweeps at every tick until ctx ends. Any number of processes may run it.
func (r *Retention) Run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if _, err := r.Sweep(ctx); err != nil && ctx.Err() == nil {
			r.log.ErrorContext(ctx, "letters beyond their retention not dropped", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const sqlKeptMonths = `SELECT month, open_n FROM letter_month_kept WHERE open_n > 0 ORDER BY month`

// KeptMonths lists the months that are due and stay because letters of them are
// open, such as "2026-05 (12)".
func KeptMonths(ctx context.Context, pool *pgxpool.Pool) ([]string, error) {
	rows, err := pool.Query(ctx, sqlKeptMonths)
	if err != nil {
		return nil, fmt.Errorf("query kept months: %w", err)
	}
	var kept []string
	var month time.Time
	var open int64
	_, err = pgx.ForEachRow(rows, []any{&month, &open}, func() error {
		kept = append(kept, fmt.Sprintf("%s (%d)", month.Format("2006-01"), open))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read kept months: %w", err)
	}
	return kept, nil
}
