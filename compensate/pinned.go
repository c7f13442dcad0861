package compensate

import (
	"context"
	"fmt"
	"slices"
)

// pin names a version of an action or a job, which never changes: it is read and
// parsed once in a process.
type pin struct {
	name    string
	version int
}

// pinned is a version of an action as a compensation pins it. It is shared:
// nobody changes it. Error: ErrNoAction.
func (c *Compensations) pinned(ctx context.Context, action string, version int) (*Action, error) {
	if a, ok := c.pins.Load(pin{action, version}); ok {
		return a.(*Action), nil //nolint:errcheck // nothing else is kept there
	}
	def, err := c.Actions.Version(ctx, action, version)
	if err != nil {
		return nil, err
	}
	return c.parsed(def)
}

func (c *Compensations) parsed(def Definition) (*Action, error) {
	key := pin{def.Action, def.Version}
	if a, ok := c.pins.Load(key); ok {
		return a.(*Action), nil //nolint:errcheck // nothing else is kept there
	}
	a, err := def.Parse()
	if err != nil {
		return nil, err
	}
	c.pins.Store(key, a)
	return a, nil
}

// defined is a definition with what undoes its steps, as that is defined now:
// both are approved together.
func (c *Compensations) defined(ctx context.Context, def Definition) (*Action, error) {
	a, err := c.parsed(def)
	if err != nil || !slices.ContainsFunc(a.Steps, func(s Step) bool { return s.Compensate != "" }) {
		return a, err
	}
	whole := *a
	whole.Steps = slices.Clone(a.Steps)
	seen := map[string]Definition{}
	for i, s := range whole.Steps {
		if s.Compensate == "" {
			continue
		}
		undo, ok := seen[s.Compensate]
		if !ok {
			if undo, err = c.Actions.Current(ctx, s.Compensate); err != nil {
				return nil, fmt.Errorf("what undoes step %s of %s: %w", s.ID, a.Name, err)
			}
			seen[s.Compensate] = undo
		}
		whole.Steps[i].undoVersion = undo.Version
		if whole.Steps[i].undo, err = c.undo(undo, s.ID); err != nil {
			return nil, fmt.Errorf("what undoes step %s of %s: %w", s.ID, a.Name, err)
		}
	}
	return &whole, nil
}

// undo is the one step of an action that undoes another, under that one's name.
func (c *Compensations) undo(def Definition, id string) (*Step, error) {
	a, err := c.parsed(def)
	if err != nil {
		return nil, err
	}
	if a.Kind != HTTP && a.Kind != SQL {
		return nil, fmt.Errorf("%s is of kind %s, and has to be http or sql", a.Name, a.Kind)
	}
	s := a.Steps[0]
	s.ID = id
	return &s, nil
}
