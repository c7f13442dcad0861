package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
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

// sides are the rows of all parties; published is nil in a job of two sides.
type sides struct{ published, consumed, effect []fact }

// naive says what is wrong with an id, from all its rows and without any
// cleverness.
func naive(j *Job, s sides) Type {
	want, have := totalOf(s.consumed), totalOf(s.effect)
	switch {
	case len(s.consumed) == 0 && len(s.effect) == 0 && len(s.published) == 0:
		return ""
	case len(s.consumed) == 0 && len(s.effect) == 0:
		return PublishedNotConsumed
	case len(s.consumed) == 0:
		return EffectWithoutRecord
	case len(s.effect) == 0:
		return MissingEffect
	case j.Match.Mode == OneToOne && len(s.effect) > len(s.consumed):
		return DuplicateEffect
	case j.Match.Mode == OneToOne && len(s.effect) < len(s.consumed):
		return MissingEffect
	case j.Match.Amount == "":
		return ""
	case !want.equal(have):
		return naiveMismatch(want, have)
	case len(s.published) > 0 && !want.equal(totalOf(s.published)):
		return AmountMismatch
	}
	return ""
}

// naiveTotal is what rows sum up to; of several currencies it equals nothing.
type naiveTotal struct {
	rows     int
	amount   Amount
	currency string
}

func totalOf(facts []fact) (t naiveTotal) {
	for i, f := range facts {
		a, _ := ParseAmount(f.amount)
		t.amount, t.rows = t.amount.Add(a), t.rows+1
		if i > 0 && f.currency != t.currency {
			t.currency = "mixed"
			continue
		}
		t.currency = f.currency
	}
	return t
}

func (t naiveTotal) equal(other naiveTotal) bool {
	return t.currency != "mixed" && t.currency == other.currency && t.amount.Equal(other.amount)
}

func naiveMismatch(want, have naiveTotal) Type {
	for times := int64(2); times <= int64(have.rows); times++ {
		multiple := naiveTotal{amount: want.amount.Mul(amountOf(times)), currency: want.currency}
		if !want.amount.IsZero() && multiple.equal(have) {
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

// generated are books with the sides of a job on both engines.
type generated struct {
	*books
	comparisons map[string]*comparison // by engines and plan
	kinds       map[string]string      // which of them have to agree in every figure
}

func openGenerated(t *testing.T, parties ...Party) *generated {
	t.Helper()
	g := &generated{openBooks(t), map[string]*comparison{}, map[string]string{}}
	for _, p := range parties {
		at := map[Party]string{Outbox: "timestamptz", Consumed: "timestamptz", Effect: "timestamp"}[p]
		mysqlAt := map[Party]string{Outbox: "datetime(6)", Consumed: "datetime(6)", Effect: "timestamp(6) null"}[p]
		g.exec(fmt.Sprintf(tableConsumed, p, at))
		g.execMySQL(fmt.Sprintf(tableConsumed, p, mysqlAt))
	}
	g.readable()
	return g
}

// add has a job compared, by each plan that fits.
func (g *generated) add(kind, engines, text string) {
	g.Helper()
	job := parseJob(g, text)
	plans := []string{PlanMerge}
	if fits, _ := joinFits(job, g.named); fits {
		plans = append(plans, PlanJoin)
	}
	for _, plan := range plans {
		c := g.compare(job)
		c.plan = plan
		name := strings.Join([]string{kind, engines, plan}, " ")
		g.comparisons[name], g.kinds[name] = c, kind
	}
}

// check compares rows by all comparisons.
func (g *generated) check(t *rapid.T, s sides) {
	figures := map[string]string{}
	for name, c := range g.comparisons {
		tally := agree(t, name, c, s)
		if have, ok := figures[g.kinds[name]]; ok && have != tally {
			t.Fatalf("%s counts %s, another plan %s", name, tally, have)
		}
		figures[g.kinds[name]] = tally
	}
}

var matches = map[string]string{
	"one to one":      matchOne,
	"one to many":     strings.Replace(matchOne, "one_to_one", "one_to_many", 1),
	"without amounts": strings.Replace(matchOne, "amount: amount, currency: currency", "amount: none, currency: none", 1),
}

// Whatever the sides hold, on whatever engines and by whatever plan: what is
// wrong inside of the window is found, what is not wrong is not, and the proof
// foots.
func TestEvaluateAgreesWithNaiveJoin(t *testing.T) {
	t.Parallel()
	g := openGenerated(t, Consumed, Effect)
	for kind, match := range matches {
		for _, engines := range [][2]string{{"pg", "pg"}, {"pg", "my"}, {"my", "pg"}, {"my", "my"}} {
			g.add(kind, strings.Join(engines[:], " "), jobText(engines[0], engines[1], match))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := sides{consumed: drawFacts(t, "consumed"), effect: drawFacts(t, "effect")}
		g.fill("consumed", s.consumed)
		g.fill("effect", s.effect)
		g.check(t, s)
	})
}

// The same with what was published.
func TestEvaluateAgreesWithNaiveJoinOfThreeSides(t *testing.T) {
	t.Parallel()
	g := openGenerated(t, Outbox, Consumed, Effect)
	for kind, match := range matches {
		for _, engines := range [][3]string{{"my", "pg", "my"}, {"pg", "pg", "pg"}, {"pg", "my", "pg"}} {
			text := jobText(engines[1], engines[2], strings.Replace(match, "consumed_time", "outbox_time: at, consumed_time", 1))
			g.add(kind, strings.Join(engines[:], " "), text+"outbox:"+sideText(engines[0], "outbox")+"\n")
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := sides{drawFacts(t, "published"), drawFacts(t, "consumed"), drawFacts(t, "effect")}
		g.fill("outbox", s.published)
		g.fill("consumed", s.consumed)
		g.fill("effect", s.effect)
		g.check(t, s)
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

// agree evaluates and gives what was counted.
func agree(t *rapid.T, name string, c *comparison, all sides) string {
	o, err := c.evaluate(context.Background(), hour(noon), noon.Add(1000*time.Hour), 1000)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	found := map[string]Type{}
	for _, f := range o.findings {
		found[f.Key[0]] = f.Type
	}
	ids := map[string]bool{}
	for _, f := range slices.Concat(all.published, all.consumed, all.effect) {
		ids[f.id] = true
	}
	for id := range ids {
		s, inside := all.of(id)
		want := naive(c.job, s)
		got, ok := found[id]
		switch {
		case !inside:
			if ok {
				t.Fatalf("%s: %q is outside and found as %s", name, id, got)
			}
		case want == "" && got != "" && got != Timing, want != "" && got != want && !wholeInside(c, s):
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
	figures, err := json.Marshal(o.tally)
	if err != nil {
		t.Fatal(err)
	}
	return string(figures)
}

func (s sides) of(id string) (some sides, inside bool) {
	var in [3]bool
	some.published, in[0] = of(s.published, id)
	some.consumed, in[1] = of(s.consumed, id)
	some.effect, in[2] = of(s.effect, id)
	return some, in[0] || in[1] || in[2]
}

// wholeInside reports whether a key looks whole from the window and its overlap:
// what is wrong with it lies in another window, which will find it.
func wholeInside(c *comparison, s sides) bool {
	near := func(facts []fact) (some []fact) {
		for _, f := range facts {
			if f.at >= -10*time.Minute && f.at < 70*time.Minute {
				some = append(some, f)
			}
		}
		return some
	}
	s = sides{near(s.published), near(s.consumed), near(s.effect)}
	return len(s.consumed) > 0 && len(s.effect) > 0 && naive(c.job, s) == ""
}
