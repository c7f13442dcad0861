package schedule

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const sqlUpcoming = `SELECT ref, next_at FROM schedule WHERE kind = @kind`

// Upcoming says when each entry of a kind is due, by its ref.
func Upcoming(ctx context.Context, pool *pgxpool.Pool, kind string) (map[string]time.Time, error) {
	rows, err := pool.Query(ctx, sqlUpcoming, pgx.NamedArgs{"kind": kind})
	if err != nil {
		return nil, fmt.Errorf("query schedule of %s: %w", kind, err)
	}
	due := map[string]time.Time{}
	var ref string
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&ref, &at}, func() error { due[ref] = at; return nil }); err != nil {
		return nil, fmt.Errorf("read schedule of %s: %w", kind, err)
	}
	return due, nil
}
