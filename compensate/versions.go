package compensate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// VersionRow is one version of an action: when it was loaded, and by whom.
type VersionRow struct {
	Definition
	LoadedAt time.Time
	LoadedBy string
}

const sqlVersions = `
SELECT v.action, v.version, v.hash, v.definition, a.trusted_by, a.trusted_version, v.loaded_at, v.loaded_by
FROM compensation_action_version v JOIN compensation_action a ON a.name = v.action
WHERE v.action = @action ORDER BY v.version DESC`

// Versions lists all versions of an action, newest first. Error: ErrNoAction.
func (b *Actions) Versions(ctx context.Context, action string) ([]VersionRow, error) {
	rows, err := b.pool.Query(ctx, sqlVersions, pgx.NamedArgs{"action": action})
	if err != nil {
		return nil, fmt.Errorf("query versions of %s: %w", action, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[VersionRow])
	if err == nil && len(all) == 0 {
		err = ErrNoAction
	}
	if err != nil {
		return nil, fmt.Errorf("read versions of %s: %w", action, err)
	}
	return all, nil
}
