package reconcile

import (
	"maps"
	"slices"
	"time"
)

// Finding is a key that is not whole, with what each side has for it.
type Finding struct {
	Type       Type
	Key        []string // the key's columns as text
	Encoded    []byte   // the key as it is compared: its identity
	Currency   string
	Difference Amount // what is missing in effect; negative: too much
	Spared     Amount // of a key that is whole: the difference that a tolerance lets pass
	Sides      [3]FindingSide

	inside   map[string]Amount // what it contributes to the window's difference, by currency
	upstream map[string]Amount // the same of what was published and consumed; nil in a job of two sides
}

// upstreamLine is the line of the proof under which a key contributes to the
// difference of what was published and consumed; line is that of its effect.
func (f Finding) upstreamLine(line string) string {
	published, consumed := f.Sides[Outbox], f.Sides[Consumed]
	switch {
	case published.Rows == 0:
		return LineUnpublished
	case line != string(Timing) && published.Currency == consumed.Currency && published.Amount.Equal(consumed.Amount):
		return LineEdge
	}
	return line
}

// gone reports whether no side has a row of the key.
func (f Finding) gone() bool {
	return f.Sides[Outbox].Rows+f.Sides[Consumed].Rows+f.Sides[Effect].Rows == 0
}

// FindingSide is what one party has for a key, windows left aside.
type FindingSide struct {
	Rows     int
	Amount   Amount
	Currency string
	First    time.Time
	Last     time.Time
	Nulls    int `json:",omitempty"` // rows without an amount
}

func findingSide(g *group) FindingSide {
	if g.rows == 0 {
		return FindingSide{}
	}
	return FindingSide{g.rows, g.sum.value(), g.currency, time.UnixMicro(g.first).UTC(), time.UnixMicro(g.last).UTC(), g.nulls}
}

// currency names what a finding's difference is in: that of the side that is
// nearest to the money.
func (g *groups) currency() string {
	for _, p := range []Party{Effect, Consumed} {
		if g[p].rows > 0 {
			return g[p].currency
		}
	}
	return g[Outbox].currency
}

// currencies lists all that a key has rows in, that of its difference first.
func (g *groups) currencies() []string {
	all := []string{}
	for p := range g {
		if g[p].rows > 0 {
			all = slices.AppendSeq(append(all, g[p].currency), maps.Keys(g[p].others))
		}
	}
	slices.Sort(all)
	first := g.currency()
	all = slices.DeleteFunc(slices.Compact(all), func(c string) bool { return c == first })
	return append([]string{first}, all...)
}

// amiss is the difference of a key with several currencies: amounts of two of them
// are never taken from each other, so it is in the first one that does not add up.
func (g *groups) amiss(currencies []string) (currency string, difference Amount) {
	for _, pair := range [][2]Party{{Consumed, Effect}, {Outbox, Consumed}} {
		for _, c := range currencies {
			if d := g[pair[0]].in(c).Sub(g[pair[1]].in(c)); !d.IsZero() {
				return c, d
			}
		}
	}
	return currencies[0], Amount{}
}

// in is what a group has in a currency.
func (g *group) in(currency string) Amount {
	if currency == g.currency {
		return g.sum.value()
	}
	other := g.others[currency]
	return other.sum.value()
}
