package compensate

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"oncemore/dlq"
	"oncemore/reconcile"
)

// changed says what is different from what was proposed; empty: nothing. It
// reads outside of any transaction: whoever holds one has to have asked before.
func (c *Compensations) changed(ctx context.Context, comp *Compensation) (string, error) {
	def, a, err := c.current(ctx, comp.Action)
	if err != nil {
		return "", err
	}
	if def.Version != comp.Version {
		return fmt.Sprintf("the action is at version %d, and %d was proposed", def.Version, comp.Version), nil
	}
	s, err := c.again(ctx, def, a, comp)
	if err != nil {
		return unfit(err)
	}
	p, err := c.planFor(def, a, s)
	switch {
	case err != nil:
		return unfit(err)
	case bytes.Equal(p.hash, comp.Hash):
		return "", nil
	case comp.BreakID != nil && !s.amount.Equal(comp.Amount):
		return fmt.Sprintf("the break was %s %s, and is %s %s", comp.Amount, comp.Currency, s.amount, s.currency), nil
	}
	return "what it is rendered from has changed", nil
}

// unfit turns an error about the subject into why a compensation is void.
func unfit(err error) (string, error) {
	for _, known := range []error{ErrInput, errBase, ErrNotFor, ErrLimit, errGone, dlq.ErrNotFound, reconcile.ErrNoBreak} {
		if errors.Is(err, known) {
			return err.Error(), nil
		}
	}
	return "", err
}

// again makes the subject of a compensation as it is now.
func (c *Compensations) again(ctx context.Context, def Definition, a *Action, comp *Compensation) (s subject, err error) {
	if comp.LetterID != nil {
		return c.letter(ctx, def, a, *comp.LetterID)
	}
	if comp.BreakID == nil {
		return s, fmt.Errorf("%w: compensation %d names no break and no letter", errGone, comp.ID)
	}
	b, err := c.Breaks.Get(ctx, *comp.BreakID)
	if err != nil {
		return s, err
	}
	if b.State == reconcile.Explained || b.State.Done() {
		return s, fmt.Errorf("%w: break %d is %s", errGone, b.ID, b.State)
	}
	key, err := c.keyOf(ctx, b.Job)
	return ofBreak(a, b, key), err
}
