package compensate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"oncemore/reconcile"
)

const sqlFindCompensations = `
SELECT id FROM (
  SELECT id FROM compensation WHERE event_id = @text
  UNION SELECT id FROM compensation WHERE key_text @> ARRAY[@text::text]
  UNION (SELECT id FROM compensation WHERE abs(amount) = @amount::numeric ORDER BY id DESC LIMIT @limit)) x
ORDER BY id DESC LIMIT @limit`

// Find gives the compensations of an event id, of a key, or of an amount without
// its sign, newest first, and whether there are more.
func (c *Compensations) Find(ctx context.Context, text string, limit int) ([]Row, bool, error) {
	args := pgx.NamedArgs{"text": text, "amount": nil, "limit": limit + 1}
	if amount, err := reconcile.ParseAmount(text); err == nil {
		args["amount"] = amount.Abs().String()
	}
	rows, err := c.Pool.Query(ctx, sqlFindCompensations, args)
	if err != nil {
		return nil, false, fmt.Errorf("find compensations: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(ids) == 0 {
		return nil, false, err
	}
	more := len(ids) > limit
	ids = ids[:min(len(ids), limit)]
	all, _, err := c.List(ctx, Filter{IDs: ids, Limit: limit})
	return all, more, err
}
