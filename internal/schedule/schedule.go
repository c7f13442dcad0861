// Package schedule starts things at a time, once or again and again, on whichever
// process looks first. It owns the table schedule. An entry and what it does
// commit together: a process that dies in between leaves the entry as it was.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Do is what happens when an entry is due, in the transaction that moves the
// entry on. at is when it was due. It returns when the entry is due next; zero
// ends it. After an error everything is rolled back and tried again later.
type Do func(ctx context.Context, tx pgx.Tx, ref string, at time.Time) (next time.Time, err error)

// Scheduler runs entries of the kinds that it knows.
type Scheduler struct {
	pool  *pgxpool.Pool
	log   *slog.Logger
	clock func() time.Time
	kinds map[string]Do
}

// New makes a scheduler whose entries are due by clock.
func New(pool *pgxpool.Pool, log *slog.Logger, clock func() time.Time) *Scheduler {
	return &Scheduler{pool: pool, log: log, clock: clock, kinds: map[string]Do{}}
}

// Handle says what entries of a kind do. It is called before Run.
func (s *Scheduler) Handle(kind string, do Do) { s.kinds[kind] = do }

const sqlPut = `
INSERT INTO schedule (kind, ref, next_at) VALUES (@kind, @ref, @at)
ON CONFLICT (kind, ref) DO UPDATE SET next_at = excluded.next_at, tries = 0, error = NULL`

// Put makes an entry, or moves the one of that kind and ref, in the caller's
// transaction.
func Put(ctx context.Context, tx pgx.Tx, kind, ref string, at time.Time) error {
	if _, err := tx.Exec(ctx, sqlPut, pgx.NamedArgs{"kind": kind, "ref": ref, "at": at}); err != nil {
		return fmt.Errorf("schedule %s %s: %w", kind, ref, err)
	}
	return nil
}

// Drop takes an entry back in the caller's transaction; one that is not there is
// no error.
func Drop(ctx context.Context, tx pgx.Tx, kind, ref string) error {
	_, err := tx.Exec(ctx, `DELETE FROM schedule WHERE kind = @kind AND ref = @ref`, pgx.NamedArgs{"kind": kind, "ref": ref})
	if err != nil {
		return fmt.Errorf("unschedule %s %s: %w", kind, ref, err)
	}
	return nil
}

// lookEvery is how often Run looks for due entries.
const lookEvery = time.Second

// Run does what is due until ctx ends. Any number of processes may run it.
func (s *Scheduler) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	failing := false
	for {
		_, err := s.Tick(ctx)
		if err != nil && !failing && ctx.Err() == nil { // once per outage
			s.log.ErrorContext(ctx, "scheduled work could not be looked for", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Tick does everything that is due now and returns how many entries it did. A
// failure of one entry is logged and does not hold up the others; the error is
// of the database.
func (s *Scheduler) Tick(ctx context.Context) (int, error) {
	done := 0
	for ctx.Err() == nil {
		found, err := s.one(ctx)
		if err != nil || !found {
			return done, err
		}
		done++
	}
	return done, nil
}

const sqlDue = `
SELECT kind, ref, next_at, tries FROM schedule
WHERE next_at <= @now AND kind = ANY(@kinds)
ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED`

const sqlMove = `UPDATE schedule SET next_at = @next, tries = 0, error = NULL WHERE kind = @kind AND ref = @ref`

type entry struct {
	Kind, Ref string
	At        time.Time
	Tries     int
}

// one does one due entry. found: there was one, whether it went well or not.
func (s *Scheduler) one(ctx context.Context) (found bool, err error) {
	var e entry
	var failed error
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sqlDue, pgx.NamedArgs{"now": s.clock(), "kinds": s.names()}).Scan(&e.Kind, &e.Ref, &e.At, &e.Tries)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("look for due entries: %w", err)
		}
		found = true
		next, err := s.kinds[e.Kind](ctx, tx, e.Ref, e.At)
		if err != nil {
			failed = err
			return err
		}
		if next.IsZero() {
			return Drop(ctx, tx, e.Kind, e.Ref)
		}
		_, err = tx.Exec(ctx, sqlMove, pgx.NamedArgs{"kind": e.Kind, "ref": e.Ref, "next": next})
		return err
	})
	if failed != nil {
		s.log.ErrorContext(ctx, "scheduled work failed; it is tried again", "kind", e.Kind, "ref", e.Ref, "tries", e.Tries+1, "error", failed)
		return true, s.later(ctx, e, failed)
	}
	return found, err
}

const sqlLater = `
UPDATE schedule SET next_at = @next, tries = tries + 1, error = @error
WHERE kind = @kind AND ref = @ref AND next_at = @at`

// later puts a failed entry off: 2 s, then twice as long each time, at most 5 min.
func (s *Scheduler) later(ctx context.Context, e entry, failed error) error {
	wait := min(2*time.Second<<min(e.Tries, 10), 5*time.Minute)
	_, err := s.pool.Exec(ctx, sqlLater, pgx.NamedArgs{
		"kind": e.Kind, "ref": e.Ref, "at": e.At, "next": s.clock().Add(wait),
		"error": strings.ReplaceAll(strings.ToValidUTF8(failed.Error(), "\uFFFD"), "\x00", "\uFFFD"),
	})
	if err != nil {
		return fmt.Errorf("put %s %s off: %w", e.Kind, e.Ref, err)
	}
	return nil
}

func (s *Scheduler) names() []string {
	names := make([]string, 0, len(s.kinds))
	for name := range s.kinds {
		names = append(names, name)
	}
	return names
}
