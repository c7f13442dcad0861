// Package storetest is the conformance suite for stores of consume records.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"oncemore/consumer"
)

// Fixture is a store on a real database of its own, with a business table of
// counters beside the consume records.
type Fixture[T any] struct {
	Store consumer.Store[T] // its lock time-out is at most a second

	// Add adds n to the counter named key, inside tx.
	Add func(ctx context.Context, tx T, key string, n int) error
	// Fail runs a statement that the database refuses, such as a division by zero.
	Fail func(ctx context.Context, tx T) error
	// Read returns the counter; 0 if it is not there.
	Read func(t *testing.T, key string) int
	// Records returns the ids recorded for a group, sorted.
	Records func(t *testing.T, group string) []string
	// Cut ends all connections of the store from the outside.
	Cut func(t *testing.T)
	// Unreachable is a store on a database that cannot be reached.
	Unreachable consumer.Store[T]
}

type suite[T any] struct{ Fixture[T] }

// Run runs the suite; setup is called once for each case.
func Run[T any](t *testing.T, setup func(t *testing.T) Fixture[T]) {
	cases := map[string]func(suite[T], *testing.T){
		"record and effect commit together":       suite[T].commitTogether,
		"rollback leaves neither":                 suite[T].rollbackLeavesNeither,
		"groups are independent":                  suite[T].groupsIndependent,
		"ids compare by bytes":                    suite[T].idsByBytes,
		"a space at the end makes another id":     suite[T].spaceAtEnd,
		"reversed ids do not deadlock":            suite[T].reversedIDs,
		"concurrent claims have one winner":       suite[T].oneWinner,
		"a duplicate waits for the claim":         suite[T].duplicateWaits,
		"a long wait is contention":               suite[T].longWait,
		"a deadlock is contention":                suite[T].deadlock,
		"an id too long is permanent":             suite[T].idTooLong,
		"a swallowed error does not commit":       suite[T].swallowedError,
		"a failed statement is the handler's":     suite[T].failedStatement,
		"a lost connection is unavailable":        suite[T].lostConnection,
		"an unreachable database is unavailable":  suite[T].unreachable,
		"an ended context rolls back":             suite[T].endedContext,
		"check wants a group that fits":           suite[T].check,
		"a rollback after a panic frees the row":  suite[T].panicFreesRow,
		"claims of many ids keep what is claimed": suite[T].manyIDs,
		"without records every id is fresh":       suite[T].unrecorded,
		"locked keys exclude each other":          suite[T].keysExclude,
		"reversed keys do not deadlock":           suite[T].reversedKeys,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(suite[T]{setup(t)}, t)
		})
	}
}

func (s suite[T]) claim(t *testing.T, group string, ids ...string) consumer.Claim[T] {
	t.Helper()
	c, err := s.Store.Claim(t.Context(), group, ids)
	if err != nil {
		t.Fatalf("claim %v: %v", ids, err)
	}
	t.Cleanup(func() { c.Rollback(context.Background()) })
	return c
}

func (s suite[T]) add(t *testing.T, c consumer.Claim[T], key string) {
	t.Helper()
	if err := s.Add(t.Context(), c.Tx(), key, 1); err != nil {
		t.Fatalf("add to %s: %v", key, err)
	}
}

func commit[T any](t *testing.T, c consumer.Claim[T]) {
	t.Helper()
	if err := c.Commit(t.Context()); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func wantOutcome(t *testing.T, err error, want consumer.Outcome) {
	t.Helper()
	if err == nil || consumer.OutcomeOf(err) != want {
		t.Errorf("outcome %d of error %v, want %d", consumer.OutcomeOf(err), err, want)
	}
}

func (s suite[T]) wantRecords(t *testing.T, group string, ids ...string) {
	t.Helper()
	if got := s.Records(t, group); !slices.Equal(got, ids) {
		t.Errorf("records of %s: %v, want %v", group, got, ids)
	}
}

func (s suite[T]) commitTogether(t *testing.T) {
	c := s.claim(t, "g", "b", "a")
	if !c.Fresh("a") || !c.Fresh("b") || c.Fresh("c") {
		t.Error("a and b should be fresh, c was not asked for")
	}
	s.add(t, c, "k")
	commit(t, c)
	s.wantRecords(t, "g", "a", "b")
	again := s.claim(t, "g", "b", "c")
	if again.Fresh("b") || !again.Fresh("c") {
		t.Error("b is a duplicate, c is fresh")
	}
	if got := s.Read(t, "k"); got != 1 {
		t.Errorf("effect %d, want 1", got)
	}
}

func (s suite[T]) rollbackLeavesNeither(t *testing.T) {
	c := s.claim(t, "g", "a")
	s.add(t, c, "k")
	c.Rollback(t.Context())
	c.Rollback(t.Context()) // harmless
	s.wantRecords(t, "g")
	if got := s.Read(t, "k"); got != 0 {
		t.Errorf("effect %d after a rollback", got)
	}
	if again := s.claim(t, "g", "a"); !again.Fresh("a") {
		t.Error("a is not fresh after a rollback")
	}
}

func (s suite[T]) groupsIndependent(t *testing.T) {
	commit(t, s.claim(t, "points", "a"))
	if c := s.claim(t, "stock", "a"); !c.Fresh("a") {
		t.Error("one group's record stops another group")
	}
}

func (s suite[T]) idsByBytes(t *testing.T) {
	ids := []string{"EVT-1", "evt-1", "évt-1", "e\u0301vt-1", "支付-1", "evt-1\u00a0x", "😀-1", "😁-1", `it's "1"\`}
	commit(t, s.claim(t, "g", ids...))
	c := s.claim(t, "g", append(slices.Clone(ids), "Evt-1")...)
	for _, id := range ids {
		if c.Fresh(id) {
			t.Errorf("%q was recorded and is fresh", id)
		}
	}
	if !c.Fresh("Evt-1") {
		t.Error("Evt-1 is taken for evt-1")
	}
}

// spaceAtEnd claims ids that differ by a space at their end. A store that cannot
// tell them apart says so: none may be taken for consumed.
func (s suite[T]) spaceAtEnd(t *testing.T) {
	commit(t, s.claim(t, "g", "a", "b "))
	for _, id := range []string{"a ", "b", "a  "} {
		c, err := s.Store.Claim(t.Context(), "g", []string{id})
		if err != nil {
			wantOutcome(t, err, consumer.OutcomePermanent)
			continue
		}
		if !c.Fresh(id) {
			t.Errorf("%q is taken for another id", id)
		}
		c.Rollback(t.Context())
	}
	s.wantRecords(t, "g", "a", "b ")
}

// reversedIDs claims in opposite orders at the same time, again and again: a
// shared order makes one wait for the other.
func (s suite[T]) reversedIDs(t *testing.T) {
	const rounds, events = 25, 20
	for round := range rounds {
		ids := make([]string, events)
		for i := range ids {
			ids[i] = fmt.Sprintf("r%02d-%02d", round, i)
		}
		reversed := slices.Clone(ids)
		slices.Reverse(reversed)
		var wg sync.WaitGroup
		for _, order := range [][]string{ids, reversed} {
			wg.Go(func() {
				if err := s.once(t.Context(), "g", order); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		if got := s.Read(t, ids[0]); got != 1 {
			t.Fatalf("effect of %s happened %d times", ids[0], got)
		}
	}
}

// oneWinner claims the same ids from many transactions, each in another order.
func (s suite[T]) oneWinner(t *testing.T) {
	const members, events = 8, 40
	var wg sync.WaitGroup
	for m := range members {
		wg.Go(func() {
			ids := make([]string, events)
			for i := range ids {
				ids[i] = fmt.Sprintf("e%02d", (i*7+m*13)%events)
			}
			for attempt := 0; attempt < 200; attempt++ {
				if err := s.once(t.Context(), "g", ids); err == nil {
					return
				} else if consumer.OutcomeOf(err) != consumer.OutcomeContention {
					t.Errorf("member %d: %v", m, err)
					return
				}
			}
			t.Errorf("member %d never got through", m)
		})
	}
	wg.Wait()
	for i := range events {
		if got := s.Read(t, fmt.Sprintf("e%02d", i)); got != 1 {
			t.Errorf("effect of e%02d happened %d times", i, got)
		}
	}
}

// once claims ids and counts each fresh one.
func (s suite[T]) once(ctx context.Context, group string, ids []string) error {
	c, err := s.Store.Claim(ctx, group, ids)
	if err != nil {
		return err
	}
	defer c.Rollback(ctx)
	for _, id := range ids {
		if c.Fresh(id) {
			if err := s.Add(ctx, c.Tx(), id, 1); err != nil {
				return c.Blame(err)
			}
		}
	}
	return c.Commit(ctx)
}

type claimed[T any] struct {
	claim consumer.Claim[T]
	err   error
}

func (s suite[T]) claimInBackground(t *testing.T, ids ...string) <-chan claimed[T] {
	result := make(chan claimed[T], 1)
	go func() {
		c, err := s.Store.Claim(t.Context(), "g", ids)
		result <- claimed[T]{c, err}
	}()
	return result
}

func (s suite[T]) duplicateWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(consumer.Claim[T])
		want bool
	}{
		{"then it commits", func(c consumer.Claim[T]) { commit(t, c) }, false},
		{"then it rolls back", func(c consumer.Claim[T]) { c.Rollback(t.Context()) }, true},
	} {
		id := "id " + c.name
		first := s.claim(t, "g", id)
		second := s.claimInBackground(t, id)
		select {
		case r := <-second:
			t.Fatalf("%s: the second claim did not wait: %v", c.name, r.err)
		case <-time.After(100 * time.Millisecond): // well under the lock time-out
		}
		c.end(first)
		r := <-second
		if consumer.OutcomeOf(r.err) == consumer.OutcomeContention { // on a slow machine the wait was too long
			r = <-s.claimInBackground(t, id)
		}
		if r.err != nil {
			t.Fatalf("%s: second claim: %v", c.name, r.err)
		}
		if r.claim.Fresh(id) != c.want {
			t.Errorf("%s: the second claim is fresh: %t", c.name, !c.want)
		}
		r.claim.Rollback(t.Context())
	}
}

func (s suite[T]) longWait(t *testing.T) {
	s.claim(t, "g", "a")
	_, err := s.Store.Claim(t.Context(), "g", []string{"a"})
	wantOutcome(t, err, consumer.OutcomeContention)
}

// deadlock updates two counters in opposite orders. Whatever the handler makes
// of the error, it stays contention.
func (s suite[T]) deadlock(t *testing.T) {
	seed := s.claim(t, "g", "seed")
	s.add(t, seed, "x")
	s.add(t, seed, "y")
	commit(t, seed)
	a, b := s.claim(t, "g", "a"), s.claim(t, "g", "b")
	s.add(t, a, "x")
	s.add(t, b, "y")
	other := make(chan error, 1)
	go func() {
		err := s.Add(t.Context(), a.Tx(), "y", 1)
		if err != nil {
			err = a.Blame(consumer.Permanent(err))
			a.Rollback(t.Context())
		}
		other <- err
	}()
	mine := s.Add(t.Context(), b.Tx(), "x", 1)
	if mine != nil {
		mine = b.Blame(consumer.Permanent(mine))
		b.Rollback(t.Context())
	}
	theirs := <-other
	if mine == nil && theirs == nil {
		t.Fatal("opposite orders did not collide")
	}
	for _, err := range []error{mine, theirs} {
		if err != nil {
			wantOutcome(t, err, consumer.OutcomeContention)
		}
	}
}

func (s suite[T]) idTooLong(t *testing.T) {
	_, err := s.Store.Claim(t.Context(), "g", []string{strings.Repeat("x", 300)})
	wantOutcome(t, err, consumer.OutcomePermanent)
	s.wantRecords(t, "g")
}

func (s suite[T]) swallowedError(t *testing.T) {
	c := s.claim(t, "g", "a")
	s.add(t, c, "k")
	if s.Fail(t.Context(), c.Tx()) == nil {
		t.Fatal("the failing statement did not fail")
	}
	err := c.Commit(t.Context())
	wantOutcome(t, err, consumer.OutcomeRetry)
	c.Rollback(t.Context())
	s.wantRecords(t, "g")
	if got := s.Read(t, "k"); got != 0 {
		t.Errorf("effect %d of an aborted transaction", got)
	}
}

func (s suite[T]) failedStatement(t *testing.T) {
	c := s.claim(t, "g", "a")
	wantOutcome(t, c.Blame(s.Fail(t.Context(), c.Tx())), consumer.OutcomeRetry)
	plain := errors.New("not the database")
	if got := c.Blame(plain); !errors.Is(got, plain) || consumer.OutcomeOf(got) != consumer.OutcomeRetry {
		t.Errorf("a handler's own error became %v", got)
	}
}

func (s suite[T]) lostConnection(t *testing.T) {
	c := s.claim(t, "g", "a")
	s.Cut(t)
	wantOutcome(t, c.Blame(s.Add(t.Context(), c.Tx(), "k", 1)), consumer.OutcomeUnavailable)
	c.Rollback(t.Context())

	c = s.claimAfterCut(t, "b")
	s.add(t, c, "k")
	s.Cut(t)
	wantOutcome(t, c.Commit(t.Context()), consumer.OutcomeUnavailable)
	c.Rollback(t.Context())
	s.wantRecords(t, "g")
	if got := s.Read(t, "k"); got != 0 {
		t.Errorf("effect %d without a record", got)
	}
}

// claimAfterCut claims once the pool has noticed that its connections are gone.
func (s suite[T]) claimAfterCut(t *testing.T, id string) consumer.Claim[T] {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		c, err := s.Store.Claim(t.Context(), "g", []string{id})
		if err == nil {
			return c
		}
		wantOutcome(t, err, consumer.OutcomeUnavailable)
		if time.Now().After(deadline) {
			t.Fatalf("store does not recover: %v", err)
		}
	}
}

func (s suite[T]) unreachable(t *testing.T) {
	_, err := s.Unreachable.Claim(t.Context(), "g", []string{"a"})
	wantOutcome(t, err, consumer.OutcomeUnavailable)
	wantOutcome(t, s.Unreachable.Check(t.Context(), "g"), consumer.OutcomeUnavailable)
}

func (s suite[T]) endedContext(t *testing.T) {
	c := s.claim(t, "g", "a")
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Add(ctx, c.Tx(), "k", 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if c.Commit(ctx) == nil {
		t.Error("committed under an ended context")
	}
	c.Rollback(ctx)
	s.wantRecords(t, "g")
	if again := s.claim(t, "g", "a"); !again.Fresh("a") {
		t.Error("the rollback did not happen")
	}
}

func (s suite[T]) check(t *testing.T) {
	if err := s.Store.Check(t.Context(), "g"); err != nil {
		t.Errorf("check of a good table: %v", err)
	}
	wantOutcome(t, s.Store.Check(t.Context(), strings.Repeat("g", 300)), consumer.OutcomeUnavailable)
}

func (s suite[T]) panicFreesRow(t *testing.T) {
	func() {
		c := s.claim(t, "g", "a")
		defer func() { recover() }()
		defer c.Rollback(t.Context())
		s.add(t, c, "k")
		panic("handler")
	}()
	if c := s.claim(t, "g", "a"); !c.Fresh("a") {
		t.Error("a is still claimed after a panic")
	}
}

func (s suite[T]) manyIDs(t *testing.T) {
	ids := make([]string, 5000)
	for i := range ids {
		ids[i] = fmt.Sprintf("e%04d", i)
	}
	commit(t, s.claim(t, "g", ids[:2500]...))
	c := s.claim(t, "g", ids...)
	for i, id := range ids {
		if c.Fresh(id) != (i >= 2500) {
			t.Fatalf("%s: fresh %t", id, c.Fresh(id))
		}
	}
	commit(t, c)
	s.wantRecords(t, "g", ids...)
}

func (s suite[T]) unrecorded(t *testing.T) {
	able, ok := s.Store.(consumer.Unrecorder[T])
	if !ok {
		t.Skip("the store cannot do without consume records")
	}
	s.Store = able.Unrecorded()
	if err := s.Store.Check(t.Context(), "g"); err != nil {
		t.Errorf("check: %v", err)
	}
	for range 2 {
		c := s.claim(t, "g", "a", "b")
		if !c.Fresh("a") || !c.Fresh("b") {
			t.Error("not fresh without records")
		}
		s.add(t, c, "k")
		commit(t, c)
	}
	c := s.claim(t, "g", "a")
	s.add(t, c, "k")
	c.Rollback(t.Context())
	s.wantRecords(t, "g")
	if got := s.Read(t, "k"); got != 2 {
		t.Errorf("effect %d of two commits and a rollback", got)
	}
}

func (s suite[T]) keyStore(t *testing.T) consumer.KeyStore[T] {
	t.Helper()
	store, ok := s.Store.(consumer.KeyStore[T])
	if !ok {
		t.Skip("the store cannot lock keys")
	}
	return store
}

// keysExclude holds a key that no row has: another claim with it waits, then is
// contention; one with other keys does not wait.
func (s suite[T]) keysExclude(t *testing.T) {
	store := s.keyStore(t)
	first, err := store.ClaimKeys(t.Context(), "g", []string{"a"}, []string{"user/1", "user/2"})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Rollback(t.Context())
	other, err := store.ClaimKeys(t.Context(), "g", []string{"b"}, []string{"user/3"})
	if err != nil {
		t.Fatalf("another key: %v", err)
	}
	other.Rollback(t.Context())
	_, err = store.ClaimKeys(t.Context(), "g", []string{"b"}, []string{"user/2", "user/3"})
	wantOutcome(t, err, consumer.OutcomeContention)
	first.Rollback(t.Context())
	again, err := store.ClaimKeys(t.Context(), "g", []string{"b"}, []string{"user/2", "user/3"})
	if err != nil {
		t.Fatalf("a key that was given back: %v", err)
	}
	s.add(t, again, "k")
	commit(t, again)
}

func (s suite[T]) reversedKeys(t *testing.T) {
	store := s.keyStore(t)
	keys := make([]string, 30)
	for i := range keys {
		keys[i] = fmt.Sprintf("user/%d", i)
	}
	var wg sync.WaitGroup
	for m := range 4 {
		own := slices.Clone(keys)
		if m%2 == 1 {
			slices.Reverse(own)
		}
		wg.Go(func() {
			for round := range 20 {
				c, err := store.ClaimKeys(t.Context(), "g", []string{fmt.Sprintf("e%d-%d", m, round)}, own)
				if err != nil {
					t.Errorf("member %d, round %d: %v", m, round, err)
					return
				}
				c.Rollback(t.Context())
			}
		})
	}
	wg.Wait()
}
