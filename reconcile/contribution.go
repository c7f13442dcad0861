package reconcile

// contribution is how much consumed exceeds effect within the window because of
// a key, by currency; zero ones are left out.
func contribution(g *groups) map[string]Amount { return between(g, Consumed, Effect) }

// between is by how much left exceeds right.
func between(g *groups, left, right Party) map[string]Amount {
	amounts := map[string]Amount{}
	put := func(currency string, a Amount) {
		if a = amounts[currency].Add(a); a.IsZero() {
			delete(amounts, currency)
		} else {
			amounts[currency] = a
		}
	}
	for party, sign := range map[Party]int64{left: 1, right: -1} {
		side := &g[party]
		put(side.currency, side.within.sum.value().Mul(amountOf(sign)))
		for currency, other := range side.others {
			put(currency, other.within.sum.value().Mul(amountOf(sign)))
		}
	}
	return amounts
}

// balanced is a quick yes for a key that contributes nothing to the difference of
// two sides.
func balanced(g *groups, left, right Party) bool {
	l, r := &g[left], &g[right]
	return !l.mixed() && !r.mixed() && l.currency == r.currency && l.within.sum.equal(r.within.sum)
}
