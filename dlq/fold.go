package dlq

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Fold adds the waiting rows of fault_delta to the counters and removes them. It
// returns how many rows there were; another process at it means 0.
func Fold(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	return 0, errors.ErrUnsupported
}

// RunFold folds at every tick until ctx ends. Any number of processes may run it.
func RunFold(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, every time.Duration) {
}
