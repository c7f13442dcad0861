package compensate

import (
	"context"
	"fmt"
)

// doing is a step in one direction, ready to be done.
type doing struct {
	run   func(ctx context.Context) answer
	probe func(ctx context.Context) answer // nil: nobody can be asked
	shown map[string]any                   // for the attempt, secrets masked
}

// does renders what a step does in its direction.
func (s *step) does(ctx context.Context, r StepRow) (*doing, error) {
	st := s.action.Steps[r.No]
	b := barrier{saga: fmt.Sprintf("C-%d", s.id), step: st.ID, op: map[Op]string{Forward: "try", Back: "cancel", Confirm: "confirm"}[r.Op]}
	switch {
	case r.Op == Back && s.action.Mode == TryConfirmCancel:
		return s.calls(st, st.Cancel, b, nil)
	case r.Op == Confirm:
		return s.calls(st, st.Confirm, b, nil)
	case r.Op == Back:
		return s.undoes(ctx, st, b)
	}
	return s.forward(st, b)
}

func (s *step) forward(st Step, b barrier) (*doing, error) {
	switch st.Kind {
	case HTTP:
		return s.calls(st, st.Request, b, st.Probe)
	case SQL:
		return s.executes(st, b)
	}
	return s.replays()
}

// undoes renders the action that compensates a step, as it is defined now.
func (s *step) undoes(ctx context.Context, st Step, b barrier) (*doing, error) {
	def, err := s.c.Actions.Current(ctx, st.Compensate)
	if err != nil {
		return nil, err
	}
	a, err := def.Parse()
	if err != nil {
		return nil, err
	}
	if a.Kind == Saga || a.Kind == ReplayEvent {
		return nil, fmt.Errorf("%s undoes step %s, and is of kind %s: it has to be http or sql", a.Name, st.ID, a.Kind)
	}
	undo := a.Steps[0]
	undo.ID = st.ID
	return s.forward(undo, b)
}

// calls makes an HTTP call whose Idempotency-Key stays the same for every retry.
// The barrier travels along, for participants that keep one.
func (s *step) calls(st Step, r *Request, b barrier, p *Probe) (*doing, error) {
	out, err := s.c.call(r, s.comp.Inputs)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%s:%s", b.saga, b.step)
	if b.op != "try" {
		key += ":" + b.op
	}
	out.headers["Oncemore-Saga"], out.headers["Oncemore-Step"], out.headers["Oncemore-Op"] = b.saga, b.step, b.op
	d := &doing{
		run:   func(ctx context.Context) answer { return s.c.send(ctx, r, out, key, st.Timeout) },
		shown: map[string]any{"method": out.method, "url": out.shown, "body": out.body, "idempotency_key": key, "op": b.op},
	}
	if p != nil {
		d.probe = func(ctx context.Context) answer { return s.c.ask(ctx, p, s.comp.Inputs, st) }
	}
	return d, nil
}

// executes runs a statement with its guard row: whether it was committed can
// always be asked.
func (s *step) executes(st Step, b barrier) (*doing, error) {
	target, ok := s.c.Targets[st.Statement.Connection]
	if !ok {
		return nil, fmt.Errorf("there is no connection %s that compensations may write to", st.Statement.Connection)
	}
	params, err := st.Statement.params(s.comp.Inputs)
	if err != nil {
		return nil, err
	}
	return &doing{
		run: func(ctx context.Context) answer {
			ctx, cancel := context.WithTimeout(ctx, st.Timeout)
			defer cancel()
			return target.execute(ctx, st.Statement, s.comp.Inputs, b, false)
		},
		probe: func(ctx context.Context) answer {
			there, err := target.guarded(ctx, b)
			switch {
			case err != nil:
				return answer{Error: err.Error(), outcome: unknown}
			case there:
				return answer{outcome: done}
			}
			return answer{outcome: retry}
		},
		shown: map[string]any{"connection": st.Statement.Connection, "sql": st.Statement.Text, "params": params, "op": b.op},
	}, nil
}

// ask makes a probe's call or query.
func (c *Compensations) ask(ctx context.Context, p *Probe, in Inputs, st Step) answer {
	if p.Statement != nil {
		return c.askSQL(ctx, p.Statement, in)
	}
	out, err := c.call(p.Request, in)
	if err != nil {
		return answer{Error: err.Error(), outcome: unknown}
	}
	a := c.send(ctx, p.Request, out, "", st.Timeout)
	switch {
	case a.Status == 0:
		a.outcome = unknown
	case holds(p.Applied, a.Status):
		a.outcome = done
	case a.Status == 404 || a.Status == 410:
		a.outcome = retry // it is not there
	default:
		a.outcome = unknown
	}
	return a
}

func holds(codes []Codes, status int) bool {
	for _, c := range codes {
		if c.hold(status) {
			return true
		}
	}
	return false
}

// askSQL runs a probe's query: a row means that the step has been applied.
func (c *Compensations) askSQL(ctx context.Context, s *Statement, in Inputs) answer {
	target, ok := c.Targets[s.Connection]
	if !ok {
		return answer{Error: "there is no connection " + s.Connection, outcome: unknown}
	}
	n, err := target.count(ctx, s, s.Text, in)
	switch {
	case err != nil:
		return answer{Error: err.Error(), outcome: unknown}
	case n > 0:
		return answer{outcome: done}
	}
	return answer{outcome: retry}
}

// probe decides an unknown outcome, if anybody can be asked.
func (s *step) probe(ctx context.Context, d *doing, was answer) answer {
	if d.probe == nil {
		return was
	}
	found := d.probe(ctx)
	switch found.outcome {
	case done:
		was.outcome = done
	case retry:
		was.outcome = retry
	default:
		was.Error += "; the probe does not know either: " + found.Error
	}
	return was
}

// replays starts the safe replay of the event and waits for its outcome.
func (s *step) replays() (*doing, error) {
	if s.comp.EventID == nil || s.comp.Group == nil {
		return nil, fmt.Errorf("replay_event needs an event and a group")
	}
	return &doing{
		run:   s.replayOnce,
		probe: s.replayOutcome,
		shown: map[string]any{"event_id": *s.comp.EventID, "group": *s.comp.Group},
	}, nil
}
