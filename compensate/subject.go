package compensate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"oncemore/reconcile"
)

// plan is an action applied to a break: what would be done, and the hash that
// an approval of it is bound to.
type plan struct {
	action *Action
	def    Definition
	b      reconcile.Break
	inputs Inputs
	effect Effect
	hash   []byte
}

// plan renders what an action would do about a break as it is now. key are the
// columns of its job's key.
func (c *Compensations) plan(def Definition, a *Action, b reconcile.Break, key []string) (p plan, err error) {
	p = plan{action: a, def: def, b: b, inputs: inputsOf(b, key)}
	if p.effect, err = c.render(a, p.inputs); err != nil {
		return p, fmt.Errorf("action %s on break %d: %w", a.Name, b.ID, err)
	}
	p.hash, err = hashOf(def, p.inputs, p.effect, b)
	return p, err
}

// keyOf are the columns of a job's key.
func (c *Compensations) keyOf(ctx context.Context, job string) ([]string, error) {
	def, err := c.Jobs.Current(ctx, job)
	if err != nil {
		return nil, err
	}
	parsed, err := def.Parse()
	if err != nil {
		return nil, err
	}
	return parsed.Key, nil
}

// hashOf covers everything that a checker agrees to: the action's version, what
// it is rendered from and to, and the break as it stands.
func hashOf(def Definition, in Inputs, e Effect, b reconcile.Break) ([]byte, error) {
	text, err := json.Marshal([]any{def.Action, def.Hash, in, e, b.ID, b.Type, b.Currency, b.Amount.String(), b.Sides, b.Returns})
	if err != nil {
		return nil, fmt.Errorf("hash of the effect: %w", err)
	}
	sum := sha256.Sum256(text)
	return sum[:], nil
}

// render writes what each step would do.
func (c *Compensations) render(a *Action, in Inputs) (Effect, error) {
	var effect Effect
	for _, s := range a.Steps {
		e := EffectStep{Step: s.ID, Kind: s.Kind, Undo: s.Compensate}
		if s.Kind == HTTP {
			call, err := c.call(s.Request, in)
			if err != nil {
				return nil, fmt.Errorf("step %s: %w", s.ID, err)
			}
			e.Method, e.URL, e.Body = call.method, call.shown, call.body
		}
		if s.Kind == SQL {
			params, err := s.Statement.params(in)
			if err != nil {
				return nil, fmt.Errorf("step %s: %w", s.ID, err)
			}
			e.SQL, e.Params = s.Statement.Text, params
		}
		effect = append(effect, e)
	}
	return effect, nil
}
