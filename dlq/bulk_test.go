package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

var operator = access.Actor{User: "ada", Role: access.Operator, Via: "session", From: "192.0.2.7", Reason: "known bug, fixed in 4.2"}

func newBulks(t testing.TB, s *seed, chunk int) *Bulks {
	t.Helper()
	b, err := NewBulks(s.pool, BulkOptions{Chunk: chunk})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// finish does the steps that River would.
func (s *seed) finish(b *Bulks, id int64) Bulk {
	s.t.Helper()
	w := &bulkWorker{bulks: b}
	for {
		bulk, err := b.Get(context.Background(), id)
		if err != nil {
			s.t.Fatal(err)
		}
		if bulk.State == BulkDone {
			return bulk
		}
		epoch := int(s.one("SELECT epoch FROM letter_bulk WHERE id = $1", id))
		if err := w.Work(context.Background(), &river.Job[bulkArgs]{Args: bulkArgs{Bulk: id, Epoch: epoch}}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// foots compares the counters with the letters.
func (s *seed) foots() {
	s.t.Helper()
	s.fold()
	if n := s.one(`
SELECT count(*) FROM (
  SELECT f.id, s.state, CASE s.state WHEN 1 THEN f.open_n WHEN 2 THEN f.replaying_n WHEN 3 THEN f.resolved_n ELSE f.discarded_n END AS counted,
    (SELECT count(*) FROM dead_letter d WHERE d.fault_id = f.id AND d.state = s.state) AS there
  FROM fault f CROSS JOIN generate_series(1, 4) s(state)) x WHERE counted <> there`); n != 0 {
		s.t.Errorf("%d counters of faults do not foot with their letters", n)
	}
	if n := s.one(`
SELECT count(*) FROM (SELECT fault_id, state, verdict, n FROM fault_count WHERE n <> 0) c
FULL JOIN (SELECT fault_id, state, verdict, count(*) AS n FROM dead_letter GROUP BY 1, 2, 3) d USING (fault_id, state, verdict)
WHERE c.n IS DISTINCT FROM d.n`); n != 0 {
		s.t.Errorf("%d counters by verdict do not foot with their letters", n)
	}
}

func (s *seed) states(ids []uuid.UUID) map[State]int {
	s.t.Helper()
	rows, err := s.pool.Query(context.Background(), "SELECT state, count(*) FROM dead_letter WHERE id = ANY($1) GROUP BY 1", ids)
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[State]int{}
	var state State
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&state, &n}, func() error { all[state] = n; return nil }); err != nil {
		s.t.Fatal(err)
	}
	return all
}

func faultLetters(n int, change func(i int, l *seedLetter)) []seedLetter {
	start := time.Now().Add(-time.Hour)
	letters := make([]seedLetter, n)
	for i := range letters {
		letters[i] = seedLetter{event: fmt.Sprint("e-", i), group: "points", class: "Boom", message: "boom", verdict: Verdict(i % 4), at: start.Add(time.Duration(i) * time.Millisecond)}
		if change != nil {
			change(i, &letters[i])
		}
	}
	return letters
}

func TestAFaultIsDiscardedAtOnceAndTakenBack(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(faultLetters(300, func(i int, l *seedLetter) { l.state = State(1 + i%4) })...)
	fault := int32(s.one("SELECT id FROM fault"))
	b := newBulks(t, s, 0)
	done, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{FaultID: fault}, RequestKey: "form-1"})
	if err != nil || done.State != BulkDone || done.Total != 75 || done.Changed != 75 || len(done.Digest) != 32 {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := s.states(ids); got[Open] != 0 || got[Discarded] != 150 || got[Replaying] != 75 {
		t.Fatalf("states after discarding: %v", got)
	}
	s.foots()
	again, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{FaultID: fault}, RequestKey: "form-1"})
	if err != nil || again.ID != done.ID {
		t.Errorf("the same form gave command %d, %v; want %d", again.ID, err, done.ID)
	}
	if _, err := b.Restore(t.Context(), operator, BulkRequest{Selection: Selection{FaultID: fault}, RequestKey: "form-1"}); !errors.Is(err, ErrKeyReused) {
		t.Errorf("another command with its key: %v", err)
	}
	page, err := audit.List(t.Context(), s.pool, audit.Filter{Action: "letters.discarded"}, 0, "")
	if err != nil || len(page.Items) != 1 || page.Items[0].Reason != operator.Reason || page.Items[0].Target != fmt.Sprintf("bulk/%d", done.ID) {
		t.Errorf("audit %+v, %v", page.Items, err)
	}
	back, err := b.Undo(t.Context(), operator, done.ID)
	if err != nil || back.Changed != 75 || back.Undoes == nil || *back.Undoes != done.ID {
		t.Fatalf("%+v, %v", back, err)
	}
	if got := s.states(ids); got[Open] != 75 || got[Discarded] != 75 {
		t.Errorf("states after taking back: %v", got)
	}
	if n := s.one("SELECT count(*) FROM dead_letter WHERE state = 1 AND verdict <> 0"); n != 0 {
		t.Errorf("%d letters kept a verdict from before", n)
	}
	s.foots()
}

// Undo gives back what the command closed, and nothing that was closed before or
// moved since.
func TestUndoTouchesExactlyWhatTheCommandTouched(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(faultLetters(90, nil)...)
	b := newBulks(t, s, 20)
	byHand, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{LetterIDs: ids[:10]}})
	if err != nil || byHand.Changed != 10 {
		t.Fatalf("%+v, %v", byHand, err)
	}
	all, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{Filter: &LetterFilter{Group: "points"}}})
	if err != nil || all.State == BulkDone {
		t.Fatalf("80 letters in chunks of 20 came back as %+v, %v", all, err)
	}
	if _, err := b.Undo(t.Context(), operator, all.ID); !errors.Is(err, ErrBulkRunning) {
		t.Errorf("undo while it runs: %v", err)
	}
	all = s.finish(b, all.ID)
	if all.Changed != 80 || all.Total != 80 {
		t.Fatalf("%+v", all)
	}
	// One comes back and is discarded anew; one is only restored.
	if _, err := b.Restore(t.Context(), operator, BulkRequest{Selection: Selection{LetterIDs: ids[20:22]}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{LetterIDs: ids[20:21]}}); err != nil {
		t.Fatal(err)
	}
	undo, err := b.Undo(t.Context(), operator, all.ID)
	if err != nil {
		t.Fatal(err)
	}
	if undo = s.finish(b, undo.ID); undo.Changed != 78 || undo.PassedOver != 2 {
		t.Errorf("took back %d and passed %d over, want 78 and 2", undo.Changed, undo.PassedOver)
	}
	if got := s.states(ids[:10]); got[Discarded] != 10 {
		t.Errorf("those discarded before: %v", got)
	}
	if got := s.states(ids[20:21]); got[Discarded] != 1 {
		t.Errorf("the one discarded again: %v", got)
	}
	if got := s.states(ids); got[Open] != 79 {
		t.Errorf("all: %v", got)
	}
	if was, err := b.Get(t.Context(), all.ID); err != nil || was.UndoneBy == nil || *was.UndoneBy != undo.ID {
		t.Errorf("%+v, %v: want to be told what took it back", was, err)
	}
	if _, err := b.Undo(t.Context(), operator, undo.ID); !errors.Is(err, ErrNotUndoable) {
		t.Errorf("undo of an undo: %v", err)
	}
	s.foots()
}

func TestALargeSetIsFrozenWhenItIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(faultLetters(500, nil)...)
	b := newBulks(t, s, 100)
	bulk, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{Filter: &LetterFilter{ErrorClass: "Boom"}}})
	if err != nil || bulk.State != BulkFreezing || bulk.Changed != 0 {
		t.Fatalf("%+v, %v: nothing may change before the set is frozen", bulk, err)
	}
	late := s.add(seedLetter{event: "late", group: "points", class: "Boom", message: "boom", at: time.Now().Add(time.Second)})
	done := s.finish(b, bulk.ID)
	if done.Total != 500 || done.Changed != 500 || s.states(late)[Open] != 1 {
		t.Errorf("%+v; the late one %v", done, s.states(late))
	}
	page, err := audit.List(t.Context(), s.pool, audit.Filter{Target: fmt.Sprintf("bulk/%d", bulk.ID)}, 0, "")
	if err != nil || len(page.Items) != 2 || page.Items[0].Action != "letters.discarded" || page.Items[0].Actor != "ada" {
		t.Errorf("audit %+v, %v", page.Items, err)
	}
	s.foots()
}

// A step that River runs twice at once does its work once.
func TestDoubledStepsChangeNothingTwice(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(faultLetters(600, nil)...)
	b := newBulks(t, s, 50)
	bulk, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{Filter: &LetterFilter{}}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := (&bulkWorker{bulks: b}).Work(context.Background(), &river.Job[bulkArgs]{Args: bulkArgs{Bulk: bulk.ID}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if done := s.finish(b, bulk.ID); done.Changed != 600 || done.Total != 600 || done.PassedOver != 0 {
		t.Errorf("%+v", done)
	}
	s.foots()
}

func TestRacingCommandsTakeTurns(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(faultLetters(2000, nil)...)
	b := newBulks(t, s, 200)
	backwards := slices.Clone(ids)
	slices.Reverse(backwards)
	for round := range 3 {
		var wg sync.WaitGroup
		changed := make([]int64, 4)
		for i := range changed {
			wg.Go(func() {
				sel := Selection{LetterIDs: ids[:1500]}
				if i%2 == 1 {
					sel = Selection{LetterIDs: backwards[:1500]}
				}
				bulk, err := b.Discard(context.Background(), operator, BulkRequest{Selection: sel})
				if err != nil {
					t.Error(err)
					return
				}
				changed[i] = bulk.Changed
			})
		}
		wg.Wait()
		if sum := changed[0] + changed[1] + changed[2] + changed[3]; sum != 2000 {
			t.Errorf("round %d: %v, want each of 2,000 letters discarded once", round, changed)
		}
		back, err := b.Restore(t.Context(), operator, BulkRequest{Selection: Selection{Filter: &LetterFilter{}}})
		if err != nil || s.finish(b, back.ID).Changed != 2000 {
			t.Fatalf("%+v, %v", back, err)
		}
	}
	s.foots()
}

func TestCommandsOnLettersRefuse(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(faultLetters(3, nil)...)
	b := newBulks(t, s, 0)
	one := BulkRequest{Selection: Selection{LetterIDs: ids[:1]}}
	viewer, silent := operator, operator
	viewer.Role, silent.Reason = access.Viewer, "  "
	many := make([]uuid.UUID, bulkChunk+1)
	for name, c := range map[string]struct {
		actor access.Actor
		req   BulkRequest
		want  error
	}{
		"viewer":        {viewer, one, access.ErrForbidden},
		"no reason":     {silent, one, access.ErrReasonRequired},
		"no selection":  {operator, BulkRequest{}, ErrBadSelection},
		"two ways":      {operator, BulkRequest{Selection: Selection{LetterIDs: ids, FaultID: 1}}, ErrBadSelection},
		"a redo":        {operator, BulkRequest{Selection: Selection{RedoOf: 7}}, ErrBadSelection},
		"unknown":       {operator, BulkRequest{Selection: Selection{LetterIDs: []uuid.UUID{uuid.New()}}}, ErrNotFound},
		"unknown fault": {operator, BulkRequest{Selection: Selection{FaultID: 99}}, ErrNotFound},
	} {
		if _, err := b.Discard(t.Context(), c.actor, c.req); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{LetterIDs: many}}); err == nil {
		t.Error("too many named letters are taken")
	}
	if _, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{Filter: &LetterFilter{Text: "x"}}}); err == nil {
		t.Error("a bad filter is taken")
	}
	for _, err := range []error{
		errOf(b.Restore(t.Context(), viewer, one)), errOf(b.Assign(t.Context(), viewer, one)), errOf(b.Undo(t.Context(), viewer, 1)),
	} {
		if !errors.Is(err, access.ErrForbidden) {
			t.Errorf("a viewer: %v", err)
		}
	}
	if got := s.states(ids); got[Open] != 3 {
		t.Errorf("states %v", got)
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestLettersAreAssignedAndInheritTheirFaultsOwner(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(faultLetters(20, nil)...)
	fault := int32(s.one("SELECT id FROM fault"))
	b, faults, letters := newBulks(t, s, 0), NewFaults(s.pool), patient(s)
	if done, err := b.Assign(t.Context(), operator, BulkRequest{Selection: Selection{LetterIDs: ids[:5]}, Owner: "bob"}); err != nil || done.Changed != 5 {
		t.Fatalf("%+v, %v", done, err)
	}
	if err := faults.Assign(t.Context(), operator, []int32{fault}, "ada"); err != nil {
		t.Fatal(err)
	}
	for owner, want := range map[string]int{"bob": 5, "ada": 15, OwnerNone: 0} {
		if n, _, err := letters.Count(t.Context(), LetterFilter{Owner: owner}); err != nil || int(n) != want {
			t.Errorf("%s has %d letters, want %d; %v", owner, n, want, err)
		}
	}
	if _, err := b.Assign(t.Context(), operator, BulkRequest{Selection: Selection{LetterIDs: ids[:5]}}); err != nil {
		t.Fatal(err)
	}
	if n, _, err := letters.Count(t.Context(), LetterFilter{Owner: "ada"}); err != nil || n != 20 {
		t.Errorf("ada has %d letters after bob's were let go, want 20; %v", n, err)
	}
	list, err := faults.List(t.Context(), FaultFilter{Owner: "ada"}, Page{})
	if err != nil || len(list.Items) != 1 || *list.Items[0].Owner != "ada" {
		t.Errorf("%+v, %v", list.Items, err)
	}
}

func TestADiscardedFaultThatRecursComesBack(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(faultLetters(10, nil)...)
	s.fold()
	fault := int32(s.one("SELECT id FROM fault"))
	b, faults := newBulks(t, s, 0), NewFaults(s.pool)
	done, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{FaultID: fault}})
	if err != nil {
		t.Fatal(err)
	}
	s.fold()
	inTab := func(tab FaultTab) int {
		t.Helper()
		page, err := faults.List(t.Context(), FaultFilter{Tab: tab}, Page{})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Items)
	}
	if inTab(TabOpen) != 0 || inTab(TabDiscarded) != 1 {
		t.Fatal("the discarded fault is not among the discarded ones alone")
	}
	s.add(seedLetter{event: "again", group: "points", class: "Boom", message: "boom"})
	if inTab(TabOpen) != 1 {
		t.Error("a recurrence is hidden until it is folded")
	}
	s.fold()
	f, err := faults.Get(t.Context(), fault)
	if err != nil || f.Open != 1 || f.Discarded != 10 || f.CameBackAt == nil {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := b.Undo(t.Context(), operator, done.ID); err != nil {
		t.Fatal(err)
	}
	s.fold()
	was := *f.CameBackAt
	if f, err = faults.Get(t.Context(), fault); err != nil || f.Open != 11 || !f.CameBackAt.Equal(was) {
		t.Errorf("%+v, %v: taking back is no recurrence", f, err)
	}
	s.foots()
}

func TestOlderThanIsDiscardedAndTheRestStays(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(faultLetters(100, nil)...)
	until := arrived(ids[40])
	fault := int32(s.one("SELECT id FROM fault"))
	done, err := newBulks(t, s, 0).Discard(t.Context(), operator, BulkRequest{Selection: Selection{Filter: &LetterFilter{FaultID: fault, Until: until}}})
	if err != nil || done.Changed != 40 || done.FaultID == nil || *done.FaultID != fault {
		t.Fatalf("%+v, %v", done, err)
	}
	if s.states(ids[:40])[Discarded] != 40 || s.states(ids[40:])[Open] != 60 {
		t.Error("the wrong letters were discarded")
	}
}

func TestTriageOfFaults(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(seedLetter{event: "a", message: "one"}, seedLetter{event: "b", message: "two"})
	s.fold()
	faults := NewFaults(s.pool)
	now := time.Now()
	faults.clock = func() time.Time { return now }
	page, err := faults.List(t.Context(), FaultFilter{}, Page{})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("%d faults, %v", len(page.Items), err)
	}
	id := page.Items[0].ID
	before := s.clock()
	until := now.Add(time.Hour)
	if err := faults.Mute(t.Context(), operator, []int32{id}, &until); err != nil {
		t.Fatal(err)
	}
	counts, err := faults.Counts(t.Context(), FaultFilter{})
	if err != nil || counts[TabOpen] != 1 || counts[TabMuted] != 1 || counts[TabAll] != 2 {
		t.Errorf("%v, %v", counts, err)
	}
	now = until.Add(time.Second)
	if counts, _ := faults.Counts(t.Context(), FaultFilter{}); counts[TabOpen] != 2 || counts[TabMuted] != 0 {
		t.Errorf("after the time is over: %v", counts)
	}
	if err := faults.Note(t.Context(), operator, id, "see ticket 4711"); err != nil {
		t.Fatal(err)
	}
	if err := faults.Comment(t.Context(), operator, id, " looked into it "); err != nil {
		t.Fatal(err)
	}
	said, err := faults.Comments(t.Context(), id)
	if err != nil || len(said) != 1 || said[0].Text != "looked into it" || said[0].By != "ada" {
		t.Errorf("%+v, %v", said, err)
	}
	f, err := faults.Get(t.Context(), id)
	if err != nil || f.Note == nil || *f.Note != "see ticket 4711" {
		t.Errorf("%+v, %v", f, err)
	}
	if n, err := faults.Changed(t.Context(), before); err != nil || n != 1 {
		t.Errorf("%d faults changed, %v; want one", n, err)
	}
	past := now.Add(-time.Second)
	viewer := operator
	viewer.Role = access.Viewer
	for name, err := range map[string]error{
		"muted until the past": faults.Mute(t.Context(), operator, []int32{id}, &past),
		"a note too long":      faults.Note(t.Context(), operator, id, string(make([]byte, maxNote+1))),
		"an empty comment":     faults.Comment(t.Context(), operator, id, "  "),
	} {
		if bad, ok := errors.AsType[*ErrBadTriage](err); !ok || bad.Field == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"mute": faults.Mute(t.Context(), viewer, []int32{id}, nil), "assign": faults.Assign(t.Context(), viewer, []int32{id}, "x"),
		"note": faults.Note(t.Context(), viewer, id, "x"), "comment": faults.Comment(t.Context(), viewer, id, "x"),
	} {
		if !errors.Is(err, access.ErrForbidden) {
			t.Errorf("%s by a viewer: %v", name, err)
		}
	}
	if err := faults.Mute(t.Context(), operator, []int32{id, 999}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("an unknown fault among others: %v", err)
	}
}

// clock is the database's.
func (s *seed) clock() (now time.Time) {
	s.t.Helper()
	if err := s.pool.QueryRow(context.Background(), "SELECT clock_timestamp()").Scan(&now); err != nil {
		s.t.Fatal(err)
	}
	return now
}
