package reconcile

import (
	"context"
	"errors"
	"time"
)

// outcome is what one segment came to.
type outcome struct {
	tally    *Tally
	findings []Finding // what is not whole
	more     bool      // there were more candidates than may be looked at
}

// evaluate compares a window, reads again what does not match, and books every
// key in a line of the proof.
func (c *comparison) evaluate(ctx context.Context, core interval, now time.Time, most int) (*outcome, error) {
	tally, keys, more, err := c.candidates(ctx, core, most)
	if err != nil {
		return nil, err
	}
	found, err := c.reread(ctx, keys, core, now)
	if err != nil {
		return nil, err
	}
	o := &outcome{tally: tally, more: more}
	for _, f := range found {
		c.settle(o, f, core)
	}
	return o, nil
}

// candidates finds the keys of a window that are worth a second look, by the
// plan of the run.
func (c *comparison) candidates(ctx context.Context, core interval, most int) (*Tally, [][]byte, bool, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	defer leave()
	if c.plan == PlanJoin {
		t, keys, more, err := c.joined(ctx, core, most)
		if !errors.Is(err, errManyRows) {
			return t, keys, more, err
		}
	}
	return c.segment(ctx, core, most)
}

// settle books what a key contributes to the window's difference.
func (c *comparison) settle(o *outcome, f Finding, core interval) {
	line := string(f.Type)
	switch {
	case f.Type != "":
	case c.beyond(f, core):
		f.Type, line = Timing, string(Timing)
	case !f.Difference.IsZero():
		line = LineTolerated
	default:
		line = LineEdge
	}
	if f.Type == "" && core.holds(f.anchor()) {
		o.tally.Matched++
	}
	for currency, amount := range f.inside {
		o.tally.line(line, currency, 1, amount)
	}
	if f.Type == "" {
		return
	}
	if len(f.inside) == 0 {
		o.tally.line(line, f.Currency, 1, Amount{})
	}
	o.findings = append(o.findings, f)
}

// beyond reports whether a key is whole only with rows that are further away
// from the window than its overlap.
func (c *comparison) beyond(f Finding, core interval) bool {
	overlap := c.job.Window.Overlap.Microseconds()
	for _, s := range f.Sides {
		if s.Rows > 0 && (s.First.UnixMicro() < core.from-overlap || s.Last.UnixMicro() >= core.to+overlap) {
			return true
		}
	}
	return false
}

func (f Finding) anchor() int64 {
	for _, p := range []Party{Consumed, Effect} {
		if f.Sides[p].Rows > 0 {
			return f.Sides[p].First.UnixMicro()
		}
	}
	return f.Sides[Outbox].First.UnixMicro()
}
