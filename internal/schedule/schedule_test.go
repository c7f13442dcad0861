package schedule_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/schedule"
	"oncemore/migrations/pgtest"
)

// clock is moved by the test.
type clock struct{ at atomic.Pointer[time.Time] }

func newClock() *clock {
	c := &clock{}
	c.set(time.Date(2026, 11, 30, 22, 0, 0, 0, time.UTC))
	return c
}

func (c *clock) now() time.Time      { return *c.at.Load() }
func (c *clock) set(t time.Time)     { c.at.Store(&t) }
func (c *clock) add(d time.Duration) { c.set(c.now().Add(d)) }

func put(t *testing.T, pool *pgxpool.Pool, ref string, at time.Time) {
	t.Helper()
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return schedule.Put(t.Context(), tx, "k", ref, at) }); err != nil {
		t.Fatal(err)
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func tick(t *testing.T, s *schedule.Scheduler, want int) {
	t.Helper()
	if n, err := s.Tick(t.Context()); err != nil || n != want {
		t.Fatalf("did %d of %d: %v", n, want, err)
	}
}

func TestAnEntryIsDoneOnceAtItsTime(t *testing.T) {
	t.Parallel()
	pool, c := pgtest.New(t), newClock()
	s := schedule.New(pool, quiet(), c.now)
	var did []string
	s.Handle("k", func(_ context.Context, _ pgx.Tx, ref string, _ time.Time) (time.Time, error) {
		did = append(did, ref)
		return time.Time{}, nil
	})
	put(t, pool, "a", c.now().Add(time.Hour))
	tick(t, s, 0)
	put(t, pool, "a", c.now().Add(2*time.Hour)) // moved
	c.add(90 * time.Minute)
	tick(t, s, 0)
	c.add(time.Hour)
	tick(t, s, 1)
	tick(t, s, 0)
	if len(did) != 1 || did[0] != "a" {
		t.Errorf("did %v", did)
	}
}

func TestARecurringEntryMovesOn(t *testing.T) {
	t.Parallel()
	pool, c := pgtest.New(t), newClock()
	s := schedule.New(pool, quiet(), c.now)
	n := 0
	s.Handle("k", func(_ context.Context, _ pgx.Tx, _ string, at time.Time) (time.Time, error) {
		n++
		return at.Add(time.Hour), nil
	})
	put(t, pool, "hourly", c.now())
	tick(t, s, 1)
	tick(t, s, 0)
	c.add(time.Hour)
	tick(t, s, 1)
	if n != 2 {
		t.Errorf("ran %d times", n)
	}
}

func TestAFailedEntryIsRolledBackAndTriedAgain(t *testing.T) {
	t.Parallel()
	pool, c := pgtest.New(t), newClock()
	s := schedule.New(pool, quiet(), c.now)
	fail := true
	s.Handle("k", func(ctx context.Context, tx pgx.Tx, _ string, _ time.Time) (time.Time, error) {
		if _, err := tx.Exec(ctx, `INSERT INTO schedule (kind, ref, next_at) VALUES ('effect', clock_timestamp()::text, now())`); err != nil {
			return time.Time{}, err
		}
		if fail {
			return time.Time{}, errors.New("not yet\x00")
		}
		return time.Time{}, nil
	})
	put(t, pool, "a", c.now())
	tick(t, s, 1)
	tick(t, s, 0) // put off
	fail = false
	c.add(3 * time.Second)
	tick(t, s, 1)
	var effects, left int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE kind = 'effect'), count(*) FILTER (WHERE kind = 'k') FROM schedule`).Scan(&effects, &left); err != nil {
		t.Fatal(err)
	}
	if effects != 1 || left != 0 {
		t.Errorf("%d effects, %d entries left", effects, left)
	}
}

func TestSeveralProcessesShareTheEntries(t *testing.T) {
	t.Parallel()
	pool, c := pgtest.New(t), newClock()
	var mu sync.Mutex
	did := map[string]int{}
	do := func(_ context.Context, _ pgx.Tx, ref string, _ time.Time) (time.Time, error) {
		mu.Lock()
		defer mu.Unlock()
		did[ref]++
		return time.Time{}, nil
	}
	for i := range 30 {
		put(t, pool, strconv.Itoa(i), c.now())
	}
	var all sync.WaitGroup
	for range 3 {
		s := schedule.New(pool, quiet(), c.now)
		s.Handle("k", do)
		all.Go(func() {
			if _, err := s.Tick(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(did) != 30 {
		t.Errorf("%d entries were done", len(did))
	}
	for ref, n := range did {
		if n != 1 {
			t.Errorf("entry %s was done %d times", ref, n)
		}
	}
}
