package compensate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
)

// BatchLimit is how many compensations one command may approve.
const BatchLimit = 1000

// Batch is what somebody would approve at once.
type Batch struct {
	Yours   []Row // that the actor may approve, the largest amount of each currency first
	Own     []Row // that the actor asked for: somebody else has to
	Agreed  []Row // that the actor has approved; others are still needed
	Other   int   // named, and not waiting for an approval
	Totals  []Total
	Largest []Row // of each currency, of Yours
	More    bool  // there are more than BatchLimit that match
}

const sqlAgreed = `SELECT compensation_id FROM compensation_approval WHERE by = @by AND compensation_id = ANY(@ids)`

// Batch sorts what matches by whether the actor may approve it. States of the
// filter do not count: only what waits for an approval is approved.
func (c *Compensations) Batch(ctx context.Context, actor access.Actor, f Filter) (b Batch, err error) {
	named := len(f.IDs)
	f.States, f.Limit = []State{Proposed}, BatchLimit
	rows, more, err := c.List(ctx, f)
	if err != nil {
		return b, err
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	agreed, err := c.agreed(ctx, actor.User, ids)
	if err != nil {
		return b, err
	}
	b.More, b.Other = more, max(named-len(rows), 0)
	for _, r := range rows {
		switch {
		case r.AskedBy == actor.User:
			b.Own = append(b.Own, r)
		case agreed[r.ID]:
			b.Agreed = append(b.Agreed, r)
		default:
			b.Yours = append(b.Yours, r)
		}
	}
	b.add()
	return b, nil
}

func (c *Compensations) agreed(ctx context.Context, by string, ids []int64) (map[int64]bool, error) {
	rows, err := c.Pool.Query(ctx, sqlAgreed, pgx.NamedArgs{"by": by, "ids": ids})
	if err != nil {
		return nil, fmt.Errorf("query approvals of %s: %w", by, err)
	}
	have := map[int64]bool{}
	var id int64
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { have[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("read approvals of %s: %w", by, err)
	}
	return have, nil
}

// add sorts Yours and adds it up.
func (b *Batch) add() {
	slices.SortStableFunc(b.Yours, func(x, y Row) int {
		return cmp.Or(cmp.Compare(x.Currency, y.Currency), y.Amount.Abs().Cmp(x.Amount.Abs()))
	})
	for _, r := range b.Yours {
		if n := len(b.Totals); n == 0 || b.Totals[n-1].Currency != r.Currency {
			b.Totals, b.Largest = append(b.Totals, Total{Currency: r.Currency}), append(b.Largest, r)
		}
		t := &b.Totals[len(b.Totals)-1]
		t.Items, t.Amount = t.Items+1, t.Amount.Add(r.Amount.Abs())
	}
}

// Seen is a compensation as somebody saw it: an approval is bound to the hash.
type Seen struct {
	ID   int64
	Hash []byte
}

// Result is what became of one of a batch: nil, or why it was not approved.
type Result struct {
	ID  int64
	Err error
}

// ApproveAll approves each on its own: one that has changed, or that another
// person was faster with, does not hold up the rest. The error is one that no
// further approval would survive either. Errors in results: those of Approve.
func (c *Compensations) ApproveAll(ctx context.Context, actor access.Actor, seen []Seen) ([]Result, error) {
	if err := actor.Check(access.ApproveCompensation); err != nil {
		return nil, err
	}
	if len(seen) > BatchLimit {
		return nil, fmt.Errorf("%w: %d at once, and the most is %d", ErrLimit, len(seen), BatchLimit)
	}
	results := make([]Result, 0, len(seen))
	for _, s := range seen {
		err := c.Approve(ctx, actor, s.ID, s.Hash)
		if err != nil && !refusesOne(err) {
			return results, err
		}
		results = append(results, Result{s.ID, err})
	}
	return results, nil
}

// refusesOne reports whether an error is about the one compensation.
func refusesOne(err error) bool {
	for _, known := range []error{ErrNotFound, ErrState, ErrOwn, ErrVoid, ErrExpired} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
