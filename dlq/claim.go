package dlq

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const sqlAddGroups = `
INSERT INTO letter_name (kind, name) SELECT 1, n FROM unnest(@names::text[]) n ORDER BY n
ON CONFLICT (kind, name) DO NOTHING`

const sqlGroupIDs = `SELECT name, id FROM letter_name WHERE kind = 1 AND name = ANY(@names)`

// groupIDs gives each consumer group its id, a new one where it has none. The
// group without a name is 0.
func groupIDs(ctx context.Context, db querier, names []string) (map[string]int32, error) {
	ids := map[string]int32{"": 0}
	if err := readGroupIDs(ctx, db, names, ids); err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(slices.Clone(names), func(n string) bool { _, ok := ids[n]; return ok })
	if len(missing) == 0 {
		return ids, nil
	}
	rows, err := db.Query(ctx, sqlAddGroups, pgx.NamedArgs{"names": missing})
	if err != nil {
		return nil, fmt.Errorf("add group names: %w", err)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("add group names: %w", err)
	}
	return ids, readGroupIDs(ctx, db, missing, ids)
}

func readGroupIDs(ctx context.Context, db querier, names []string, into map[string]int32) error {
	rows, err := db.Query(ctx, sqlGroupIDs, pgx.NamedArgs{"names": names})
	if err != nil {
		return fmt.Errorf("query group names: %w", err)
	}
	var name string
	var id int32
	if _, err := pgx.ForEachRow(rows, []any{&name, &id}, func() error { into[name] = id; return nil }); err != nil {
		return fmt.Errorf("read group names: %w", err)
	}
	return nil
}
