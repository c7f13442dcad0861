package reconcile

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const sqlFindBreaks = `
SELECT` + breakColumns + ` FROM reconcile_break b WHERE b.id IN (
  SELECT id FROM reconcile_break WHERE event_id = @text
  UNION SELECT id FROM reconcile_break WHERE key_text @> ARRAY[@text::text]
  UNION (SELECT id FROM reconcile_break WHERE abs(amount) = @amount::numeric ORDER BY id DESC LIMIT @limit))
ORDER BY b.id DESC LIMIT @limit`

// Find gives the breaks of an event id, of a key, or of an amount without its
// sign, newest first, and whether there are more.
func (b *Breaks) Find(ctx context.Context, text string, limit int) ([]Break, bool, error) {
	args := pgx.NamedArgs{"text": text, "amount": nil, "limit": limit + 1}
	if amount, err := ParseAmount(text); err == nil {
		args["amount"] = amount.Abs().String()
	}
	rows, err := b.pool.Query(ctx, sqlFindBreaks, args)
	if err != nil {
		return nil, false, fmt.Errorf("find breaks: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Break])
	if err != nil {
		return nil, false, fmt.Errorf("read breaks: %w", err)
	}
	return all[:min(len(all), limit)], len(all) > limit, nil
}
