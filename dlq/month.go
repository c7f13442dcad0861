package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// monthsAhead is how many months have their partitions beyond the present one.
const monthsAhead = 3

const sqlAddMonth = `call letter_add_month(now() + make_interval(months => $1))`

// EnsureMonths makes the partitions of the present month and the next three by
// the database's clock. It may run in several processes at once.
func EnsureMonths(ctx context.Context, pool *pgxpool.Pool) error {
	for ahead := range monthsAhead + 1 {
		if _, err := pool.Exec(ctx, sqlAddMonth, ahead); err != nil {
			return fmt.Errorf("add month %d ahead: %w", ahead, err)
		}
	}
	return nil
}

// monthsEvery is how often the months ahead are looked after; three of them leave
// time for a failure to be seen.
const monthsEvery = 6 * time.Hour

// KeepMonths makes months now and as time goes by, until ctx ends. Any number of
// processes may run it.
func KeepMonths(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) {
	tick := time.NewTicker(monthsEvery)
	defer tick.Stop()
	for {
		if err := EnsureMonths(ctx, pool); err != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, "months of dead letters not made", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
