package reconcile

import (
	"context"
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
	tally, candidates, more, err := c.segment(ctx, core, most)
	if err != nil {
		return nil, err
	}
	keys := make([][]byte, len(candidates))
	inside := make(map[string]map[string]Amount, len(candidates))
	for i, cand := range candidates {
		keys[i], inside[string(cand.key)] = cand.key, cand.inside
	}
	found, err := c.reread(ctx, keys, now)
	if err != nil {
		return nil, err
	}
	o := &outcome{tally: tally, more: more}
	for _, f := range found {
		c.settle(o, f, inside[string(f.Encoded)], core)
	}
	return o, nil
}

// settle books what a key contributes to the window's difference.
func (c *comparison) settle(o *outcome, f Finding, inside map[string]Amount, core interval) {
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
	for currency, amount := range inside {
		o.tally.line(line, currency, 1, amount)
	}
	if f.Type == "" {
		return
	}
	if len(inside) == 0 {
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
