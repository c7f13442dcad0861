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
	rows     int
	inside   int  // rows within the window; the others are beside its edge
	nulls    int  // rows without an amount
	sum      sum  // of all rows in the currency
	within   part // of those inside
	currency string
	first    int64           // the earliest row's time
	last     int64           // the latest one's
	others   map[string]part // inside, in other currencies; nil as a rule
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

// add takes one more row; inside says whether its time is in the window.
func (g *group) add(r *record, inside bool) error {
	var amount sum
	if r.amount != nil {
		var err error
		if amount, err = parseSum(r.amount); err != nil {
			return err
		}
	}
	if g.rows == 0 {
		g.currency, g.first, g.last = r.currency, r.at, r.at
	}
	g.first, g.last = min(g.first, r.at), max(g.last, r.at)
	g.rows++
	if inside {
		g.inside++
	}
	if r.currency != g.currency {
		g.addOther(r.currency, amount, inside)
		return nil
	}
	if r.amount == nil {
		g.nulls++
	}
	g.sum.plus(amount)
	if inside {
		g.within.add(1, amount)
	}
	return nil
}

func (g *group) addOther(currency string, amount sum, inside bool) {
	if g.others == nil {
		g.others = map[string]part{}
	}
	other := g.others[currency]
	if inside {
		other.add(1, amount)
	}
	g.others[currency] = other
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
