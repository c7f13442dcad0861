package consumertest

import (
	"context"
	"errors"
	"sync"

	"oncemore/consumer"
)

// Point is where a process can die.
type Point int

// The points between a delivery and its acknowledgement.
const (
	// BeforeCommit is after the handler: the transaction is lost with the process,
	// and the delivery comes again.
	BeforeCommit Point = iota + 1
	// AfterCommit is before the acknowledgement: the delivery comes again and is
	// a duplicate.
	AfterCommit
	// DuringAck is between the acknowledgements of a batch: its first half is
	// acknowledged, the other half comes again. Of a single delivery it is lost.
	DuringAck
)

// ErrInjected is the failure that FailBeforeCommit brings about.
var ErrInjected = errors.New("consumertest: injected failure")

var (
	errCrashed = errors.New("consumertest: the process has died here")
	errLost    = errors.New("consumertest: the answer to COMMIT was lost")
	errClaimed = errors.New("consumertest: another transaction has claimed the event")
)

// faults are those to come.
type faults struct {
	mu         sync.Mutex
	crashes    map[Point]int
	fail, lose int
	die        context.CancelFunc // ends the process's life
	dead       bool               // it has ended: nothing is committed or acknowledged any more
}

// plan has the process die at a point, that often.
func (f *faults) plan(at Point, times int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashes == nil {
		f.crashes = map[Point]int{}
	}
	f.crashes[at] = times
}

// live begins a life that die ends.
func (f *faults) live(die context.CancelFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.die, f.dead = die, false
}

// crashed lets the process die here, if that is planned and it has not died
// elsewhere meanwhile. It reports whether it is dead.
func (f *faults) crashed(at Point) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.dead && f.crashes[at] > 0 {
		f.crashes[at]--
		f.dead = true
		f.die()
	}
	return f.dead
}

// acknowledged is how many of n deliveries the broker hears of.
func (f *faults) acknowledged(n int) int {
	f.mu.Lock()
	dead := f.dead
	f.mu.Unlock()
	switch {
	case dead:
		return 0
	case f.crashed(DuringAck):
		return n / 2
	}
	return n
}

func (f *faults) failures(fail, lose int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.lose = fail, lose
}

func (f *faults) use(n *int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *n == 0 {
		return false
	}
	*n--
	return true
}

// faultyStore is a store whose commits fail, or are the last thing that the
// process does.
type faultyStore[T any] struct {
	consumer.Store[T]
	faults *faults
}

// Claim is the store's.
func (s faultyStore[T]) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[T], error) {
	claim, err := s.Store.Claim(ctx, group, ids)
	if err != nil {
		return nil, err
	}
	return faultyClaim[T]{claim, s.faults}, nil
}

// ClaimKeys locks the keys as the store does.
func (s faultyStore[T]) ClaimKeys(ctx context.Context, group string, ids, keys []string) (consumer.Claim[T], error) {
	store, ok := s.Store.(consumer.KeyStore[T])
	if !ok {
		return nil, errors.New("consumertest: the store cannot lock keys")
	}
	claim, err := store.ClaimKeys(ctx, group, ids, keys)
	if err != nil {
		return nil, err
	}
	return faultyClaim[T]{claim, s.faults}, nil
}

type faultyClaim[T any] struct {
	consumer.Claim[T]
	faults *faults
}

// Commit commits, unless something else is planned.
func (c faultyClaim[T]) Commit(ctx context.Context) error {
	if c.faults.crashed(BeforeCommit) {
		return errCrashed
	}
	if c.faults.use(&c.faults.fail) {
		return ErrInjected // Rollback follows
	}
	if err := c.Claim.Commit(ctx); err != nil {
		return err
	}
	if c.faults.crashed(AfterCommit) {
		return errCrashed
	}
	if c.faults.use(&c.faults.lose) {
		return consumer.Unavailable(errLost)
	}
	return nil
}
