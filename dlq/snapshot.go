package dlq

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// snapshot runs several reads as of one moment, so that counts foot with the
// rows beside them.
func snapshot(ctx context.Context, pool *pgxpool.Pool, read func(tx pgx.Tx) error) error {
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if err := pgx.BeginTxFunc(ctx, pool, opts, read); err != nil {
		return fmt.Errorf("read a snapshot: %w", err)
	}
	return nil
}
