package compensate

import (
	"net/http"
	"testing"

	"oncemore/reconcile"
)

// What a list, its counts and a compensation's history say is what happened.
func TestListAndHistory(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	first, second := b.missing("e-1", 100), b.missing("e-2", 7)
	tried, waits := b.approved("call", first), b.propose("call", second)
	b.do(tried.ID)

	running, more, err := b.List(t.Context(), Filter{States: []State{Running}, Limit: 1})
	if err != nil || more || len(running) != 1 {
		t.Fatalf("running: %d, more %v, %v", len(running), more, err)
	}
	if r := running[0]; r.ID != tried.ID || r.Approvals != 1 || r.Tries != 1 || !r.Retrying || r.Unknown || r.Steps != 1 {
		t.Errorf("row %+v", r)
	}
	hundred, err := reconcile.ParseAmount("100")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f Filter
		n int
	}{
		"all": {Filter{}, 2}, "action": {Filter{Action: "call"}, 2}, "other action": {Filter{Action: "x"}, 0}, "break": {Filter{BreakID: second}, 1},
		"amount": {Filter{AmountMin: &hundred}, 1}, "asker": {Filter{AskedBy: maker.User}, 2}, "event": {Filter{EventID: "e-2"}, 1}, "sagas": {Filter{Sagas: true}, 0},
		"job": {Filter{Job: "points"}, 2}, "currency": {Filter{Currency: "CNY"}, 0}, "before": {Filter{Before: waits.ID}, 1}, "ids": {Filter{IDs: []int64{waits.ID}}, 1},
	} {
		if n, err := b.Count(t.Context(), c.f); err != nil || n != c.n {
			t.Errorf("%s: %d, %v, want %d", name, n, err, c.n)
		}
	}
	for text, n := range map[string]int{"e-2": 1, "7": 1, "-100.00": 1, "7.01": 0, "call": 0} {
		if found, more, err := b.Find(t.Context(), text, 5); err != nil || len(found) != n || more {
			t.Errorf("find %q: %d, %v, %v, want %d", text, len(found), more, err, n)
		}
	}
	if totals, err := b.Totals(t.Context(), Filter{}); err != nil || len(totals) != 1 || totals[0].Items != 2 || totals[0].Amount.String() != "107" {
		t.Errorf("totals %+v, %v", totals, err)
	}
	approvals, err := b.Approvals(t.Context(), tried.ID)
	if err != nil || len(approvals) != 1 || approvals[0].By != checker.User {
		t.Errorf("approvals %+v, %v", approvals, err)
	}
	attempts, err := b.Attempts(t.Context(), tried.ID)
	if err != nil || len(attempts) != 1 || *attempts[0].Outcome != "retry" {
		t.Errorf("attempts %+v, %v", attempts, err)
	}
	var kinds []string
	notes, err := b.Notes(t.Context(), tried.ID)
	for _, n := range notes {
		kinds = append(kinds, n.Kind)
	}
	if err != nil || len(kinds) != 3 || kinds[0] != "proposed" || kinds[1] != "approved" || kinds[2] != "started" {
		t.Errorf("notes %v, %v", kinds, err)
	}
}
