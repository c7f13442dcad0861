package compensate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

const (
	sqlStart = `UPDATE compensation SET state = 3, started_at = now(), due_at = NULL, why = NULL WHERE id = @id AND state = 2`
	sqlPlan  = `INSERT INTO saga_step (compensation_id, no, op, step) SELECT @id, n, 1, s FROM unnest(@no::int[], @steps::text[]) u(n, s)`
)

// start looks once more whether the repair is still what was approved and still
// needed, and takes the event's claim and the day's amount.
func (s *step) start(ctx context.Context) (*time.Time, error) {
	whole, err := s.whole(ctx)
	if err != nil {
		return nil, err
	}
	now := s.c.Clock()
	var due *time.Time
	err = s.fenced(ctx, func(tx pgx.Tx) error {
		if whole {
			return s.c.end(ctx, tx, s.comp, NotNeeded, "system", "the key is whole: somebody or something else has repaired it")
		}
		if ended, err := s.c.outdated(ctx, tx, s.comp); err != nil || ended != nil {
			return err
		}
		next, err := s.mayStart(ctx, tx)
		if err != nil || next != nil {
			due = next
			return err
		}
		due = &now
		return s.begin(ctx, tx)
	})
	return due, err
}

// whole asks whether the break is still one.
func (s *step) whole(ctx context.Context) (bool, error) {
	if s.comp.BreakID == nil {
		return false, nil
	}
	b, err := s.c.Breaks.Get(ctx, *s.comp.BreakID)
	if err != nil {
		return false, err
	}
	f, err := s.c.Runs.State(ctx, b)
	return f.Type == "", err
}

// mayStart takes what only one may have; otherwise it says when to ask again.
func (s *step) mayStart(ctx context.Context, tx pgx.Tx) (*time.Time, error) {
	if s.comp.EventID != nil && s.comp.Group != nil && s.action.Kind != ReplayEvent {
		err := dlq.ClaimForCompensation(ctx, tx, *s.comp.EventID, *s.comp.Group, s.id)
		if errors.Is(err, dlq.ErrClaimed) {
			return s.later(ctx, tx, s.c.Clock().Add(30*time.Second), "a replay or another compensation of the event is under way")
		}
		if err != nil {
			return nil, err
		}
	}
	within, err := s.spend(ctx, tx)
	if err != nil || within {
		return nil, err
	}
	if err := dlq.ReleaseCompensation(ctx, tx, s.id); err != nil {
		return nil, err
	}
	local := s.c.Clock().In(s.action.Zone)
	midnight := time.Date(local.Year(), local.Month(), local.Day()+1, 0, 0, 0, 0, s.action.Zone)
	return s.later(ctx, tx, midnight, "limits.amount_per_day is used up; it starts tomorrow")
}

const sqlLater = `UPDATE compensation SET due_at = @due, why = @why, expires_at = greatest(expires_at, @due::timestamptz + interval '1 hour') WHERE id = @id`

func (s *step) later(ctx context.Context, tx pgx.Tx, due time.Time, why string) (*time.Time, error) {
	if _, err := tx.Exec(ctx, sqlLater, pgx.NamedArgs{"id": s.id, "due": due, "why": why}); err != nil {
		return nil, fmt.Errorf("postpone compensation %d: %w", s.id, err)
	}
	return &due, nil
}

const sqlSpend = `
INSERT INTO compensation_day (action, day, currency, amount, items) SELECT @action, @day, @currency, abs(@amount::numeric), 1
WHERE @limit::numeric IS NULL OR abs(@amount::numeric) <= @limit::numeric
ON CONFLICT (action, day, currency) DO UPDATE SET amount = compensation_day.amount + excluded.amount, items = compensation_day.items + 1
WHERE @limit::numeric IS NULL OR compensation_day.amount + excluded.amount <= @limit::numeric`

// spend counts the amount to the action's day; false: it would be too much.
func (s *step) spend(ctx context.Context, tx pgx.Tx) (bool, error) {
	var limit *string
	if l := s.action.Limits.AmountPerDay; l != nil {
		text := l.String()
		limit = &text
	}
	day := s.c.Clock().In(s.action.Zone).Format(time.DateOnly)
	tag, err := tx.Exec(ctx, sqlSpend, pgx.NamedArgs{"action": s.action.Name, "day": day, "currency": s.comp.Currency, "amount": s.comp.Amount.String(), "limit": limit})
	if err != nil {
		return false, fmt.Errorf("count compensation %d to its day: %w", s.id, err)
	}
	return tag.RowsAffected() == 1, nil
}

func (s *step) begin(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, sqlStart, pgx.NamedArgs{"id": s.id})
	if err != nil || tag.RowsAffected() == 0 {
		return errors.Join(err, errFenced)
	}
	no, steps := make([]int, len(s.action.Steps)), make([]string, len(s.action.Steps))
	for i, st := range s.action.Steps {
		no[i], steps[i] = i, st.ID
	}
	if _, err := tx.Exec(ctx, sqlPlan, pgx.NamedArgs{"id": s.id, "no": no, "steps": steps}); err != nil {
		return fmt.Errorf("steps of compensation %d: %w", s.id, err)
	}
	if s.comp.BreakID != nil {
		if err := reconcile.MarkCompensating(ctx, tx, access.System(), *s.comp.BreakID, s.id); err != nil {
			return err
		}
	}
	return tell(ctx, tx, s.id, "system", "started", "", nil)
}
