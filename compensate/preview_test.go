package compensate

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// A preview says what would be sent, how many rows, and what cannot be proposed;
// and it keeps nothing.
func TestPreview(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(sqlCredit)
	first, second := b.missing("e-1", 100), b.missing("e-2", 7)
	comp := b.propose("credit", second)
	seen, err := b.Preview(t.Context(), maker, "credit", []int64{first, second}, 10)
	if err != nil || len(seen) != 2 {
		t.Fatalf("%d previews, %v", len(seen), err)
	}
	p := seen[0]
	if p.Problem != nil || p.Checkers != 1 || len(p.Counted) != 1 || p.Counted[0].Rows != 1 || p.Counted[0].Error != "" || p.Effect[0].Params["event_id"] != "e-1" {
		t.Errorf("preview %+v", p)
	}
	if !errors.Is(seen[1].Problem, ErrTwice) || seen[1].Already != comp.ID || !bytes.Equal(seen[1].Hash, comp.Hash) {
		t.Errorf("one that is proposed: %+v", seen[1])
	}
	var rows int
	if err := b.business.QueryRow(t.Context(), "SELECT count(*) FROM effect").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("the preview left %d rows, %v", rows, err)
	}
	b.define(strings.Replace(sqlCredit, "missing_effect", "duplicate_effect", 1))
	if seen, err = b.Preview(t.Context(), maker, "credit", []int64{first}, 10); err != nil || !errors.Is(seen[0].Problem, ErrNotFor) {
		t.Errorf("an action for others: %+v, %v", seen, err)
	}
	if now, err := b.Present(t.Context(), comp); err != nil || !now.Changed || now.Version != 2 || now.Break.ID != second {
		t.Errorf("at another version: %+v, %v", now, err)
	}
}

// A batch is added up for the person who would approve it, and one that has
// changed does not hold up the others.
func TestApproveABatch(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(sqlCredit)
	var seen []Seen
	for _, id := range []string{"e-1", "e-2", "e-3"} {
		c := b.propose("credit", b.missing(id, 10*len(seen)+10))
		seen = append(seen, Seen{c.ID, c.Hash})
	}
	own := checker
	own.User = maker.User
	mine, err := b.Batch(t.Context(), own, Filter{})
	if err != nil || len(mine.Own) != 3 || len(mine.Yours) != 0 {
		t.Errorf("the maker's batch: %+v, %v", mine, err)
	}
	all, err := b.Batch(t.Context(), checker, Filter{IDs: []int64{seen[0].ID, seen[1].ID, seen[2].ID, 99}})
	if err != nil || len(all.Yours) != 3 || all.Other != 1 || len(all.Totals) != 1 || all.Totals[0].Amount.String() != "60" || all.Largest[0].ID != seen[2].ID {
		t.Errorf("the checker's batch: %+v, %v", all, err)
	}
	seen[1].Hash = []byte("as it was")
	results, err := b.ApproveAll(t.Context(), checker, seen)
	if err != nil || results[0].Err != nil || !errors.Is(results[1].Err, ErrVoid) || results[2].Err != nil {
		t.Errorf("results %v, %v", results, err)
	}
	states := []State{b.get(seen[0].ID).State, b.get(seen[1].ID).State, b.get(seen[2].ID).State}
	if !slices.Equal(states, []State{Approved, Proposed, Approved}) {
		t.Errorf("states %v", states)
	}
	if results, err = b.ApproveAll(t.Context(), own, seen[1:2]); err != nil || !errors.Is(results[0].Err, ErrOwn) {
		t.Errorf("one's own in a batch: %v, %v", results, err)
	}
}

// A summary says for people what will be done; it is part of what is approved.
func TestSummary(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(strings.Replace(sqlCredit, "kind: sql", "kind: sql\nsummary: Credit {{difference}} for {{event_id}}", 1))
	id := b.missing("e-1", 100)
	c := b.propose("credit", id)
	if c.Effect[0].Says != "Credit 100 for e-1" {
		t.Errorf("it says %q", c.Effect[0].Says)
	}
	b.define(strings.Replace(sqlCredit, "kind: sql", "kind: sql\nsummary: Credit {{nothing}}", 1))
	if seen, err := b.Preview(t.Context(), maker, "credit", []int64{id}, 0); err != nil || !errors.Is(seen[0].Problem, ErrInput) {
		t.Errorf("a name that is not there: %+v, %v", seen, err)
	}
}
