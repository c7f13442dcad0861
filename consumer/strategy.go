package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Strategy says what recognises an event that has taken effect already. All but
// ByRecord rest on the business tables: the transaction holds no consume
// record, the handler is called for every delivery, and it reads the row counts
// of what it writes (Inserted, Transitioned, Versioned) or calls Duplicate.
type Strategy string

const (
	// ByRecord inserts (event_id, consumer_group) into mq_consume_record in
	// the handler's own transaction. It suffices for every effect in that one
	// database, whatever its statements are. It does not suffice for effects
	// elsewhere (HTTP, Redis, a second database) nor for events older than the
	// records that are kept.
	ByRecord Strategy = "consume_record"

	// ByUniqueKey inserts a business row whose own unique constraint, over one or
	// several columns, tells the event: notification_log (event_id, channel). It
	// suffices when that row is the effect, or when all other writes depend on it
	// having been inserted. It does not when the row may be deleted, when the key
	// does not tell two events apart, or when the statement can write zero rows
	// for another reason: that event would be acknowledged without effect. Name
	// the constraint's columns in ON CONFLICT (…), or every constraint of the
	// table counts as a duplicate.
	ByUniqueKey Strategy = "unique_key"

	// ByState moves a row from one state to the next: UPDATE … WHERE status =
	// 'PENDING'. It suffices when the event means that one transition and no
	// state is entered twice. Zero rows alone say nothing: a verify query tells an
	// event that was processed (acknowledged) from an anomaly, such as a row that
	// is missing or in a third state (an error, at last a dead letter). It does
	// not suffice for "add 100": that has no state to be in.
	ByState Strategy = "state"

	// ByLock takes Config.Keys for the whole transaction, sorted, before any handler
	// runs; then a handler may look first and write afterwards. It suffices when
	// the rows themselves tell that the event was processed and when everyone who
	// writes them takes the same keys, or locks the rows as well. It covers rows
	// that do not exist yet. A wait is bounded by the store's lock time-out and
	// then is contention. All events of a key are handled one after the other.
	ByLock Strategy = "lock"

	// ByVersion reads a row with its version and updates it only if the version is
	// still the same; else it reads again, a few times, then fails. It suffices
	// against concurrent writers that do the same. A version alone recognises no
	// duplicate: what is read has to tell that the event was processed, or "add
	// 100" happens twice. Rows with many writers are better locked.
	ByVersion Strategy = "version"
)

// Records reports whether the strategy keeps consume records. Where it does not,
// the console knows of consumed events only by what groups.<g>.evidence declares.
func (s Strategy) Records() bool { return s == ByRecord || s == "" }

func (s Strategy) known() bool {
	return slices.Contains([]Strategy{"", ByRecord, ByUniqueKey, ByState, ByLock, ByVersion}, s)
}

// Unrecorder is a Store that can do without consume records.
type Unrecorder[T any] interface {
	// Unrecorded is the same store, whose claims insert nothing: every id is fresh.
	Unrecorded() Store[T]
}

// KeyStore is a Store that can lock keys.
type KeyStore[T any] interface {
	Store[T]

	// ClaimKeys is Claim, with the distinct keys locked before until the
	// transaction ends, in one order that all callers share, whether or not
	// rows of theirs exist. A wait beyond the lock time-out is Contention.
	ClaimKeys(ctx context.Context, group string, ids, keys []string) (Claim[T], error)
}

// useStrategy takes the store that the strategy needs.
func (c Config[T]) useStrategy() (Config[T], error) {
	if !c.Strategy.known() {
		return c, fmt.Errorf("consumer %s: there is no strategy %q", c.Group, c.Strategy)
	}
	if c.Strategy == ByLock && c.Keys == nil {
		return c, fmt.Errorf("consumer %s: strategy lock needs Keys", c.Group)
	}
	if c.Strategy.Records() {
		c.Strategy = ByRecord
	} else {
		store, ok := c.Store.(Unrecorder[T])
		if !ok {
			return c, fmt.Errorf("consumer %s: strategy %s: the store cannot do without consume records", c.Group, c.Strategy)
		}
		c.Store = store.Unrecorded()
	}
	if _, ok := c.Store.(KeyStore[T]); c.Keys != nil && !ok {
		return c, fmt.Errorf("consumer %s: the store cannot lock keys", c.Group)
	}
	return c, nil
}

// claim begins the transaction of the events, with their keys locked.
func (w *Worker[T]) claim(ctx context.Context, events []Event) (Claim[T], error) {
	if w.cfg.Keys == nil {
		return w.cfg.Store.Claim(ctx, w.cfg.Group, ids(events))
	}
	var keys []string
	for i, ev := range events {
		own, err := w.cfg.Keys(ev)
		if err != nil {
			return nil, &BatchError{Index: i, Err: fmt.Errorf("lock keys: %w", err)}
		}
		keys = append(keys, own...)
	}
	slices.Sort(keys)
	return w.cfg.Store.(KeyStore[T]).ClaimKeys(ctx, w.cfg.Group, ids(events), slices.Compact(keys))
}

// tally counts the duplicates that handlers of one transaction have reported.
type tally struct{ duplicates int }

type tallyKey struct{}

// Duplicate says that the event had taken effect before, so that nothing was
// done for it now: it is acknowledged, and counted as a duplicate. Call it once
// per event, from the handler or from a callback of its queued statements, with
// the handler's context.
func Duplicate(ctx context.Context) {
	if t, ok := ctx.Value(tallyKey{}).(*tally); ok {
		t.duplicates++
	}
}

// Inserted reads the row count of an insert that does nothing for a key that is
// there (strategy ByUniqueKey). It returns false for a duplicate: then the handler
// has nothing more to do for the event.
func Inserted(ctx context.Context, rows int64) bool {
	if rows == 0 {
		Duplicate(ctx)
	}
	return rows > 0
}

// AnomalyError says that a conditional update found no row in the state that it
// expected, and that the event was not processed either. It is retried by the
// policy, as an earlier event may still come, and then a dead letter.
type AnomalyError struct{ Reason string }

// Error says what was found.
func (e *AnomalyError) Error() string { return "anomaly: " + e.Reason }

// Class names the error in a dead letter.
func (e *AnomalyError) Class() string { return "oncemore.AnomalyError" }

// Transitioned reads the row count of a conditional update (strategy ByState).
// For zero rows it asks verify whether the event was processed: true is a
// duplicate, false an *AnomalyError. It returns whether the update took effect.
func Transitioned(ctx context.Context, rows int64, verify func() (processed bool, err error)) (bool, error) {
	if rows > 0 {
		return true, nil
	}
	processed, err := verify()
	switch {
	case err != nil:
		return false, fmt.Errorf("verify: %w", err)
	case processed:
		Duplicate(ctx)
		return false, nil
	}
	return false, &AnomalyError{"the update found no row in the expected state, and the event was not processed"}
}

// versionTries is how often Versioned reads and writes.
const versionTries = 5

// ErrVersion is returned by Versioned when others kept changing the row, or when
// the update matches none.
var ErrVersion = errors.New("consumer: the row had another version at every attempt")

// Versioned reads and writes a row until nobody has changed it in between, five
// times at most (strategy ByVersion), then it returns ErrVersion. Read returns
// true if the row tells that the event was processed: that is a duplicate. Write
// updates the row if it still has the version read, and returns the row count.
// It returns whether the update took effect.
func Versioned(ctx context.Context, read func() (processed bool, err error), write func() (rows int64, err error)) (bool, error) {
	for range versionTries {
		processed, err := read()
		if err != nil {
			return false, fmt.Errorf("read version: %w", err)
		}
		if processed {
			Duplicate(ctx)
			return false, nil
		}
		if rows, err := write(); err != nil || rows > 0 {
			return err == nil, err
		}
	}
	return false, ErrVersion
}
