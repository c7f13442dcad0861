package reconcile

// record is one row of a side, as the comparison needs it.
type record struct {
	key      []byte
	amount   []byte // digits; nil: NULL
	currency string
	at       int64 // microseconds since 1970, UTC
}

// group is what one side has for one key.
type group struct {
	rows        int
	inside      int // rows within the window; the others are beside its edge
	nulls       int // rows without an amount
	currency    string
	money                        // in that currency
	first, last int64            // of all rows
	others      map[string]money // in other currencies; nil as a rule
}

// money is what a group has in one currency.
type money struct {
	sum    sum   // of all rows
	within part  // of those inside
	since  int64 // the earliest row's time
}

// part is some rows of a group.
type part struct {
	rows int64
	sum  sum
}

func (p *part) add(rows int64, amount sum) {
	p.rows += rows
	p.sum.plus(amount)
}

func (m *money) add(at int64, amount sum, inside bool) {
	m.since = min(m.since, at)
	m.sum.plus(amount)
	if inside {
		m.within.add(1, amount)
	}
}

// add takes one more row; inside says whether its time is in the window.
func (g *group) add(r *record, inside bool) error {
	var amount sum
	if r.amount == nil {
		g.nulls++
	} else {
		var err error
		if amount, err = parseSum(r.amount); err != nil {
			return err
		}
	}
	if g.rows == 0 {
		g.currency, g.since, g.first, g.last = r.currency, r.at, r.at, r.at
	}
	g.first, g.last = min(g.first, r.at), max(g.last, r.at)
	g.rows++
	if inside {
		g.inside++
	}
	if r.currency != g.currency {
		g.addOther(r, amount, inside)
		return nil
	}
	g.money.add(r.at, amount, inside)
	return nil
}

func (g *group) addOther(r *record, amount sum, inside bool) {
	if g.others == nil {
		g.others = map[string]money{}
	}
	other, ok := g.others[r.currency]
	if !ok {
		other.since = r.at
	}
	other.add(r.at, amount, inside)
	g.others[r.currency] = other
}

// settle makes the group's currency that of its earliest row, whatever order the
// database gave them in: a break has to be the same in each run.
func (g *group) settle() {
	for currency, other := range g.others {
		if other.since < g.since || other.since == g.since && currency < g.currency {
			g.others[g.currency] = g.money
			delete(g.others, currency)
			g.currency, g.money = currency, other
			g.settle()
			return
		}
	}
}

// mixed reports whether the rows are of more than one currency.
func (g *group) mixed() bool { return g.others != nil }

// groups is what all parties have for one key.
type groups [3]group

func (g *groups) inside() bool {
	return g[Outbox].inside+g[Consumed].inside+g[Effect].inside > 0
}

// anchor is the time that places a key in one segment alone: of the first row
// of the first party after the outbox that has one.
func (g *groups) anchor() int64 {
	for _, p := range []Party{Consumed, Effect} {
		if g[p].rows > 0 {
			return g[p].first
		}
	}
	return g[Outbox].first
}
