package dlq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// monthsAhead is how many months have their partitions beyond the present one.
const monthsAhead = 3

const sqlAddMonth = `call letter_add_month(now() + make_interval(months => $1))`

// EnsureMonths makes the partitions of the present month and the next three by
// the database's clock. It may run in several processes at once. A drain that meets
// a missing month calls it by itself.
func EnsureMonths(ctx context.Context, pool *pgxpool.Pool) error {
	for ahead := range monthsAhead + 1 {
		if _, err := pool.Exec(ctx, sqlAddMonth, ahead); err != nil {
			return fmt.Errorf("add month %d ahead: %w", ahead, err)
		}
	}
	return nil
}
