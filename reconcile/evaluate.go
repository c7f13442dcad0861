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
	spared   []Finding // what is whole but for a difference that is small enough; until spend
	core     interval
	more     bool // there were more candidates than may be looked at
}

// evaluate is assess for a window that is a run of its own.
func (c *comparison) evaluate(ctx context.Context, core interval, now time.Time, most int) (*outcome, error) {
	o, err := c.assess(ctx, core, now, most)
	if err == nil {
		o.spend(c.job.Tolerance.RunTotalCap, nil)
	}
	return o, err
}

// assess compares a window, reads again what does not match, and books every key
// in a line of the proof, but for those in spared.
func (c *comparison) assess(ctx context.Context, core interval, now time.Time, most int) (*outcome, error) {
	tally, seen, more, err := c.candidates(ctx, core, most)
	if err != nil {
		return nil, err
	}
	found, err := c.reread(ctx, keysOf(seen), core, now)
	if err != nil {
		return nil, err
	}
	if err := c.foundAgain(seen, found); err != nil {
		return nil, err
	}
	o := &outcome{tally: tally, core: core, more: more}
	for _, f := range found {
		c.settle(o, f, core)
	}
	return o, nil
}

// candidates finds the keys of a window that are worth a second look, by the
// plan of the run.
func (c *comparison) candidates(ctx context.Context, core interval, most int) (*Tally, []candidate, bool, error) {
	leave, err := c.enter(ctx)
	if err != nil {
		return nil, nil, false, err
	}
	defer leave()
	if c.plan == PlanJoin {
		t, found, more, err := c.joined(ctx, core, most)
		if !errors.Is(err, errManyRows) {
			return t, found, more, err
		}
	}
	return c.segment(ctx, core, most)
}

// settle books what a key contributes to the window's difference.
func (c *comparison) settle(o *outcome, f Finding, core interval) {
	switch {
	case f.Type != "":
		o.find(f)
	case c.beyond(f, core):
		f.Type = Timing
		o.find(f)
	case !f.Spared.IsZero():
		o.spared = append(o.spared, f)
	default:
		o.match(f)
		o.lines(LineEdge, f)
	}
}

func (o *outcome) match(f Finding) {
	if o.core.holds(f.anchor()) {
		o.tally.Matched++
	}
}

func (o *outcome) find(f Finding) {
	o.lines(string(f.Type), f)
	if len(f.inside) == 0 {
		o.tally.line(string(f.Type), f.Currency, 1, Amount{})
	}
	o.findings = append(o.findings, f)
}

func (o *outcome) lines(line string, f Finding) {
	for currency, amount := range f.inside {
		o.tally.line(line, currency, 1, amount)
	}
	for currency, amount := range f.upstream {
		o.tally.Upstream.line(f.upstreamLine(line), currency, 1, amount)
	}
}

// spend books the differences that are small enough, as long as their sum stays
// within the run's cap for a currency; those beyond it are breaks. spent is what
// other segments have taken of it.
func (o *outcome) spend(cap *Amount, spent map[string]Amount) {
	for _, f := range o.spared {
		sum := spent[f.Currency].Add(o.tally.Spared[f.Currency]).Add(f.Spared.Abs())
		if cap != nil && sum.Cmp(*cap) > 0 {
			f.Type, f.Difference = AmountMismatch, f.Spared
			o.find(f)
			continue
		}
		o.tally.spare(f.Currency, f.Spared.Abs())
		o.match(f)
		o.lines(LineTolerated, f)
	}
	o.spared = nil
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
