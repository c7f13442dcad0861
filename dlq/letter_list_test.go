package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// letterShelf holds letters in many faults, and the same letters in memory for
// the naive answer.
type letterShelf struct {
	*seed
	all   []seedLetter // newest first
	ids   []uuid.UUID
	start time.Time
}

func stockedShelf(t *testing.T, n int) *letterShelf {
	t.Helper()
	s := &letterShelf{seed: newSeed(t), start: time.Now().Add(-2 * time.Hour).Truncate(time.Millisecond)}
	letters := make([]seedLetter, n)
	for i := range letters {
		letters[i] = seedLetter{
			cluster: rotate(i, 2, "main", "other"), source: rotate(i/2, 3, "a.DLT", "b.DLT", "c.DLT"),
			dialect: rotate(i/3, 2, "spring-kafka-dlpr", "kafka-unknown"),
			event:   fmt.Sprintf("e-%d", i%97), group: rotate(i/5, 3, "points", "stock", ""),
			class: rotate(i/7, 4, "A", "B", "C", ""), topic: rotate(i/11, 2, "order.paid", ""),
			state: State(1 + i%13%4), at: s.start.Add(time.Duration(i) * 10 * time.Millisecond),
			message: rotate(i/17, 2, "boom", "bang"),
		}
		letters[i].fill()
	}
	s.ids = s.add(letters...)
	slices.Reverse(letters)
	s.all = letters
	return s
}

func rotate(i, n int, of ...string) string { return of[i%n] }

// naive filters in memory.
func (s *letterShelf) naive(f LetterFilter, faultOf func(seedLetter) int32) []uuid.UUID {
	var out []uuid.UUID
	for _, l := range s.all {
		ok := (f.State == 0 || l.state == f.State) && (f.Cluster == "" || l.cluster == f.Cluster) &&
			(f.Source == "" || l.source == f.Source) && (f.Dialect == "" || l.dialect == f.Dialect) &&
			(f.EventID == "" || l.event == f.EventID) && (f.Group == "" || l.group == f.Group) &&
			(f.ErrorClass == "" || l.class == f.ErrorClass) && (f.OriginTopic == "" || l.topic == f.OriginTopic) &&
			(f.FaultID == 0 || faultOf(l) == f.FaultID) &&
			(f.Since.IsZero() || !arrived(l.id).Before(f.Since)) && (f.Until.IsZero() || arrived(l.id).Before(f.Until))
		if ok {
			out = append(out, l.id)
		}
	}
	return out
}

// faultOf finds the fault that add put a letter into.
func (s *letterShelf) faultOf(l seedLetter) int32 {
	return s.faults[fmt.Sprint(s.source(l.cluster, l.source), s.name(5, l.dialect), s.name(3, l.topic), s.name(1, l.group), s.name(2, l.class), l.message)]
}

func listAll(t rapid.TB, letters *Letters, f LetterFilter, limit int) []uuid.UUID {
	t.Helper()
	var out []uuid.UUID
	p := Page{Limit: limit}
	for {
		page, err := letters.List(context.Background(), f, p)
		if err != nil {
			t.Fatalf("list %+v: %v", f, err)
		}
		for _, l := range page.Items {
			out = append(out, l.ID)
		}
		if page.Next == "" {
			return out
		}
		p.Cursor = page.Next
	}
}

func TestEveryFilterCombinationGivesWhatANaiveQueryGives(t *testing.T) {
	t.Parallel()
	s := stockedShelf(t, 3000)
	for _, seeded := range s.all { // all ids known to the maps before rapid runs
		s.faultOf(seeded)
	}
	s.fold()
	letters := NewLetters(s.pool)
	rapid.Check(t, func(t *rapid.T) {
		f := LetterFilter{
			State:      State(rapid.IntRange(0, 4).Draw(t, "state")),
			Cluster:    rapid.SampledFrom([]string{"", "", "main", "other", "nowhere"}).Draw(t, "cluster"),
			Source:     rapid.SampledFrom([]string{"", "", "a.DLT", "b.DLT", "x.DLT"}).Draw(t, "source"),
			Dialect:    rapid.SampledFrom([]string{"", "", "kafka-unknown"}).Draw(t, "dialect"),
			Group:      rapid.SampledFrom([]string{"", "", "points", "stock", "nobody"}).Draw(t, "group"),
			ErrorClass: rapid.SampledFrom([]string{"", "", "A", "B"}).Draw(t, "class"),
			EventID:    rapid.SampledFrom([]string{"", "", "", "e-3", "e-none"}).Draw(t, "event"),
		}
		f.OriginTopic = rapid.SampledFrom([]string{"", "", "order.paid"}).Draw(t, "topic")
		if rapid.Bool().Draw(t, "fault") {
			f.FaultID = s.faultOf(rapid.SampledFrom(s.all).Draw(t, "fault of"))
		}
		if rapid.Bool().Draw(t, "timed") {
			from := rapid.IntRange(-10, 3010).Draw(t, "from")
			f.Since = s.start.Add(time.Duration(from)*10*time.Millisecond + time.Duration(rapid.IntRange(-1, 1).Draw(t, "odd"))*time.Microsecond)
			f.Until = f.Since.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "long")) * 10 * time.Millisecond)
		}
		want := s.naive(f, s.faultOf)
		got := listAll(t, letters, f, rapid.SampledFrom([]int{7, 50, 200}).Draw(t, "limit"))
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %d letters, want %d", f, len(got), len(want))
		}
		n, bounded, err := letters.Count(context.Background(), f)
		if err != nil || bounded || n != int64(len(want)) {
			t.Fatalf("count %+v: %d %v %v, want %d", f, n, bounded, err, len(want))
		}
	})
}

func TestManyFaultsFallBackToOneIndex(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	var letters []seedLetter
	for i := range 2 * (maxFaultBranches + 20) {
		letters = append(letters, seedLetter{event: fmt.Sprint(i), group: "points", class: rotate(i, 2, "A", "B"), message: fmt.Sprint("m", i), source: "a.DLT"})
	}
	ids := s.add(letters...)
	var want []uuid.UUID
	for i := len(ids) - 1; i >= 0; i-- {
		if i%2 == 0 {
			want = append(want, ids[i])
		}
	}
	got := listAll(t, NewLetters(s.pool), LetterFilter{Group: "points", ErrorClass: "A", Source: "a.DLT"}, 200)
	if !slices.Equal(got, want) {
		t.Fatalf("%d letters, want %d", len(got), len(want))
	}
}

// TestADialectOfManyFaultsIsComparedWithinItsTime: no index finds its letters.
func TestADialectOfManyFaultsIsComparedWithinItsTime(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	var all []seedLetter
	for i := range 2 * (maxFaultBranches + 20) {
		all = append(all, seedLetter{event: fmt.Sprint(i), group: "points", message: fmt.Sprint("m", i), source: "a.DLT", dialect: rotate(i, 2, "spring-kafka-dlpr", "kafka-connect")})
	}
	ids := s.add(all...)
	var want []uuid.UUID
	for i := len(ids) - 2; i >= 0; i -= 2 {
		want = append(want, ids[i])
	}
	letters, f := NewLetters(s.pool), LetterFilter{Dialect: "spring-kafka-dlpr"}
	if got := listAll(t, letters, f, 50); !slices.Equal(got, want) {
		t.Fatalf("%d letters, want %d", len(got), len(want))
	}
	before, after, err := letters.Neighbours(t.Context(), want[5], f)
	if err != nil || before != want[4] || after != want[6] {
		t.Errorf("neighbours %s and %s, %v; want %s and %s", before, after, err, want[4], want[6])
	}
	if n, bounded, err := letters.Count(t.Context(), f); err != nil || bounded || n != int64(len(want)) {
		t.Errorf("count %d %v %v, want exactly %d", n, bounded, err, len(want))
	}
	letters.budgets.columns = time.Nanosecond
	if page, err := letters.List(t.Context(), f, Page{Limit: 150}); err != nil || page.Stopped == nil || page.Next == "" {
		t.Errorf("a page for which time is over stopped at %v with next %q, %v", page.Stopped, page.Next, err)
	}
}

func TestAListWalkedToTheEndSeesEachLetterOnce(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	const n = 50_000
	letters := make([]seedLetter, n)
	start := time.Now().Add(-time.Hour)
	for i := range letters {
		letters[i] = seedLetter{event: fmt.Sprint(i), group: "points", state: State(1 + i%4), at: start.Add(time.Duration(i/3) * time.Millisecond), message: fmt.Sprint(i % 5)}
	}
	ids := s.add(letters...)
	for _, f := range []LetterFilter{{}, {Group: "points"}, {Cluster: "main", Group: "points"}} {
		got := listAll(t, NewLetters(s.pool), f, 200)
		slices.Reverse(got)
		if !slices.Equal(got, ids) {
			t.Fatalf("%+v: saw %d letters, want each of %d once in order", f, len(got), n)
		}
	}
	count, bounded, err := NewLetters(s.pool).Count(t.Context(), LetterFilter{Since: start.Add(-time.Minute)})
	if err != nil || count != CountLimit || !bounded {
		t.Errorf("count of a time range: %d %v %v, want 10000 and bounded", count, bounded, err)
	}
	count, bounded, err = NewLetters(s.pool).Count(t.Context(), LetterFilter{State: Resolved})
	if err != nil || count != n/4 || bounded {
		t.Errorf("count by state: %d %v %v, want exactly %d", count, bounded, err, n/4)
	}
}

func TestPreviousPagesLeadBack(t *testing.T) {
	t.Parallel()
	s := stockedShelf(t, 95)
	letters := NewLetters(s.pool)
	f := LetterFilter{Cluster: "main"}
	var forward [][]uuid.UUID
	p := Page{Limit: 10}
	for {
		page, err := letters.List(t.Context(), f, p)
		if err != nil {
			t.Fatal(err)
		}
		forward = append(forward, idsOf(page.Items))
		if (page.Prev == "") != (len(forward) == 1) {
			t.Fatalf("page %d: prev %q", len(forward), page.Prev)
		}
		if page.Next == "" {
			p.Cursor = page.Prev
			break
		}
		p.Cursor = page.Next
	}
	for i := len(forward) - 2; i >= 0; i-- {
		page, err := letters.List(t.Context(), f, p)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(idsOf(page.Items), forward[i]) {
			t.Fatalf("going back: page %d is %v, want %v", i, idsOf(page.Items), forward[i])
		}
		p.Cursor = page.Prev
	}
	if p.Cursor != "" {
		t.Error("the first page still has a newer one")
	}
}

func idsOf(letters []Letter) []uuid.UUID {
	out := make([]uuid.UUID, len(letters))
	for i, l := range letters {
		out[i] = l.ID
	}
	return out
}

func TestNeighboursFollowTheList(t *testing.T) {
	t.Parallel()
	s := stockedShelf(t, 60)
	letters := NewLetters(s.pool)
	for _, f := range []LetterFilter{{}, {Group: "points"}, {Cluster: "main", ErrorClass: "A"}, {State: Open}} {
		want := listAll(t, letters, f, 200)
		for i, id := range want {
			before, after, err := letters.Neighbours(t.Context(), id, f)
			if err != nil {
				t.Fatal(err)
			}
			if before != nth(want, i-1) || after != nth(want, i+1) {
				t.Fatalf("%+v: neighbours of %d are %v and %v", f, i, before, after)
			}
		}
	}
}

func nth(ids []uuid.UUID, i int) uuid.UUID {
	if i < 0 || i >= len(ids) {
		return uuid.Nil
	}
	return ids[i]
}

func TestBadFiltersAreNamed(t *testing.T) {
	t.Parallel()
	letters := NewLetters(newSeed(t).pool)
	good := cursor{direction: older, id: uuid.New()}.encode(LetterFilter{Group: "points"})
	for _, c := range []struct {
		field string
		f     LetterFilter
		p     Page
	}{
		{"limit", LetterFilter{}, Page{Limit: 201}},
		{"limit", LetterFilter{}, Page{Limit: -1}},
		{"state", LetterFilter{State: 5}, Page{}},
		{"state", LetterFilter{State: -1}, Page{}},
		{"fault_id", LetterFilter{FaultID: -1}, Page{}},
		{"event_id", LetterFilter{EventID: "a\x00b"}, Page{}},
		{"consumer_group", LetterFilter{Group: "\xff"}, Page{}},
		{"cursor", LetterFilter{}, Page{Cursor: "\x00zz"}},
		{"cursor", LetterFilter{}, Page{Cursor: "AAAA"}},
		{"cursor", LetterFilter{}, Page{Cursor: good}},
	} {
		_, err := letters.List(t.Context(), c.f, c.p)
		var bad *ErrBadFilter
		if !errors.As(err, &bad) || bad.Field != c.field {
			t.Errorf("%+v %+v: %v, want a bad %s", c.f, c.p, err, c.field)
		}
	}
}
