package reconcile

import (
	"maps"
	"slices"
)

// Line is one line of the proof in one currency: how many keys, and by how much
// consumed exceeds effect because of them.
type Line struct {
	Keys   int64
	Amount Amount
}

// Total is what a side has in a window.
type Total struct {
	Rows   int64
	Amount Amount
}

// Lines of the proof beside those by break type.
const (
	LineTolerated = "tolerated" // differences that are small enough
	LineEdge      = "edge"      // the partner is beside the window's edge
	// LineUnpublished is of what was published and consumed: the outbox has no row.
	LineUnpublished = "not_published"
)

// Lines are the parts of a difference, by line and currency.
type Lines map[string]map[string]Line

func (l Lines) line(line, currency string, keys int64, amount Amount) {
	if l[line] == nil {
		l[line] = map[string]Line{}
	}
	have := l[line][currency]
	l[line][currency] = Line{have.Keys + keys, have.Amount.Add(amount)}
}

func (l Lines) plus(other Lines) {
	for line, amounts := range other {
		for currency, more := range amounts {
			l.line(line, currency, more.Keys, more.Amount)
		}
	}
}

// sum is what the lines explain in a currency.
func (l Lines) sum(currency string) (sum Amount) {
	for _, amounts := range l {
		sum = sum.Add(amounts[currency].Amount)
	}
	return sum
}

// Tally is what a segment or a run has counted. It adds up.
type Tally struct {
	Matched int64               // keys that are whole
	Totals  [3]map[string]Total // by party and currency, from the rows that were compared
	Control [3]map[string]Total // the same, as the databases sum it up
	Keyless [3]map[string]Total // rows without a key, by currency
	Lines   Lines               // the proof: why consumed exceeds effect
	// Upstream is why what was published exceeds consumed; nil in a job of two
	// sides, and in runs of before there was this proof.
	Upstream Lines             `json:",omitzero"`
	Spared   map[string]Amount `json:",omitempty"` // what the tolerances let pass, signs left aside, by currency
}

func newTally() *Tally {
	t := &Tally{Lines: Lines{}}
	for p := range t.Totals {
		t.Totals[p], t.Control[p], t.Keyless[p] = map[string]Total{}, map[string]Total{}, map[string]Total{}
	}
	return t
}

// Plus adds another tally.
func (t *Tally) Plus(other *Tally) {
	t.Matched += other.Matched
	for currency, amount := range other.Spared {
		t.spare(currency, amount)
	}
	for p := range t.Totals {
		addTotals(t.Totals[p], other.Totals[p])
		addTotals(t.Control[p], other.Control[p])
		addTotals(t.Keyless[p], other.Keyless[p])
	}
	t.Lines.plus(other.Lines)
	if other.Upstream != nil && t.Upstream == nil {
		t.Upstream = Lines{}
	}
	t.Upstream.plus(other.Upstream)
}

func addTotals(into, from map[string]Total) {
	for currency, more := range from {
		have := into[currency]
		into[currency] = Total{have.Rows + more.Rows, have.Amount.Add(more.Amount)}
	}
}

func (t *Tally) spare(currency string, amount Amount) {
	if t.Spared == nil {
		t.Spared = map[string]Amount{}
	}
	t.Spared[currency] = t.Spared[currency].Add(amount)
}

func (t *Tally) line(line, currency string, keys int64, amount Amount) {
	t.Lines.line(line, currency, keys, amount)
}

// Currencies lists all that occur, sorted; "" where the job has none.
func (t *Tally) Currencies() []string {
	seen := map[string]bool{}
	for p := range t.Control {
		for c := range t.Control[p] {
			seen[c] = true
		}
	}
	for _, lines := range []Lines{t.Lines, t.Upstream} {
		for _, amounts := range lines {
			for c := range amounts {
				seen[c] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// Difference is what consumed exceeds effect by, as the databases sum it up.
func (t *Tally) Difference(currency string) Amount {
	return t.Control[Consumed][currency].Amount.Sub(t.Control[Effect][currency].Amount)
}

// Unexplained is what is left of the difference when all lines are taken off:
// zero, or the proof does not foot.
func (t *Tally) Unexplained(currency string) Amount {
	return t.Difference(currency).Sub(t.Lines.sum(currency))
}

// UpstreamDifference is what was published beyond what was consumed, as the
// databases sum it up.
func (t *Tally) UpstreamDifference(currency string) Amount {
	return t.Control[Outbox][currency].Amount.Sub(t.Control[Consumed][currency].Amount)
}

// UpstreamUnexplained is what Upstream leaves of that difference; zero in a job of
// two sides.
func (t *Tally) UpstreamUnexplained(currency string) Amount {
	if t.Upstream == nil {
		return Amount{}
	}
	return t.UpstreamDifference(currency).Sub(t.Upstream.sum(currency))
}

// Foots reports whether nothing is unexplained in any currency, between any sides.
func (t *Tally) Foots() bool {
	for _, c := range t.Currencies() {
		if !t.Unexplained(c).IsZero() || !t.UpstreamUnexplained(c).IsZero() {
			return false
		}
	}
	return true
}

// Whole reports whether the tally accounts for all rows: it foots, and each has a
// key.
func (t *Tally) Whole() bool { return t.Foots() && !t.keyless() }

// keyless reports whether there are rows that have no key: nobody knows what
// they belong to.
func (t *Tally) keyless() bool {
	for _, totals := range t.Keyless {
		if len(totals) > 0 {
			return true
		}
	}
	return false
}

// Wrong is how many keys were found that are not whole.
func (t *Tally) Wrong() (n int64) {
	for line, amounts := range t.Lines {
		if line == LineEdge || line == LineTolerated {
			continue
		}
		for _, l := range amounts {
			n += l.Keys
		}
	}
	return n
}
