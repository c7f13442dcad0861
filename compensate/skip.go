package compensate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Skip is a request to leave out a step that has stopped a compensation, which
// somebody else has to agree to.
type Skip struct {
	Compensation int64
	No           int
	Op           Op
	Step         string
	By           string // who asked
	Reason       string
}

// sqlSkips: a step is asked to be skipped where it has failed (3), or nobody knows (4).
const sqlSkips = `
SELECT c.id, s.no, s.op, s.step, s.skip_by, coalesce(s.skip_reason, '')
FROM compensation c JOIN saga_step s ON s.compensation_id = c.id
WHERE c.state = @state AND s.state IN (3, 4) AND s.skip_by IS NOT NULL
ORDER BY c.id, s.op, s.no LIMIT @limit`

// Skips are the requests that wait, of the oldest compensations first, and whether
// there are more than limit.
func (c *Compensations) Skips(ctx context.Context, limit int) ([]Skip, bool, error) {
	rows, err := c.Pool.Query(ctx, sqlSkips, pgx.NamedArgs{"state": NeedsAttention, "limit": limit + 1})
	if err != nil {
		return nil, false, fmt.Errorf("query steps to skip: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Skip])
	if err != nil {
		return nil, false, fmt.Errorf("read steps to skip: %w", err)
	}
	return all[:min(len(all), limit)], len(all) > limit, nil
}
