package dlq

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const sqlSensitive = `
SELECT EXISTS (SELECT FROM letter_revision v JOIN unnest(@letters::uuid[], @nos::int[]) u(letter, no) ON v.letter_id = u.letter AND v.no <= u.no
WHERE v.sensitive)`

// findSensitive notes whether a revision that is sent, or one that it may be made
// from, changed a sensitive header: that takes a second person.
func (r *Replays) findSensitive(ctx context.Context, set *planSet) error {
	var letters []uuid.UUID
	var nos []int
	for _, it := range set.items {
		if it.revised != nil {
			letters, nos = append(letters, it.revised.id), append(nos, it.revised.revision)
		}
	}
	if len(letters) == 0 {
		return nil
	}
	if err := r.pool.QueryRow(ctx, sqlSensitive, pgx.NamedArgs{"letters": letters, "nos": nos}).Scan(&set.sensitive); err != nil {
		return fmt.Errorf("look for sensitive revisions: %w", err)
	}
	return nil
}
