package dlq

import (
	"slices"
	"testing"
)

// The filters offer what the faults are made of, each name once, and leave out
// what nobody named.
func TestFaultNames(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(
		seedLetter{source: "orders.DLT", group: "points", class: "B", message: "boom"},
		seedLetter{source: "orders.DLT", group: "points", class: "A", message: "bang"},
		seedLetter{source: "refunds.DLT", message: "crash"},
	)
	got, err := NewFaults(s.pool).Names(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, is := range map[string][2][]string{
		"sources": {got.Sources, {"orders.DLT", "refunds.DLT"}},
		"groups":  {got.Groups, {"points"}},
		"classes": {got.Classes, {"A", "B"}},
	} {
		if !slices.Equal(is[0], is[1]) {
			t.Errorf("%s %q, want %q", what, is[0], is[1])
		}
	}
}
