package reconcile

import "time"

// Type is what is wrong with a key.
type Type string

// The types of a break. Timing closes by itself and is never compensated.
const (
	MissingEffect        Type = "missing_effect"
	EffectWithoutRecord  Type = "effect_without_record"
	AmountMismatch       Type = "amount_mismatch"
	DuplicateEffect      Type = "duplicate_effect"
	PublishedNotConsumed Type = "published_not_consumed"
	Timing               Type = "timing"
)

// rules compare what the sides have for one key.
type rules struct {
	mode      Mode
	outbox    bool
	amounts   bool // false: only rows are counted
	tolerance Tolerance
}

func (j *Job) rules() rules {
	return rules{j.Match.Mode, j.Outbox != nil, j.Match.Amount != "", j.Tolerance}
}

// compare says what is wrong with a key, from all rows that its sides have for
// it; empty: it is whole. The difference is what is missing in effect, and
// negative for what is too much; spared is one that is small enough.
func (r rules) compare(g *groups) (t Type, difference, spared Amount) {
	published, consumed, effect := &g[Outbox], &g[Consumed], &g[Effect]
	difference = consumed.sum.value().Sub(effect.sum.value())
	switch {
	case consumed.rows == 0 && effect.rows == 0:
		return PublishedNotConsumed, published.sum.value(), spared
	case consumed.rows == 0:
		return EffectWithoutRecord, difference, spared
	case effect.rows == 0:
		return MissingEffect, difference, spared
	}
	if t = r.pair(consumed, effect, difference); t != "" {
		return t, difference, spared
	}
	if !r.amounts {
		return "", difference, spared
	}
	if r.outbox && published.rows > 0 {
		upstream := published.sum.value().Sub(consumed.sum.value())
		if !r.alike(published, consumed, upstream) {
			return AmountMismatch, upstream, spared
		}
		spared = upstream
	}
	if !difference.IsZero() {
		spared = difference
	}
	return "", difference, spared
}

// pair compares two sides that both have the key.
func (r rules) pair(expected, found *group, difference Amount) Type {
	switch {
	case r.mode == OneToOne && found.rows > expected.rows:
		return DuplicateEffect
	case r.mode == OneToOne && found.rows < expected.rows:
		return MissingEffect
	case r.alike(expected, found, difference):
		return ""
	case r.doubled(expected, found):
		return DuplicateEffect
	}
	return AmountMismatch
}

// alike reports whether two sides agree in currency and, within the tolerance,
// in amount. A missing amount agrees with nothing.
func (r rules) alike(expected, found *group, difference Amount) bool {
	if !r.amounts {
		return true
	}
	if expected.nulls+found.nulls > 0 || expected.mixed() || found.mixed() || expected.currency != found.currency {
		return false
	}
	return difference.IsZero() || difference.Abs().Cmp(r.allowed(expected.sum.value())) <= 0
}

// allowed is the larger of the absolute and the relative tolerance.
func (r rules) allowed(expected Amount) Amount {
	relative := expected.Abs().Mul(r.tolerance.Percent).Shift(-2)
	if relative.Cmp(r.tolerance.Amount) > 0 {
		return relative
	}
	return r.tolerance.Amount
}

// doubled recognises an effect that was applied more than once: the sum is a
// whole multiple of what was expected, and there are at least as many rows.
func (r rules) doubled(expected, found *group) bool {
	if expected.nulls+found.nulls > 0 || expected.mixed() || found.mixed() || expected.currency != found.currency || expected.sum.isZero() {
		return false
	}
	times, rest := found.sum.value().QuoRem(expected.sum.value(), 0)
	return rest.IsZero() && times.Cmp(amountOf(2)) >= 0 && amountOf(int64(found.rows)).Cmp(times) >= 0
}

// young reports whether an effect that is missing may still come.
func (r rules) young(g *groups, now time.Time) bool {
	latest := max(g[Outbox].last, g[Consumed].last)
	return latest > now.Add(-r.tolerance.Time).UnixMicro()
}

// quick is compare for the walk over millions of keys: true means that the key
// is whole beyond doubt, and false that it is worth a second look.
func (r rules) quick(g *groups) bool {
	consumed, effect := &g[Consumed], &g[Effect]
	if consumed.rows == 0 || effect.rows == 0 || r.mode == OneToOne && consumed.rows != effect.rows {
		return false
	}
	if r.outbox && (g[Outbox].rows == 0 || !r.quickly(&g[Outbox], consumed)) {
		return false
	}
	return r.quickly(consumed, effect)
}

func (r rules) quickly(expected, found *group) bool {
	return !r.amounts || expected.nulls+found.nulls == 0 && !expected.mixed() && !found.mixed() &&
		expected.currency == found.currency && expected.sum.equal(found.sum)
}
