package compensate

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

const sqlSetRun = `UPDATE compensation SET verify_run = @run WHERE id = @id`

// verify runs the single-key reconciliation: only if the key is whole now has
// the repair done what it was for.
func (s *step) verify(ctx context.Context) (*time.Time, error) {
	if !s.verifies() {
		return nil, s.verified(ctx, 0)
	}
	b, err := s.c.Breaks.Get(ctx, *s.comp.BreakID)
	if err != nil {
		return nil, err
	}
	run, err := s.rerun(ctx, b)
	if err != nil {
		return nil, err
	}
	if run.State != reconcile.Complete {
		return nil, s.attention(ctx, fmt.Sprintf("run %d could not look whether it worked: %s", run.ID, text(run.Error, run.State.String())))
	}
	f, err := s.c.looks.state(ctx, b) // a break of one type closes where one of another type opens
	if err != nil {
		return nil, err
	}
	if f.Type != "" {
		return nil, s.attention(ctx, fmt.Sprintf("executed, and the key still differs, as %s: consumed %s, effect %s %s", f.Type, f.Sides[reconcile.Consumed].Amount, f.Sides[reconcile.Effect].Amount, f.Currency))
	}
	return nil, s.verified(ctx, run.ID)
}

// rerun reads the break's key again, by the run that an earlier try has made if
// there is one.
func (s *step) rerun(ctx context.Context, b reconcile.Break) (*reconcile.Run, error) {
	if s.comp.VerifyRun != nil {
		return s.c.Runs.Do(ctx, *s.comp.VerifyRun)
	}
	id, err := s.c.Runs.Ask(ctx, access.System(), reconcile.Request{Job: b.Job, Keys: [][]string{b.Key}})
	if err != nil {
		return nil, err
	}
	err = s.fenced(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sqlSetRun, pgx.NamedArgs{"id": s.id, "run": id})
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.c.Runs.Do(ctx, id)
}

func (s *step) attention(ctx context.Context, why string) error {
	return s.fenced(ctx, func(tx pgx.Tx) error { return s.end(ctx, tx, NeedsAttention, why) })
}

// verified ends a repair that worked, and marks the event: a replay of it would
// repeat the effect.
func (s *step) verified(ctx context.Context, run int64) error {
	return s.fenced(ctx, func(tx pgx.Tx) error { return s.finish(ctx, tx, run) })
}

func (s *step) finish(ctx context.Context, tx pgx.Tx, run int64) error {
	if err := s.tellBreak(ctx, tx, run); err != nil {
		return err
	}
	if err := s.mark(ctx, tx); err != nil {
		return err
	}
	return s.end(ctx, tx, Verified, "")
}

func (s *step) tellBreak(ctx context.Context, tx pgx.Tx, run int64) error {
	switch {
	case s.comp.BreakID == nil:
		return nil
	case run == 0:
		return reconcile.MarkUnverified(ctx, tx, access.System(), *s.comp.BreakID, s.id)
	}
	return reconcile.MarkVerified(ctx, tx, access.System(), *s.comp.BreakID, s.id, run)
}

// verifies reports whether there is a key to read again afterwards.
func (s *step) verifies() bool { return s.action.Verify && s.comp.BreakID != nil }

// mark leaves the permanent mark on the event: a replay of it would repeat the
// effect. What its letters ask for is done. A replay settles them itself.
func (s *step) mark(ctx context.Context, tx pgx.Tx) error {
	if s.action.Kind == ReplayEvent {
		return nil
	}
	event, group := text(s.comp.EventID, ""), text(s.comp.Group, "")
	if event != "" && group != "" {
		repair := dlq.Repair{EventID: event, Group: group, Compensation: s.id, At: s.c.Clock()}
		if err := dlq.MarkCompensated(ctx, tx, repair); err != nil {
			return err
		}
	}
	if s.comp.LetterID == nil && event == "" {
		return nil
	}
	return dlq.ResolveRepaired(ctx, tx, s.comp.LetterID, event, group)
}
