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

// busyAgain is when a compensation asks again that waits for others.
const busyAgain = 30 * time.Second

// start looks once more whether the repair is still what was approved and still
// needed, and takes what only one may have.
func (s *step) start(ctx context.Context) (*time.Time, error) {
	now := s.c.Clock()
	if due := s.comp.DueAt; due != nil && due.After(now) {
		return due, nil // resumed before its turn
	}
	seen, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	var due *time.Time
	err = s.fenced(ctx, func(tx pgx.Tx) error {
		switch {
		case seen.end != 0:
			return s.end(ctx, tx, seen.end, seen.why)
		case seen.why != "":
			due, err = s.later(ctx, tx, now.Add(busyAgain), seen.why)
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
	if errors.Is(err, errSpent) {
		due, err = s.tomorrow(ctx, now)
	}
	if err == nil && seen.end == NotNeeded && s.comp.BreakID != nil {
		s.closeBreak(ctx)
	}
	return due, err
}

// closeBreak asks for a run of the key, which closes what is whole. The next run
// of a window would, too.
func (s *step) closeBreak(ctx context.Context) {
	request := reconcile.Request{Job: *s.comp.Job, Keys: [][]string{s.comp.Key}}
	if _, err := s.c.Runs.Ask(ctx, access.System(), request); err != nil {
		s.c.Log.WarnContext(ctx, "the key of a repair that was not needed is not looked at before its job's next run", "compensation", s.id, "error", err)
	}
}

// sight is what a last look before the start has found: how the compensation
// ends without a start, or only why it waits.
type sight struct {
	end State
	why string
}

// look reads everything that could forbid the start, outside of a transaction.
func (s *step) look(ctx context.Context) (seen sight, err error) {
	if s.comp.ExpiresAt != nil && !s.c.Clock().Before(*s.comp.ExpiresAt) {
		return sight{Expired, "it was not started in time"}, nil
	}
	if s.comp.Automatic {
		if stop, err := s.c.Switch(ctx); err != nil || stop.StoppedBy != nil {
			return sight{why: "what runs by itself is stopped"}, err
		}
	}
	if s.comp.BreakID != nil {
		seen, err = s.lookAtBreak(ctx)
	} else {
		seen, err = s.lookAtLetter(ctx)
	}
	if err != nil || seen.why != "" {
		return seen, err
	}
	why, err := s.c.changed(ctx, s.comp)
	if why != "" {
		seen = sight{Voided, why}
	}
	return seen, err
}

// lookAtBreak reads the key again on all sides: the break as it was approved has
// to be what is there now.
func (s *step) lookAtBreak(ctx context.Context) (sight, error) {
	b, err := s.c.Breaks.Get(ctx, *s.comp.BreakID)
	if err != nil {
		return sight{}, err
	}
	if b.State == reconcile.Compensating {
		return sight{why: "another compensation of the break is under way"}, nil
	}
	f, err := s.c.looks.state(ctx, b)
	switch {
	case err != nil:
		return sight{}, err
	case f.Type == "":
		return sight{NotNeeded, "the key is whole: somebody or something else has repaired it"}, nil
	case f.Type != b.Type, f.Currency != b.Currency, !f.Difference.Equal(b.Amount):
		return sight{Voided, fmt.Sprintf("the key is %s %s %s now, and %s %s %s was approved", f.Type, f.Difference, f.Currency, b.Type, b.Amount, b.Currency)}, nil
	}
	return sight{}, nil
}

func (s *step) lookAtLetter(ctx context.Context) (sight, error) {
	stands, why, err := s.c.applied(ctx, s.comp)
	switch {
	case err != nil:
		return sight{}, err
	case stands == applied:
		return sight{NotNeeded, "the effect is there: " + why}, nil
	case stands == notKnown:
		return sight{why: "whether the effect is there is not known: " + why}, nil
	}
	return sight{}, nil
}

// mayStart takes the turn and the event's claim; otherwise it says when to ask
// again.
func (s *step) mayStart(ctx context.Context, tx pgx.Tx) (*time.Time, error) {
	now := s.c.Clock()
	if s.action.missed(s.comp.DueAt, now) {
		turn, err := s.c.turn(ctx, tx, s.action)
		if err != nil || turn.After(now) {
			return s.waits(ctx, tx, err, turn, "limits.rate")
		}
	}
	if s.claims() {
		err := dlq.ClaimForCompensation(ctx, tx, *s.comp.EventID, *s.comp.Group, s.id)
		if errors.Is(err, dlq.ErrClaimed) {
			return s.later(ctx, tx, now.Add(busyAgain), "a replay or another compensation of the event is under way")
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// errSpent takes a start back that the day's limit does not allow.
var errSpent = errors.New("compensate: the amount of the day is used up")

func (s *step) tomorrow(ctx context.Context, now time.Time) (due *time.Time, err error) {
	err = s.fenced(ctx, func(tx pgx.Tx) error {
		due, err = s.later(ctx, tx, s.action.midnight(now), "limits.amount_per_day is used up; it starts tomorrow")
		return err
	})
	return due, err
}

// claims reports whether the event is claimed. A replay claims it itself.
func (s *step) claims() bool {
	return s.comp.EventID != nil && s.comp.Group != nil && s.action.Kind != ReplayEvent
}

// midnight is where the next day of the action's zone begins.
func (a *Action) midnight(now time.Time) time.Time {
	local := now.In(a.Zone)
	return time.Date(local.Year(), local.Month(), local.Day()+1, 0, 0, 0, 0, a.Zone)
}

func (s *step) waits(ctx context.Context, tx pgx.Tx, err error, due time.Time, why string) (*time.Time, error) {
	if err != nil {
		return nil, err
	}
	return s.later(ctx, tx, due, why)
}

const sqlLater = `UPDATE compensation SET due_at = @due, why = @why WHERE id = @id`

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

// spend counts the amount to the action's day. All starts of the action meet in
// its row, so it comes last in their transactions. Error: errSpent.
func (s *step) spend(ctx context.Context, tx pgx.Tx) error {
	var limit *string
	if l := s.action.Limits.AmountPerDay; l != nil {
		text := l.String()
		limit = &text
	}
	day := s.c.Clock().In(s.action.Zone).Format(time.DateOnly)
	tag, err := tx.Exec(ctx, sqlSpend, pgx.NamedArgs{"action": s.action.Name, "day": day, "currency": s.comp.Currency, "amount": s.comp.Amount.String(), "limit": limit})
	if err != nil {
		return fmt.Errorf("count compensation %d to its day: %w", s.id, err)
	}
	if tag.RowsAffected() == 0 {
		return errSpent
	}
	return nil
}

const (
	// sqlStart is where approvals count: what has too few of its very effect does
	// not start, whatever its state says.
	sqlStart = `
UPDATE compensation c SET state = 3, started_at = @now, due_at = NULL, why = NULL
WHERE id = @id AND state = 2
  AND (SELECT count(*) FROM compensation_approval a WHERE a.compensation_id = c.id AND a.hash = c.hash) >= c.checkers`
	sqlPlan = `INSERT INTO saga_step (compensation_id, no, op, step) SELECT @id, n, 1, s FROM unnest(@no::int[], @steps::text[]) u(n, s)`
)

func (s *step) begin(ctx context.Context, tx pgx.Tx) error {
	tag, err := tx.Exec(ctx, sqlStart, pgx.NamedArgs{"id": s.id, "now": s.c.Clock()})
	if err != nil {
		return fmt.Errorf("start compensation %d: %w", s.id, err)
	}
	if tag.RowsAffected() == 0 {
		return s.end(ctx, tx, Voided, "it has too few approvals of what it would do")
	}
	no, steps := make([]int, len(s.action.Steps)), make([]string, len(s.action.Steps))
	for i, st := range s.action.Steps {
		no[i], steps[i] = i, st.ID
	}
	batch := &pgx.Batch{}
	batch.Queue(sqlPlan, pgx.NamedArgs{"id": s.id, "no": no, "steps": steps})
	batch.Queue(sqlTell, pgx.NamedArgs{"id": s.id, "by": "system", "kind": "started", "text": "", "detail": nil})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("steps of compensation %d: %w", s.id, err)
	}
	if s.comp.BreakID != nil {
		if err := reconcile.MarkCompensating(ctx, tx, access.System(), *s.comp.BreakID, s.id); err != nil {
			return err
		}
	}
	return s.spend(ctx, tx)
}
