package reconcile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fact is one row of a generated side.
type fact struct {
	id, amount, currency string
	at                   time.Duration // after noon
}

// drawFacts makes rows of few ids, so that all kinds of meeting happen.
func drawFacts(t *rapid.T, label string) []fact {
	ids := []string{"a-b", "ab", "a_b", "EVT", "evt", "é", "e", "trail", "trail ", "x", "y", "z"}
	row := rapid.Custom(func(t *rapid.T) fact {
		return fact{
			rapid.SampledFrom(ids).Draw(t, "id"),
			rapid.SampledFrom([]string{"0.10", "0.10", "0.10", "0.20", "5.00", "-0.10"}).Draw(t, "amount"),
			rapid.SampledFrom([]string{"CNY", "CNY", "CNY", "USD"}).Draw(t, "currency"),
			time.Duration(rapid.SampledFrom([]int{-300, -11, -10, -9, -1, 0, 1, 30, 59, 60, 61, 69, 70, 71, 4000}).Draw(t, "minute")) * time.Minute,
		}
	})
	return rapid.SliceOfN(row, 0, 14).Draw(t, label)
}

// naive says what is wrong with an id, from all rows and without any cleverness.
func naive(mode Mode, consumed, effect []fact) Type {
	total := func(facts []fact) (amount Amount, currencies map[string]bool) {
		currencies = map[string]bool{}
		for _, f := range facts {
			a, _ := ParseAmount(f.amount)
			amount, currencies[f.currency] = amount.Add(a), true
		}
		return amount, currencies
	}
	want, wantIn := total(consumed)
	have, haveIn := total(effect)
	oneCurrency := len(wantIn) == 1 && len(haveIn) == 1 && fmt.Sprint(wantIn) == fmt.Sprint(haveIn)
	switch {
	case len(consumed) == 0 && len(effect) == 0:
		return ""
	case len(consumed) == 0:
		return EffectWithoutRecord
	case len(effect) == 0:
		return MissingEffect
	case mode == OneToOne && len(effect) > len(consumed):
		return DuplicateEffect
	case mode == OneToOne && len(effect) < len(consumed):
		return MissingEffect
	case oneCurrency && want.Equal(have):
		return ""
	}
	for times := int64(2); oneCurrency && times <= int64(len(effect)); times++ {
		if want.Mul(amountOf(times)).Equal(have) && !want.IsZero() {
			return DuplicateEffect
		}
	}
	return AmountMismatch
}

func of(facts []fact, id string) (some []fact, inside bool) {
	for _, f := range facts {
		if f.id == id {
			some, inside = append(some, f), inside || f.at >= 0 && f.at < time.Hour
		}
	}
	return some, inside
}

// Whatever the sides hold, on whatever engines: what is wrong inside of the
// window is found, what is not wrong is not, and the proof foots.
func TestEvaluateAgreesWithNaiveJoin(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	b.exec(fmt.Sprintf(tableConsumed, "consumed", "timestamptz"))
	b.exec(fmt.Sprintf(tableConsumed, "effect", "timestamp"))
	b.execMySQL(fmt.Sprintf(tableConsumed, "consumed", "datetime(6)"))
	b.execMySQL(fmt.Sprintf(tableConsumed, "effect", "timestamp(6) null"))
	b.readable()
	comparisons := map[string]*comparison{}
	for _, mode := range []Mode{OneToOne, OneToMany} {
		for _, consumed := range []string{"pg", "my"} {
			for _, effect := range []string{"pg", "my"} {
				text := jobText(consumed, effect, strings.Replace(matchOne, "one_to_one", string(mode), 1))
				comparisons[string(mode)+" "+consumed+" "+effect] = b.compare(parseJob(t, text))
				if fits, _ := joinFits(parseJob(t, text), b.named); fits {
					joined := b.compare(parseJob(t, text))
					joined.plan = PlanJoin
					comparisons["joined "+string(mode)] = joined
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		consumed, effect := drawFacts(t, "consumed"), drawFacts(t, "effect")
		b.fill("consumed", consumed)
		b.fill("effect", effect)
		for name, c := range comparisons {
			agree(t, name, c, consumed, effect)
		}
	})
}

func (b *books) fill(table string, facts []fact) {
	b.Helper()
	b.exec("TRUNCATE " + table)
	b.execMySQL("DELETE FROM " + table)
	if len(facts) == 0 {
		return
	}
	values := make([]string, len(facts))
	for i, f := range facts {
		values[i] = fmt.Sprintf("('%s', %s, '%s', '%s')", f.id, f.amount, f.currency, noon.Add(f.at).Format(mysqlTime))
	}
	insert := "INSERT INTO " + table + " VALUES " + strings.Join(values, ", ")
	b.exec(insert)
	b.execMySQL(insert)
}

func agree(t *rapid.T, name string, c *comparison, consumed, effect []fact) {
	o, err := c.evaluate(context.Background(), hour(noon), noon.Add(1000*time.Hour), 1000)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	found := map[string]Type{}
	for _, f := range o.findings {
		found[f.Key[0]] = f.Type
	}
	ids := map[string]bool{}
	for _, f := range append(consumed[:len(consumed):len(consumed)], effect...) {
		ids[f.id] = true
	}
	for id := range ids {
		cs, inC := of(consumed, id)
		es, inE := of(effect, id)
		want := naive(c.job.Match.Mode, cs, es)
		got, ok := found[id]
		switch {
		case !inC && !inE:
			if ok {
				t.Fatalf("%s: %q is outside and found as %s", name, id, got)
			}
		case want == "" && got != "" && got != Timing, want != "" && got != want && !wholeInside(c, cs, es):
			t.Fatalf("%s: %q is %q, found as %q", name, id, want, got)
		}
	}
	if !o.tally.Foots() {
		t.Fatalf("%s: CNY %s, USD %s are unexplained", name, o.tally.Unexplained("CNY"), o.tally.Unexplained("USD"))
	}
	for p := range o.tally.Totals {
		if fmt.Sprint(o.tally.Control[p]) != fmt.Sprint(o.tally.Totals[p]) {
			t.Fatalf("%s: %s: the database has %v, compared were %v", name, Party(p), o.tally.Control[p], o.tally.Totals[p])
		}
	}
}

// wholeInside reports whether a key looks whole from the window and its overlap:
// what is wrong with it lies in another window, which will find it.
func wholeInside(c *comparison, consumed, effect []fact) bool {
	near := func(facts []fact) (some []fact) {
		for _, f := range facts {
			if f.at >= -10*time.Minute && f.at < 70*time.Minute {
				some = append(some, f)
			}
		}
		return some
	}
	cs, es := near(consumed), near(effect)
	return len(cs) > 0 && len(es) > 0 && naive(c.job.Match.Mode, cs, es) == ""
}
