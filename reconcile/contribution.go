package reconcile

// contribution is how much consumed exceeds effect within the window because of
// a key, by currency; zero ones are left out.
func contribution(g *groups) map[string]Amount {
	amounts := map[string]Amount{}
	put := func(currency string, a Amount) {
		if a = amounts[currency].Add(a); a.IsZero() {
			delete(amounts, currency)
		} else {
			amounts[currency] = a
		}
	}
	for party, sign := range map[Party]int64{Consumed: 1, Effect: -1} {
		side := &g[party]
		put(side.currency, side.within.sum.value().Mul(amountOf(sign)))
		for currency, other := range side.others {
			put(currency, other.within.sum.value().Mul(amountOf(sign)))
		}
	}
	return amounts
}

// balanced is a quick yes for a key that contributes nothing.
func balanced(g *groups) bool {
	c, e := &g[Consumed], &g[Effect]
	return !c.mixed() && !e.mixed() && c.currency == e.currency && c.within.sum.equal(e.within.sum)
}
