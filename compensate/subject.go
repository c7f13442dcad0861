package compensate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"oncemore/reconcile"
)

// subject is what is repaired: a break, or a letter.
type subject struct {
	breakID  *int64
	letterID *uuid.UUID
	job      *string
	key      []string
	eventID  *string
	group    string // whose effect it is; empty: not known
	currency string
	amount   reconcile.Amount
	turn     int   // the attempt group
	state    []any // what an approval is bound to, besides the inputs
	inputs   Inputs
}

// String names the subject in an error.
func (s subject) String() string {
	if s.breakID != nil {
		return fmt.Sprintf("break %d", *s.breakID)
	}
	return fmt.Sprintf("letter %s", s.letterID)
}

// ofBreak makes a break the subject of an action. key are the columns of its
// job's key.
func ofBreak(a *Action, b reconcile.Break, key []string) subject {
	return subject{
		breakID: &b.ID, job: &b.Job, key: b.Key, eventID: b.EventID, group: a.Group, currency: b.Currency, amount: b.Amount, turn: b.Returns + 1,
		state:  []any{b.ID, b.Type, b.Currency, b.Amount.String(), b.Sides, b.Returns},
		inputs: inputsOf(b, key),
	}
}

// plan is an action applied to a subject: what would be done, and the hash that
// an approval of it is bound to.
type plan struct {
	subject
	action *Action
	def    Definition
	effect Effect
	hash   []byte
}

// plan renders what an action would do about a break as it is now. key are the
// columns of its job's key.
func (c *Compensations) plan(def Definition, a *Action, b reconcile.Break, key []string) (plan, error) {
	return c.planFor(def, a, ofBreak(a, b, key))
}

func (c *Compensations) planFor(def Definition, a *Action, s subject) (p plan, err error) {
	p = plan{subject: s, action: a, def: def}
	if p.effect, err = c.render(a, s.inputs); err != nil {
		return p, fmt.Errorf("action %s on %s: %w", a.Name, s, err)
	}
	p.hash, err = hashOf(def, s, p.effect)
	return p, err
}

// keyOf are the columns of a job's key.
func (c *Compensations) keyOf(ctx context.Context, job string) ([]string, error) {
	def, err := c.Jobs.Current(ctx, job)
	if err != nil {
		return nil, err
	}
	of := pin{def.Job, def.Version}
	if key, ok := c.keys.Load(of); ok {
		return key.([]string), nil //nolint:errcheck // nothing else is kept there
	}
	parsed, err := def.Parse()
	if err != nil {
		return nil, err
	}
	c.keys.Store(of, parsed.Key)
	return parsed.Key, nil
}

// hashOf covers everything that a checker agrees to: the action's version, what
// it is rendered from and to, and the subject as it stands.
func hashOf(def Definition, s subject, e Effect) ([]byte, error) {
	text, err := json.Marshal([]any{def.Action, def.Hash, s.inputs, e, s.state})
	if err != nil {
		return nil, fmt.Errorf("hash of the effect: %w", err)
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

// fits reports whether the action may repair the break. Timing closes by itself.
func (a *Action) fits(b reconcile.Break) error {
	switch {
	case b.Type == reconcile.Timing, len(a.AppliesTo) > 0 && !slices.Contains(a.AppliesTo, b.Type):
		return fmt.Errorf("%w: %s is not for %s, which break %d is", ErrNotFor, a.Name, b.Type, b.ID)
	case !b.State.Outstanding() || b.State == reconcile.Compensating:
		return fmt.Errorf("%w: break %d is %s", ErrNotFor, b.ID, b.State)
	case a.Kind == ReplayEvent && b.EventID == nil:
		return fmt.Errorf("%w: break %d names no event", ErrNotFor, b.ID)
	}
	return a.affords(b.Amount)
}

// affords refuses an amount that no day's limit would ever let start.
func (a *Action) affords(amount reconcile.Amount) error {
	if l := a.Limits.AmountPerDay; l != nil && amount.Abs().Cmp(*l) > 0 {
		return fmt.Errorf("%w: limits.amount_per_day of %s is %s, and this is %s", ErrLimit, a.Name, l, amount.Abs())
	}
	return nil
}

// render writes what each step would do, and what would undo it.
func (c *Compensations) render(a *Action, in Inputs) (Effect, error) {
	var effect Effect
	for _, s := range a.Steps {
		e, err := c.renderStep(s, in)
		if err != nil {
			return nil, fmt.Errorf("step %s: %w", s.ID, err)
		}
		if s.undo != nil {
			undoes, err := c.renderStep(*s.undo, in)
			if err != nil {
				return nil, fmt.Errorf("what undoes step %s: %w", s.ID, err)
			}
			e.Undo, e.UndoAt, e.Undoes = s.Compensate, s.undoVersion, &undoes
		}
		effect = append(effect, e)
	}
	if a.Summary != "" && len(effect) > 0 {
		says, err := render(a.Summary, in, plain)
		if err != nil {
			return nil, fmt.Errorf("summary: %w", err)
		}
		effect[0].Says = says
	}
	return effect, nil
}

func (c *Compensations) renderStep(s Step, in Inputs) (e EffectStep, err error) {
	e = EffectStep{Step: s.ID, Kind: s.Kind}
	switch s.Kind {
	case HTTP:
		var out call
		if out, err = c.call(s.Request, in); err == nil {
			e.Method, e.URL, e.Body = out.method, out.shown, out.body
		}
	case SQL:
		e.SQL = s.Statement.Text
		e.Params, err = s.Statement.params(in)
	}
	return e, err
}
