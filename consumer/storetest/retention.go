package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"oncemore/consumer"
)

// Retention is a store on a real database of its own, whose older records are in
// an archive.
type Retention[T any] struct {
	Fixture Fixture[T]        // its Store looks into the archive
	Plain   consumer.Store[T] // does not, as a consumer that was not restarted yet

	// Age inserts records that were consumed so long ago, by the database's clock.
	Age func(t *testing.T, group string, ago time.Duration, ids ...string)
	// Archived returns the ids of a group in the archive, sorted.
	Archived func(t *testing.T, group string) []string
	// Sweep is one run of a keeper.
	Sweep func(ctx context.Context, o Sweep) (Swept, error)
	// Implausible is the error of a run that would drop too much.
	Implausible error
}

// Sweep says what a keeper keeps. Groups that Keep does not name lose nothing.
type Sweep struct {
	Keep     map[string]time.Duration
	Archive  bool
	Hot      time.Duration
	Chunk    int     // 0: the keeper's own
	MaxShare float64 // 0: the keeper's own
}

// Swept is what a run did.
type Swept struct {
	Deleted, Moved int64
	Dropped        int // months
	Busy           bool
}

type retention[T any] struct {
	suite[T]
	Retention[T]
}

// day is a day's length in UTC.
const day = 24 * time.Hour

// RunRetention runs the suite of keepers and archives; setup is called once for each case.
func RunRetention[T any](t *testing.T, setup func(t *testing.T) Retention[T]) {
	cases := map[string]func(retention[T], *testing.T){
		"deletes in chunks what is not needed":       retention[T].deletes,
		"an implausible share is refused":            retention[T].implausible,
		"an implausible share of months is refused":  retention[T].implausibleMonths,
		"what moved is still a duplicate":            retention[T].moved,
		"who does not look is refused by the guard":  retention[T].guarded,
		"months are dropped when none is needed":     retention[T].months,
		"claims and moves at once keep effects once": retention[T].together,
		"a run that was cut off is resumed":          retention[T].resumed,
		"two keepers do not work at once":            retention[T].oneKeeper,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			run(retention[T]{suite[T]{r.Fixture}, r}, t)
		})
	}
}

// sweep runs a keeper, again while one that was cut off still holds its lock.
func (r retention[T]) sweep(t *testing.T, o Sweep) Swept {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		done, err := r.Sweep(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if !done.Busy {
			return done
		}
		if time.Now().After(deadline) {
			t.Fatal("the keeper's lock is never free")
		}
	}
}

func several(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return ids
}

func (r retention[T]) deletes(t *testing.T) {
	r.Age(t, "g", 100*day, several("old", 45)...)
	r.Age(t, "for-ever", 900*day, "a", "b")
	r.Age(t, "g", 10*day, several("young", 60)...)
	r.Age(t, "g", 100*day, "old, but late")
	o := Sweep{Keep: map[string]time.Duration{"g": 90 * day, "gone": 80 * day}, Chunk: 20}
	if done := r.sweep(t, o); done.Deleted != 45 {
		t.Errorf("deleted %d, want 45", done.Deleted)
	}
	r.wantRecords(t, "for-ever", "a", "b")
	r.wantRecords(t, "g", append([]string{"old, but late"}, several("young", 60)...)...) // behind a chunk of young ones
	if done := r.sweep(t, o); done.Deleted != 0 {
		t.Errorf("deleted %d again", done.Deleted)
	}
}

func (r retention[T]) implausible(t *testing.T) {
	r.Age(t, "g", 100*day, several("old", 60)...)
	r.Age(t, "g", day, several("young", 40)...)
	o := Sweep{Keep: map[string]time.Duration{"g": 90 * day}}
	if _, err := r.Sweep(t.Context(), o); !errors.Is(err, r.Implausible) {
		t.Errorf("60 of 100: %v", err)
	}
	if got := len(r.Records(t, "g")); got != 100 {
		t.Errorf("%d records are left of 100", got)
	}
	o.MaxShare = 0.6
	if done := r.sweep(t, o); done.Deleted != 60 {
		t.Errorf("with a larger share: deleted %d", done.Deleted)
	}
}

func (r retention[T]) implausibleMonths(t *testing.T) {
	r.Age(t, "g", 200*day, several("old", 60)...)
	r.Age(t, "g", day, several("young", 40)...)
	o := Sweep{Keep: map[string]time.Duration{"g": 90 * day}, Archive: true, Hot: 30 * day}
	done, err := r.Sweep(t.Context(), o)
	if !errors.Is(err, r.Implausible) || done.Moved != 60 || done.Dropped != 0 {
		t.Errorf("60 of 100: %+v, %v", done, err)
	}
	o.MaxShare = 0.6
	if done := r.sweep(t, o); done.Dropped == 0 || len(r.Archived(t, "g")) != 0 {
		t.Errorf("with a larger share: %+v", done)
	}
}

// moved replays everything from the first offset: only what is new is fresh, and
// nothing of the rest stays behind in the table.
func (r retention[T]) moved(t *testing.T) {
	old := several("old", 55)
	r.Age(t, "g", 100*day, old...)
	r.Age(t, "other", 100*day, "old-00000")
	r.Age(t, "g", 10*day, "young")
	o := Sweep{Archive: true, Hot: 30 * day, Chunk: 20}
	if done := r.sweep(t, o); done.Moved != 56 {
		t.Errorf("moved %d, want 56", done.Moved)
	}
	if got := r.Archived(t, "g"); !slices.Equal(got, old) {
		t.Errorf("%d in the archive: %v", len(got), got)
	}
	c := r.claim(t, "g", append(slices.Clone(old), "young", "new", "OLD-00000")...)
	for _, id := range append(slices.Clone(old), "young") {
		if c.Fresh(id) {
			t.Errorf("%s is fresh", id)
		}
	}
	if !c.Fresh("new") || !c.Fresh("OLD-00000") {
		t.Error("a new event is taken for an old one")
	}
	r.add(t, c, "k")
	commit(t, c)
	r.wantRecords(t, "g", "OLD-00000", "new", "young")
	if done := r.sweep(t, o); done.Moved != 0 {
		t.Errorf("moved %d again", done.Moved)
	}
	again := r.claim(t, "third", "old-00000")
	if !again.Fresh("old-00000") {
		t.Error("another group's record stops this one")
	}
	again.Rollback(t.Context())
}

func (r retention[T]) guarded(t *testing.T) {
	r.Age(t, "g", 100*day, "a", "b")
	r.sweep(t, Sweep{Archive: true, Hot: 30 * day})
	for _, ids := range [][]string{{"a"}, {"b", "new"}} {
		c, err := r.Plain.Claim(t.Context(), "g", ids)
		if err != nil { // nothing of it happens: it waits until it is restarted
			if outcome := consumer.OutcomeOf(err); outcome != consumer.OutcomeUnavailable {
				t.Errorf("claim %v: outcome %d, %v", ids, outcome, err)
			}
			continue
		}
		if c.Fresh(ids[0]) {
			t.Errorf("%s is fresh", ids[0])
		}
		c.Rollback(t.Context())
	}
	c, err := r.Plain.Claim(t.Context(), "g", []string{"c", "d"})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, c)
	r.wantRecords(t, "g", "c", "d")
}

// months keeps those in which a group needs a record still, or nobody knows.
func (r retention[T]) months(t *testing.T) {
	r.Age(t, "g", 400*day, several("a", 3)...)
	r.Age(t, "g", 300*day, several("b", 3)...)
	r.Age(t, "long", 300*day, "needed")
	r.Age(t, "g", 200*day, several("c", 3)...)
	r.Age(t, "unknown", 200*day, "needed")
	r.Age(t, "g", 100*day, several("d", 3)...)
	r.Age(t, "g", day, several("young", 20)...)
	o := Sweep{Keep: map[string]time.Duration{"g": 90 * day, "long": 365 * day}, Archive: true, Hot: 30 * day}
	r.sweep(t, o)
	want := slices.Concat(several("b", 3), several("c", 3))
	got := slices.DeleteFunc(r.Archived(t, "g"), func(id string) bool { return id[0] == 'd' }) // its month may not have ended by the cutoff
	if !slices.Equal(got, want) {
		t.Errorf("left of g: %v, want %v", got, want)
	}
	if len(r.Archived(t, "long")) != 1 || len(r.Archived(t, "unknown")) != 1 {
		t.Error("a needed record was dropped")
	}
	if c := r.claim(t, "g", "a-00000", "b-00000"); !c.Fresh("a-00000") || c.Fresh("b-00000") {
		t.Error("the dropped one is a duplicate, or the kept one fresh")
	}
}

// together claims old ids again and again while they move.
func (r retention[T]) together(t *testing.T) {
	ids := several("e", 120)
	r.Age(t, "g", 100*day, ids...)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := w * 7; !stop.Load(); i += 11 {
				some := []string{ids[i%120], ids[(i+1)%120], ids[(i+60)%120], fmt.Sprintf("new-%d-%d", w, i)}
				if err := r.once(t.Context(), "g", some); err != nil && consumer.OutcomeOf(err) != consumer.OutcomeContention {
					t.Errorf("claim: %v", err)
					return
				}
			}
		})
	}
	moved := int64(0)
	for deadline := time.Now().Add(time.Minute); moved < 120 && time.Now().Before(deadline); {
		done, err := r.Sweep(t.Context(), Sweep{Archive: true, Hot: 30 * day, Chunk: 5})
		moved += done.Moved
		if err != nil {
			t.Logf("a run that met claims: %v", err)
		}
	}
	stop.Store(true)
	wg.Wait()
	if moved != 120 {
		t.Errorf("moved %d of 120", moved)
	}
	for _, id := range ids {
		if got := r.Read(t, id); got != 0 {
			t.Errorf("%s took effect again", id)
		}
	}
	if got := r.Archived(t, "g"); !slices.Equal(got, ids) {
		t.Errorf("%d in the archive", len(got))
	}
}

// resumed ends a run in the middle; nothing is lost or doubled by that.
func (r retention[T]) resumed(t *testing.T) {
	ids := several("e", 200)
	r.Age(t, "g", 100*day, ids...)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := r.Sweep(ctx, Sweep{Archive: true, Hot: 30 * day, Chunk: 1})
		cancel()
		if err == nil {
			break // it was faster
		}
		both := slices.Concat(r.Archived(t, "g"), r.Records(t, "g"))
		slices.Sort(both)
		if !slices.Equal(both, ids) {
			t.Fatalf("%d records in both tables, want 200", len(both))
		}
	}
	r.sweep(t, Sweep{Archive: true, Hot: 30 * day})
	if got := r.Archived(t, "g"); !slices.Equal(got, ids) {
		t.Errorf("%d in the archive in the end", len(got))
	}
}

func (r retention[T]) oneKeeper(t *testing.T) {
	ids := several("e", 300)
	r.Age(t, "g", 100*day, ids...)
	var wg sync.WaitGroup
	var moved atomic.Int64
	for range 4 {
		wg.Go(func() {
			done, err := r.Sweep(t.Context(), Sweep{Archive: true, Hot: 30 * day, Chunk: 10})
			if err != nil {
				t.Error(err)
			}
			moved.Add(done.Moved)
		})
	}
	wg.Wait()
	if moved.Load() != 300 || len(r.Archived(t, "g")) != 300 {
		t.Errorf("moved %d, %d in the archive", moved.Load(), len(r.Archived(t, "g")))
	}
}
