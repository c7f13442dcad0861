package dlq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlSnapshot asks for generic plans: planning a page's joins costs more than
// running them.
const sqlSnapshot = `
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL jit = off`

// snapshot runs several reads as of one moment, so that counts foot with the
// rows beside them.
func snapshot(ctx context.Context, pool *pgxpool.Pool, read func(tx pgx.Tx) error) error {
	opts := pgx.TxOptions{BeginQuery: sqlSnapshot}
	if err := pgx.BeginTxFunc(ctx, pool, opts, read); err != nil {
		return fmt.Errorf("read a snapshot: %w", err)
	}
	return nil
}
