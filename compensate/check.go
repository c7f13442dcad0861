package compensate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
)

const (
	// sqlAsk leaves the step as a process that died would have: it is asked for,
	// and not repeated.
	sqlAsk = `
UPDATE saga_step SET state = 1, due_at = NULL, why = NULL
WHERE compensation_id = @id AND state = 4 AND op = (SELECT max(op) FROM saga_step WHERE compensation_id = @id)`
	sqlAskAgain = `UPDATE compensation SET state = 3, why = NULL WHERE id = @id`
)

// Check asks the probe of a step whose outcome is unknown once more whether it
// has been applied; nothing is sent a second time unless the probe says that it
// was not. Error: ErrState, where no step is of unknown outcome.
func (c *Compensations) Check(ctx context.Context, actor access.Actor, id int64) error {
	if actor.Reason == "" {
		actor.Reason = "checked"
	}
	return c.control(ctx, actor, access.ControlCompensation, id, "checked", func(tx pgx.Tx, comp *Compensation) error {
		if err := among(comp, NeedsAttention); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, sqlAsk, pgx.NamedArgs{"id": id})
		if err != nil {
			return fmt.Errorf("check compensation %d: %w", id, err)
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%w: no step of %d is of unknown outcome", ErrState, id)
		}
		if _, err := tx.Exec(ctx, sqlAskAgain, pgx.NamedArgs{"id": id}); err != nil {
			return fmt.Errorf("check compensation %d: %w", id, err)
		}
		return c.enqueue(ctx, tx, id, c.Clock())
	})
}

// CanCheck reports whether the steps that are of unknown outcome can be asked for.
func (a *Action) CanCheck(rows []StepRow) bool {
	found := false
	for _, r := range rows {
		if r.State != StepUnknown || r.No >= len(a.Steps) {
			continue
		}
		if s := a.Steps[r.No]; r.Op != Forward || s.Kind == HTTP && s.Probe == nil {
			return false
		}
		found = true
	}
	return found
}
