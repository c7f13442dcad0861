package reconcile

import (
	"fmt"
	"testing"
	"time"
)

func groupOf(t *testing.T, currency string, amounts ...string) group {
	t.Helper()
	var g group
	for _, a := range amounts {
		r := record{amount: []byte(a), currency: currency}
		if a == "" {
			r.amount = nil
		}
		if err := g.add(&r, true); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// The larger of the two tolerances holds, its own value still matches, and the
// smallest unit more does not.
func TestToleranceEndsAtItsValue(t *testing.T) {
	t.Parallel()
	tolerance := func(amount, percent string) Tolerance {
		a, _ := ParseAmount(amount)
		p, _ := ParseAmount(percent)
		return Tolerance{Amount: a, Percent: p}
	}
	for _, c := range []struct {
		tolerance       Tolerance
		consumed, found string
		want            Type
	}{
		{tolerance("0.01", "0"), "100.00", "100.01", ""},
		{tolerance("0.01", "0"), "100.00", "99.99", ""},
		{tolerance("0.01", "0"), "100.00", "100.010000000000000001", AmountMismatch},
		{tolerance("0.01", "0"), "100.00", "99.98", AmountMismatch},
		{tolerance("0", "0"), "100.00", "100", ""},
		{tolerance("0", "0"), "0.1", "0.10000000000000000000000000001", AmountMismatch},
		{tolerance("0", "0.5"), "200.00", "201.00", ""},
		{tolerance("0", "0.5"), "200.00", "201.01", AmountMismatch},
		{tolerance("0", "0.5"), "-200.00", "-199.00", ""},
		{tolerance("2", "0.5"), "200.00", "202.00", ""},
		{tolerance("2", "0.5"), "200.00", "202.01", AmountMismatch},
		{tolerance("5", "0"), "100.00", "", AmountMismatch},
	} {
		r := rules{mode: OneToOne, amounts: true, tolerance: c.tolerance}
		g := groups{Consumed: groupOf(t, "CNY", c.consumed), Effect: groupOf(t, "CNY", c.found)}
		if got, _, _ := r.compare(&g); got != c.want {
			t.Errorf("%s and %s within %s or %s %%: %q, want %q", c.consumed, c.found, c.tolerance.Amount, c.tolerance.Percent, got, c.want)
		}
	}
}

// Sums are decimals, whatever their length and number.
func TestSumsAreExact(t *testing.T) {
	t.Parallel()
	tenths := make([]string, 1000)
	for i := range tenths {
		tenths[i] = "0.10"
	}
	for _, c := range []struct {
		amounts []string
		want    string
	}{
		{tenths, "100"},
		{[]string{"9223372036854775807", "1"}, "9223372036854775808"},
		{[]string{"99999999999999999999.99", "0.01", "-100000000000000000000"}, "0"},
		{[]string{"0.000000000000000000001", "1000000000000000000"}, "1000000000000000000.000000000000000000001"},
		{[]string{"-0.30", "0.1", "0.2"}, "0"},
	} {
		g := groupOf(t, "CNY", c.amounts...)
		want, err := ParseAmount(c.want)
		if err != nil {
			t.Fatal(err)
		}
		if !g.sum.value().Equal(want) || g.sum.isZero() != want.IsZero() {
			t.Errorf("sum of %d amounts from %s on: %s (zero: %v), want %s", len(c.amounts), c.amounts[0], g.sum.value(), g.sum.isZero(), want)
		}
	}
}

// Differences within the tolerance pass as long as a run's cap has room for them;
// the others are breaks, and stay such until nothing is left of them.
func TestToleratedDifferencesBeyondTheCapAreBreaks(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "tolerance: {amount: \"0.02\", run_total_cap: \"0.04\"}\nlimits: {parallel: 2}\n")
	for i := range 6 { // 0.02 each, of either sign, in three windows
		at := time.Duration(i/2)*time.Hour + time.Minute
		o.consume(fmt.Sprintf("e%d", i), "10.00", at)
		o.credit(fmt.Sprintf("e%d", i), []string{"10.02", "9.98"}[i%2], at)
	}
	run := o.run(0, 3)
	same(t, "let pass", run.Tally.Spared["CNY"], "0.04")
	same(t, "tolerated, wrong, matched", fmt.Sprint(run.Tally.Lines[LineTolerated]["CNY"].Keys, run.Tally.Wrong(), run.Tally.Matched), "2 4 2")
	same(t, "foots", run.Tally.Foots(), true)
	same(t, "breaks", len(o.breaks()), 4)

	o.run(3, 4) // another run's cap is not for the breaks of this one
	open := 0
	for _, state := range o.breaks() {
		if state[0] == '1' {
			open++
		}
	}
	same(t, "open after the next run", open, 4)

	o.execMySQL("UPDATE effect SET amount = 10.00")
	o.run(4, 5)
	for key, state := range o.breaks() {
		if state[0] != '6' {
			t.Errorf("%s: %s after it was put right", key, state)
		}
	}
}
