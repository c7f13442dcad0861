package reconcile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// Segments side by side need more sessions than there are: they take turns, and
// a job that could never have its turn is told so.
func TestSegmentsTakeTurnsForSessions(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for _, side := range []string{"consumed", "effect"} {
		b.exec(fmt.Sprintf(tableConsumed, side, "timestamptz"))
		b.exec("INSERT INTO " + side + " SELECT 'e' || n, 1, 'CNY', $1::timestamptz + n * interval '1 second' FROM generate_series(0, 8 * 3600 - 1) n", noon)
	}
	b.readable()
	compare := func(sessions int32) error {
		conf := b.named["pg"].Postgres.Config().Copy()
		conf.MaxConns = sessions
		pool, err := pgxpool.NewWithConfig(t.Context(), conf)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, fmt.Errorf("with %d sessions it stands still", sessions))
		defer cancel()
		c, err := prepare(ctx, parseJob(t, jobText("pg", "pg", matchOne)), map[string]Database{"pg": {Name: "pg", Postgres: pool}})
		if err != nil {
			t.Fatal(err)
		}
		group, ctx := errgroup.WithContext(ctx)
		for i := range 8 {
			group.Go(func() error {
				_, err := c.evaluate(ctx, hour(noon.Add(time.Duration(i)*time.Hour)), noon.Add(100*time.Hour), 1000)
				return err
			})
		}
		return group.Wait()
	}
	if err := compare(2); err != nil {
		t.Error(err)
	}
	if err := compare(1); err == nil || !strings.Contains(err.Error(), "allows 1 sessions at once, and the job needs 2") {
		t.Errorf("one session for two sides: %v", err)
	}
}
