package reconcile

import (
	"errors"
	"testing"
	"time"
)

// What a run said stays what it was: a later run closes a break, and the first
// run still shows it as it found it.
func TestWhatARunSaidStays(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	breaks := NewBreaks(o.console)
	o.consume("gone", "100.00", time.Minute)
	o.consume("less", "50.00", time.Minute)
	o.credit("less", "49.00", time.Minute)
	first := o.run(0, 1)
	o.credit("gone", "100.00", 30*time.Minute)
	second := o.run(0, 1)

	seen, more, err := breaks.OfRun(t.Context(), first.ID, RunBreakFilter{Limit: 1})
	if err != nil || len(seen) != 1 || !more {
		t.Fatalf("%v, %v, more %v", seen, err, more)
	}
	all, _, err := breaks.OfRun(t.Context(), first.ID, RunBreakFilter{What: []int{SaidNew}, Limit: 10})
	if err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, b := range all {
		want := map[string]string{"gone": "100 closed 0", "less": "1 open 1"}[b.Key[0]]
		if got := b.Amount.String() + " " + b.State.String() + " " + string('0'+rune(b.Sides[Effect].Rows)); got != want {
			t.Errorf("%s: %q, want %q", b.Key[0], got, want)
		}
	}
	whole, _, err := breaks.OfRun(t.Context(), second.ID, RunBreakFilter{What: []int{SaidWhole}, Type: MissingEffect, States: []BreakState{Closed}, Owner: "none", Limit: 10})
	if err != nil || len(whole) != 1 || whole[0].Key[0] != "gone" {
		t.Errorf("closed by the second run: %v, %v", whole, err)
	}
	largest, _, err := breaks.OfRun(t.Context(), first.ID, RunBreakFilter{ByAmount: true, Limit: 1})
	if err != nil || len(largest) != 1 || largest[0].Key[0] != "gone" {
		t.Fatalf("largest first: %v, %v", largest, err)
	}
	rest, _, err := breaks.OfRun(t.Context(), first.ID, RunBreakFilter{ByAmount: true, Before: largest[0].ID, Limit: 5})
	if err != nil || len(rest) != 1 || rest[0].Key[0] != "less" {
		t.Errorf("after the largest: %v, %v", rest, err)
	}
	after, _, err := breaks.List(t.Context(), BreakFilter{ByAmount: true, Before: largest[0].ID, Limit: 5}, o.now)
	if err != nil || len(after) != 1 || after[0].Key[0] != "less" {
		t.Errorf("after the largest of all: %v, %v", after, err)
	}
	figures, err := breaks.Figures(t.Context(), first.ID)
	if err != nil || len(figures) != 2 || figures[0].Items != 1 {
		t.Errorf("figures %+v, %v", figures, err)
	}
	if n, err := breaks.Outstanding(t.Context(), 100); n != 1 || err != nil {
		t.Errorf("%d outstanding, %v", n, err)
	}
	if before, err := o.runs.Before(t.Context(), second); err != nil || before.ID != first.ID {
		t.Errorf("before: %v, %v", before, err)
	}
	if _, err := o.runs.Before(t.Context(), first); !errors.Is(err, ErrNoRun) {
		t.Errorf("before the first: %v", err)
	}
	if len(second.Roll.Aging) != 1 || second.Roll.Aging[0].Items != 1 || second.Roll.Aging[0].Amount.String() != "1" {
		t.Errorf("aging %+v", second.Roll.Aging)
	}
	if err := o.runs.Verify(t.Context(), second.ID); err != nil {
		t.Errorf("the seal does not hold with the aging: %v", err)
	}
}

// Rows are those of the very key, NULL is not an empty text, and a side that
// cannot be read does not take the others with it.
func TestRowsOfABreak(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("evt-1", "100.00", time.Minute)
	o.credit("evt-1", "100.00", time.Minute)
	o.credit("EVT-1", "7.00", time.Minute)
	o.execMySQL("INSERT INTO effect VALUES ('evt-1', NULL, 'CNY', ?)", noon.Add(time.Minute))
	o.run(0, 1)
	all, _, err := NewBreaks(o.console).List(t.Context(), BreakFilter{Key: "evt-1", Limit: 2}, o.now)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	if got := all[0].Sides[Effect]; got.Rows != 2 || got.Nulls != 1 {
		t.Errorf("effect %+v", got)
	}
	sides, err := o.runs.Rows(t.Context(), all[0])
	if err != nil || len(sides) != 2 {
		t.Fatalf("%v, %v", sides, err)
	}
	effect := sides[1]
	if effect.Err != nil || len(effect.Rows) != 2 || effect.Columns[1] != "amount" || !effect.Compared[1] {
		t.Fatalf("effect %+v", effect)
	}
	nulls := 0
	for _, row := range effect.Rows {
		if row[1] == nil {
			nulls++
		}
	}
	same(t, "rows with NULL", nulls, 1)
	o.exec("REVOKE SELECT ON consumed FROM " + o.role())
	if sides, err = o.runs.Rows(t.Context(), all[0]); err == nil && (sides[0].Err == nil || sides[1].Err != nil) {
		t.Errorf("without the right to read: %+v", sides)
	}
}
