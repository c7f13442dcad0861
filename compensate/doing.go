package compensate

import (
	"context"
	"fmt"
	"maps"
	"time"

	"oncemore/consumer/barrier"
)

// doing is a step in one direction, ready to be done.
type doing struct {
	run      func(ctx context.Context) answer
	probe    func(ctx context.Context) answer // nil: nobody can be asked
	underWay bool                             // it was started, and is only asked for: no further attempt
	shown    map[string]any                   // for the attempt, secrets masked
}

// probeTimeout bounds a question; a call and its probe fit into a step of the queue.
const probeTimeout = 5 * time.Second

var barrierOps = map[Op]barrier.Op{Forward: barrier.Try, Back: barrier.Cancel, Confirm: barrier.Confirm}

// does renders what a step does in its direction.
func (s *step) does(ctx context.Context, r StepRow) (*doing, error) {
	st := s.action.Steps[r.No]
	m := barrier.Mark{Saga: fmt.Sprintf("C-%d", s.id), Step: st.ID, Op: barrierOps[r.Op]}
	switch {
	case r.Op == Back && s.action.Mode == TryConfirmCancel:
		return s.calls(st, st.Cancel, m, nil)
	case r.Op == Confirm:
		return s.calls(st, st.Confirm, m, nil)
	case r.Op == Back:
		return s.undoes(ctx, r, st, m)
	}
	return s.forward(st, r, m)
}

func (s *step) forward(st Step, r StepRow, m barrier.Mark) (*doing, error) {
	switch st.Kind {
	case HTTP:
		return s.calls(st, st.Request, m, st.Probe)
	case SQL:
		return s.executes(st, m)
	}
	return s.replays(r)
}

// undoes renders the action that compensates a step, in the version that was
// approved with it.
func (s *step) undoes(ctx context.Context, r StepRow, st Step, m barrier.Mark) (*doing, error) {
	version := 0
	for _, e := range s.comp.Effect {
		if e.Step == st.ID {
			version = e.UndoAt
		}
	}
	def, err := s.c.Actions.Version(ctx, st.Compensate, version)
	if err != nil {
		return nil, err
	}
	undo, err := s.c.undo(def, st.ID)
	if err != nil {
		return nil, err
	}
	return s.forward(*undo, r, m)
}

// calls makes an HTTP call whose Idempotency-Key stays the same for every retry.
// The barrier travels along, for participants that keep one.
func (s *step) calls(st Step, r *Request, m barrier.Mark, p *Probe) (*doing, error) {
	out, err := s.c.call(r, s.comp.Inputs)
	if err != nil {
		return nil, err
	}
	key := m.Saga + ":" + m.Step
	if m.Op != barrier.Try {
		key += ":" + string(m.Op)
	}
	out.headers[barrier.SagaHeader], out.headers[barrier.StepHeader], out.headers[barrier.OpHeader] = m.Saga, m.Step, string(m.Op)
	d := &doing{
		run:   func(ctx context.Context) answer { return s.c.send(ctx, r, out, key, st.Timeout) },
		shown: map[string]any{"method": out.method, "url": out.shown, "body": out.body, "idempotency_key": key, "op": m.Op},
	}
	if p != nil {
		in := maps.Clone(s.comp.Inputs)
		in["idempotency_key"] = key // what the call went out with
		d.probe = func(ctx context.Context) answer { return s.c.ask(ctx, p, in, st) }
	}
	return d, nil
}

// executes runs a statement with its guard row: whether it was committed can
// always be asked.
func (s *step) executes(st Step, m barrier.Mark) (*doing, error) {
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
			return target.execute(ctx, st.Statement, s.comp.Inputs, m, false)
		},
		probe: func(ctx context.Context) answer {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			there, err := target.stands(ctx, m)
			switch {
			case err != nil:
				return answer{Error: err.Error(), outcome: unknown}
			case there:
				return answer{outcome: done}
			}
			return answer{outcome: retry}
		},
		shown: map[string]any{"connection": st.Statement.Connection, "sql": st.Statement.Text, "params": params, "op": m.Op},
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
	a := c.send(ctx, p.Request, out, "", min(st.Timeout, probeTimeout))
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
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
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
func (s *step) replays(r StepRow) (*doing, error) {
	if s.comp.EventID == nil || s.comp.Group == nil {
		return nil, fmt.Errorf("replay_event needs an event and a group")
	}
	return &doing{
		run:      func(ctx context.Context) answer { return s.replay(ctx, r.Tries+1) },
		probe:    func(ctx context.Context) answer { return s.replay(ctx, r.Tries) },
		underWay: s.comp.ReplayID != nil,
		shown:    map[string]any{"event_id": *s.comp.EventID, "group": *s.comp.Group},
	}, nil
}
