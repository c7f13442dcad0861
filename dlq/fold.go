package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// foldLock lets one process at a time fold.
const foldLock = 7_113_204_101

// An hour's arrivals are deltas that carry a time; verdict moves carry none and
// cancel out within a state.
const sqlFold = `
WITH d AS (DELETE FROM fault_delta RETURNING fault_id, state, verdict, n, seen_at),
per_verdict AS (
  INSERT INTO fault_count AS c (fault_id, state, verdict, n)
  SELECT fault_id, state, verdict, sum(n) FROM d GROUP BY 1, 2, 3 HAVING sum(n) <> 0 ORDER BY 1, 2, 3
  ON CONFLICT (fault_id, state, verdict) DO UPDATE SET n = c.n + excluded.n),
per_hour AS (
  INSERT INTO fault_hour AS h (fault_id, hour, n, resolved)
  SELECT fault_id, date_trunc('hour', coalesce(seen_at, now()), 'UTC') AS hour,
    coalesce(sum(n) FILTER (WHERE state = 1 AND seen_at IS NOT NULL AND n > 0), 0),
    greatest(coalesce(sum(n) FILTER (WHERE state = 3), 0), 0)
  FROM d GROUP BY 1, 2
  HAVING sum(n) FILTER (WHERE state = 1 AND seen_at IS NOT NULL AND n > 0) > 0 OR sum(n) FILTER (WHERE state = 3) > 0
  ORDER BY 1, 2
  ON CONFLICT (fault_id, hour) DO UPDATE SET n = h.n + excluded.n, resolved = h.resolved + excluded.resolved),
per_fault AS (
  SELECT fault_id, max(seen_at) AS seen,
    coalesce(sum(n) FILTER (WHERE state = 1), 0) AS open_n, coalesce(sum(n) FILTER (WHERE state = 2), 0) AS replaying_n,
    coalesce(sum(n) FILTER (WHERE state = 3), 0) AS resolved_n, coalesce(sum(n) FILTER (WHERE state = 4), 0) AS discarded_n
  FROM d GROUP BY 1),
totals AS (
  UPDATE fault f SET last_seen = greatest(f.last_seen, p.seen), changed_at = now(),
    came_back_at = CASE WHEN f.open_n + f.replaying_n <= 0 AND f.resolved_n + f.discarded_n > 0 AND p.open_n > 0 AND p.seen IS NOT NULL
      THEN p.seen ELSE f.came_back_at END,
    open_n = f.open_n + p.open_n, replaying_n = f.replaying_n + p.replaying_n,
    resolved_n = f.resolved_n + p.resolved_n, discarded_n = f.discarded_n + p.discarded_n
  FROM per_fault p WHERE f.id = p.fault_id)
SELECT count(*) FROM d`

// Fold adds the waiting rows of fault_delta to the counters and removes them. It
// returns how many rows there were; another process at it means 0.
func Fold(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	var n int64
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		var mine bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", foldLock).Scan(&mine); err != nil || !mine {
			return err
		}
		return tx.QueryRow(ctx, sqlFold).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("fold fault counters: %w", err)
	}
	return n, nil
}

// RunFold folds at every tick until ctx ends. Any number of processes may run it.
func RunFold(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	failing := false
	for {
		_, err := Fold(ctx, pool)
		if err != nil && !failing && ctx.Err() == nil { // once per outage, not each second
			log.WarnContext(ctx, "fault counters not folded", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
