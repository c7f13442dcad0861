package consumer

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// memoryFilter knows ids by heart.
type memoryFilter struct {
	known map[string]bool
	err   error
	short bool // answers about fewer ids than it was asked
	told  []string
}

func (f *memoryFilter) Seen(_ context.Context, _ string, ids []string) ([]bool, error) {
	seen := make([]bool, len(ids))
	for i, id := range ids {
		seen[i] = f.known[id]
	}
	if f.short {
		return seen[:len(seen)-1], nil
	}
	return seen, f.err
}

func (f *memoryFilter) Committed(_ context.Context, _ string, ids []string) {
	f.told = append(f.told, ids...)
}

func TestFilterSparesTheStore(t *testing.T) {
	t.Parallel()
	b := setup(apply)
	filter := &memoryFilter{known: map[string]bool{"old": true}}
	b.cfg.Filter = filter
	b.store.records["stored"] = true
	b.process(t, "old", "a", "stored", "old", "a")
	b.process(t, "old", "old")
	if want := [][]string{{"a", "stored"}}; !slices.EqualFunc(b.store.claims, want, slices.Equal) {
		t.Errorf("claims %v, want %v", b.store.claims, want)
	}
	if s := b.status(); b.port.done != 7 || s.Consumed != 1 || s.Duplicates != 6 || s.Filtered != 4 {
		t.Errorf("done %d, consumed %d, duplicates %d, filtered %d", b.port.done, s.Consumed, s.Duplicates, s.Filtered)
	}
	if want := []string{"a", "stored"}; !slices.Equal(filter.told, want) {
		t.Errorf("the filter was told %v, want %v", filter.told, want)
	}
}

func TestBrokenFilterChangesNothing(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]*memoryFilter{
		"an error":         {known: map[string]bool{"a": true}, err: errors.New("connection refused")},
		"too short answer": {known: map[string]bool{"a": true}, short: true},
	} {
		b := setup(apply)
		b.cfg.Filter = filter
		b.process(t, "a", "b")
		if want := []string{"a", "b"}; !slices.Equal(b.store.effects, want) {
			t.Errorf("%s: effects %v, want %v", name, b.store.effects, want)
		}
		if s := b.status(); s.Filtered != 0 || s.Consumed != 2 {
			t.Errorf("%s: filtered %d, consumed %d", name, s.Filtered, s.Consumed)
		}
	}
}

// The filter hears of an id once it is committed: not of one that was rolled
// back, dead-lettered or discarded, nor of a commit whose answer was lost.
func TestFilterHearsOfCommitsOnly(t *testing.T) {
	t.Parallel()
	filter := &memoryFilter{}
	b := setup(func(ctx context.Context, tx *memoryTx, ev Event) error {
		switch ev.ID {
		case "bad":
			return Permanent(errors.New("bad"))
		case "drop":
			return Discard(errors.New("drop"))
		}
		return apply(ctx, tx, ev)
	})
	b.cfg.Filter = filter
	b.process(t, "bad", "drop", "good")
	if want := []string{"good"}; !slices.Equal(filter.told, want) {
		t.Errorf("the filter was told %v, want %v", filter.told, want)
	}

	filter.told = nil
	lost := 0
	b.store.lose = func() bool { lost++; return lost == 1 }
	atLoss := -1
	b.cfg.Handler = apply
	b.store.fault = func(at string) error {
		if at == "claim" && lost == 1 && atLoss < 0 {
			atLoss = len(filter.told)
		}
		return nil
	}
	b.cfg.Outage = 32
	b.process(t, "x")
	if atLoss != 0 || !slices.Equal(filter.told, []string{"x"}) {
		t.Errorf("told %d ids before the commit was certain, then %v", atLoss, filter.told)
	}
}
