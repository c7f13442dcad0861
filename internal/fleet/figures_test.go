package fleet_test

import (
	"testing"

	"oncemore/consumer"
	"oncemore/internal/fleet"
	"oncemore/migrations/pgtest"
)

// Every counter is summed over replicas, and kept when their rows are removed.
func TestEveryFigureIsSummedAndKept(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	full := func(r *runner) *runner {
		r.set(func(s *consumer.Status) {
			s.Filtered, s.Discarded, s.Transactions, s.Fallbacks, s.Contention, s.StaleAcks, s.Reconnects = 1, 2, 3, 4, 5, 6, 7
		})
		return r
	}
	report(t, pool, full(newRunner("points", 40)))
	report(t, pool, full(newRunner("points", 2)))
	f := fleet.New(pool, fleet.Options{Logger: quiet})
	check := func(when string) {
		t.Helper()
		g := group(t, f, "points")
		for i, n := range []*int64{g.Filtered, g.Discarded, g.Transactions, g.Fallbacks, g.Contention, g.StaleAcks, g.Reconnects} {
			if want := int64(2 * (i + 1)); n == nil || *n != want {
				t.Errorf("%s: figure %d is %s, want %d", when, i, number(n), want)
			}
		}
	}
	check("two replicas")
	silence(t, pool, "2 days")
	idle := newRunner("points", 0)
	idle.set(func(s *consumer.Status) { s.State = consumer.Stopped })
	runBriefly(t, report(t, pool, idle), func() bool { return len(group(t, f, "points").Replicas) == 1 })
	check("after their rows were removed")
}
