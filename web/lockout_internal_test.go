package web

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/migrations/pgtest"
)

// People sign in to one account from several tabs at once: counting an attempt
// and forgetting it lock the same rows, and must do so in one order.
func TestLogInsSideBySideDoNotDeadlock(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	l := newLogins(pool, time.Now)
	var all sync.WaitGroup
	for i := range 8 { // names whose keys sort differently
		name := fmt.Sprintf("user%d", i)
		for range 3 {
			all.Go(func() {
				for range 40 {
					var locked *lockedError
					if err := l.begin(t.Context(), name, "192.0.2.1"); err != nil && !errors.As(err, &locked) {
						t.Errorf("begin: %v", err)
						return
					}
					err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return l.succeeded(t.Context(), tx, name, "192.0.2.1") })
					if err != nil {
						t.Errorf("succeeded: %v", err)
						return
					}
				}
			})
		}
	}
	all.Wait()
}
