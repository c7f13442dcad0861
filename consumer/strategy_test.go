package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// bare is the memory store without records, which locks keys by noting them.
type bare struct {
	*memory
	keys [][]string
}

func (b *bare) Unrecorded() Store[*memoryTx] { return b }

func (b *bare) Claim(ctx context.Context, group string, ids []string) (Claim[*memoryTx], error) {
	return b.ClaimKeys(ctx, group, ids, nil)
}

func (b *bare) ClaimKeys(ctx context.Context, group string, ids, keys []string) (Claim[*memoryTx], error) {
	b.keys = append(b.keys, keys)
	claim, err := b.memory.Claim(ctx, group, ids)
	if err == nil {
		for _, id := range ids {
			claim.(*memoryClaim).fresh[id] = true
		}
	}
	return claim, err
}

func TestStrategiesNeedWhatTheyNeed(t *testing.T) {
	t.Parallel()
	keys := func(Event) ([]string, error) { return []string{"k"}, nil }
	plain, able := newMemory(), &bare{memory: newMemory()}
	for _, c := range []struct {
		name     string
		strategy Strategy
		store    Store[*memoryTx]
		keys     func(Event) ([]string, error)
		want     string
	}{
		{"the default", "", plain, nil, ""},
		{"unknown", "hope", able, nil, `no strategy "hope"`},
		{"no store without records", ByUniqueKey, plain, nil, "cannot do without consume records"},
		{"unique key", ByUniqueKey, able, nil, ""},
		{"lock without keys", ByLock, able, nil, "needs Keys"},
		{"lock", ByLock, able, keys, ""},
		{"keys beside records", ByRecord, able, keys, ""},
		{"keys that cannot be locked", ByRecord, plain, keys, "cannot lock keys"},
	} {
		b := setup(apply)
		b.cfg.Strategy, b.cfg.Store, b.cfg.Keys = c.strategy, c.store, c.keys
		_, err := b.cfg.Complete()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestDuplicatesThatHandlersReport(t *testing.T) {
	t.Parallel()
	store := &bare{memory: newMemory()}
	b := setup(func(ctx context.Context, tx *memoryTx, ev Event) error {
		if slices.Contains(store.effects, ev.ID) {
			Duplicate(ctx)
			return nil
		}
		return apply(ctx, tx, ev)
	})
	b.cfg.Store, b.cfg.Strategy = store, ByUniqueKey
	b.process(t, "a", "b")
	b.process(t, "b", "c", "c")
	var s Status
	b.meter.Fill(&s)
	if s.Consumed != 3 || s.Duplicates != 2 || len(b.port.letters) != 0 || b.port.done != 5 {
		t.Errorf("%+v, done %d", s, b.port.done)
	}
}

// The keys of a batch are distinct and sorted, whatever the order of its events.
func TestKeysOfABatchAreLockedTogether(t *testing.T) {
	t.Parallel()
	store := &bare{memory: newMemory()}
	b := setup(apply)
	b.cfg.Store, b.cfg.Strategy = store, ByLock
	b.cfg.Keys = func(ev Event) ([]string, error) {
		if ev.ID == "bad" {
			return nil, Permanent(errors.New("no user"))
		}
		return []string{"user/" + ev.ID, "shop"}, nil
	}
	b.process(t, "c", "a", "b")
	if got := fmt.Sprint(store.keys); got != "[[shop user/a user/b user/c]]" {
		t.Errorf("locked %s", got)
	}
	b.process(t, "d", "bad", "e")
	if len(b.port.letters) != 1 || b.port.letters[0].ID != "bad" || fmt.Sprint(store.effects) != "[c a b d e]" {
		t.Errorf("letters %v, effects %v", b.port.letters, store.effects)
	}
}

func applyAll(ctx context.Context, tx *memoryTx, events []Event) error {
	for _, ev := range events {
		if err := apply(ctx, tx, ev); err != nil {
			return err
		}
	}
	return nil
}

// A named culprit runs alone; those before it stay together, and so do those
// behind it.
func TestBatchErrorNamesTheCulprit(t *testing.T) {
	t.Parallel()
	var batches []int
	b := setup(nil)
	b.cfg.BatchHandler = func(ctx context.Context, tx *memoryTx, events []Event) error {
		batches = append(batches, len(events))
		for i, ev := range events {
			if strings.HasPrefix(ev.ID, "bad") {
				return fmt.Errorf("batch: %w", &BatchError{Index: i, Err: Permanent(errors.New("no such order"))})
			}
		}
		return applyAll(ctx, tx, events)
	}
	b.store.records["old"] = true // not in the handler's batch: its index is another than the chunk's
	b.process(t, "old", "a", "b", "a", "c", "bad-1", "d", "e", "f", "bad-1")
	if got := fmt.Sprint(b.store.effects); got != "[a b c d e f]" {
		t.Errorf("effects %s", got)
	}
	if len(b.port.letters) != 2 || b.port.letters[0].Err.Error() != "no such order" || ErrorClass(b.port.letters[0].Err) != "*errors.errorString" {
		t.Errorf("letters %+v", b.port.letters)
	}
	if b.port.done != 10 || fmt.Sprint(batches) != "[7 3 1 4 3 1]" {
		t.Errorf("done %d, batches of %v, want the whole, those before, the culprit, and the same for those behind", b.port.done, batches)
	}
}

func TestBatchHandlerWithoutIndexRunsAlone(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(int) error{
		"plain":        func(int) error { return errors.New("boom") },
		"panic":        func(int) error { panic("boom") },
		"index beyond": func(n int) error { return &BatchError{Index: n, Err: errors.New("boom")} },
	} {
		b := setup(nil)
		b.cfg.Retry.Attempts = -1
		b.cfg.BatchHandler = func(ctx context.Context, tx *memoryTx, events []Event) error {
			if slices.ContainsFunc(events, func(ev Event) bool { return ev.ID == "bad" }) {
				return fail(len(events))
			}
			return applyAll(ctx, tx, events)
		}
		b.process(t, "a", "bad", "b")
		if fmt.Sprint(b.store.effects) != "[a b]" || len(b.port.letters) != 1 || b.port.letters[0].ID != "bad" {
			t.Errorf("%s: effects %v, letters %+v", name, b.store.effects, b.port.letters)
		}
	}
}

func TestOneOfTwoHandlers(t *testing.T) {
	t.Parallel()
	b := setup(apply)
	b.cfg.BatchHandler = applyAll
	if _, err := b.cfg.Complete(); err == nil {
		t.Error("both handlers are taken")
	}
}

func TestTransitionedTellsProcessedFromAnomaly(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for _, c := range []struct {
		rows      int64
		processed bool
		err       error
		done      bool
		dup       int
		want      any
	}{
		{rows: 1, done: true},
		{rows: 0, processed: true, dup: 1},
		{rows: 0, want: new(*AnomalyError)},
		{rows: 0, err: down, want: &down},
	} {
		var counted tally
		ctx := context.WithValue(t.Context(), tallyKey{}, &counted)
		done, err := Transitioned(ctx, c.rows, func() (bool, error) { return c.processed, c.err })
		if done != c.done || counted.duplicates != c.dup || (err == nil) != (c.want == nil) {
			t.Errorf("%+v: %t, %v, %d duplicates", c, done, err, counted.duplicates)
		}
		if c.want != nil && !errors.As(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestVersionedIsBounded(t *testing.T) {
	t.Parallel()
	reads := 0
	read := func() (bool, error) { reads++; return false, nil }
	for _, lost := range []int{0, 4, 5, 100} {
		reads = 0
		done, err := Versioned(t.Context(), read, func() (int64, error) {
			if reads <= lost {
				return 0, nil
			}
			return 1, nil
		})
		if want := lost < versionTries; done != want || (err == nil) != want || !want && !errors.Is(err, ErrVersion) {
			t.Errorf("%d lost: %t, %v", lost, done, err)
		}
		if reads > versionTries {
			t.Errorf("read %d times", reads)
		}
	}
}

func TestRetryChoosesByClass(t *testing.T) {
	t.Parallel()
	anomaly, plain := &AnomalyError{"x"}, errors.New("plain")
	for name, c := range map[string]struct {
		policy RetryPolicy
		err    error
		want   bool
	}{
		"all":              {RetryPolicy{}, plain, true},
		"excluded":         {RetryPolicy{Exclude: []string{"oncemore.AnomalyError"}}, fmt.Errorf("order 7: %w", anomaly), false},
		"not excluded":     {RetryPolicy{Exclude: []string{"oncemore.AnomalyError"}}, plain, true},
		"only":             {RetryPolicy{Only: []string{"oncemore.AnomalyError"}}, RetryAfter(anomaly, 1), true},
		"not in only":      {RetryPolicy{Only: []string{"oncemore.AnomalyError"}}, plain, false},
		"exclude wins":     {RetryPolicy{Only: []string{"oncemore.AnomalyError"}, Exclude: []string{"oncemore.AnomalyError"}}, anomaly, false},
		"refused by func":  {RetryPolicy{Retryable: func(err error) bool { return !errors.Is(err, plain) }}, plain, false},
		"accepted by func": {RetryPolicy{Retryable: func(err error) bool { return errors.Is(err, plain) }}, plain, true},
	} {
		b := setup(func(context.Context, *memoryTx, Event) error { return c.err })
		c.policy.Jitter = -1
		c.policy.Initial, c.policy.Max = 1, 1
		b.cfg.Retry = c.policy
		b.process(t, "a")
		attempts := 4
		if !c.want {
			attempts = 1
		}
		if len(b.port.letters) != 1 || b.port.letters[0].Attempt != attempts {
			t.Errorf("%s: %+v, want a letter after %d attempts", name, b.port.letters, attempts)
		}
	}
}
