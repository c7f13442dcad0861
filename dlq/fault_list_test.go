package dlq

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"oncemore/internal/testkit"
)

func TestFaultCountsIncludeWhatIsNotFolded(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	now := time.Now()
	s.add(seedLetter{group: "points", class: "A", message: "boom", at: now.Add(-3 * time.Hour), verdict: Safe})
	s.fold()
	s.add(
		seedLetter{group: "points", class: "A", message: "boom", at: now},
		seedLetter{group: "points", class: "A", message: "boom", at: now, state: Resolved, verdict: Safe},
		seedLetter{group: "stock", message: "bang", at: now, state: Discarded},
	)
	faults := NewFaults(s.pool)
	for range 2 { // before and after folding the answer is the same
		page, err := faults.List(t.Context(), FaultFilter{}, Page{})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("open faults: %+v %v", page, err)
		}
		f := page.Items[0]
		if f.Open != 2 || f.Resolved != 1 || f.Verdicts[Safe] != 1 || f.Verdicts[0] != 1 || f.SafeCount() != 1 {
			t.Errorf("counts of %+v", f)
		}
		if f.Hours[20] != 1 || f.Hours[23] != 1 || f.LastHour != 1 {
			t.Errorf("hours %v, last hour %d", f.Hours, f.LastHour)
		}
		if f.LastSeen.Sub(now).Abs() > time.Millisecond {
			t.Errorf("last seen %v, want %v", f.LastSeen, now)
		}
		if *f.Group != "points" || *f.ErrorClass != "A" || f.OriginTopic != nil || f.Source != "t.DLT" || f.Broker != "kafka" {
			t.Errorf("facts of %+v", f)
		}
		counts, err := faults.Counts(t.Context(), FaultFilter{Cluster: "main"})
		if err != nil || counts[TabOpen] != 1 || counts[TabDiscarded] != 1 || counts[TabAll] != 2 || counts[TabResolved] != 0 {
			t.Errorf("tabs %v %v", counts, err)
		}
		got, err := faults.Get(t.Context(), f.ID)
		if err != nil || got.Open != 2 {
			t.Errorf("one fault: %+v %v", got, err)
		}
		s.fold()
	}
	if _, err := faults.Get(t.Context(), 999); !errors.Is(err, ErrNotFound) {
		t.Errorf("an absent fault: %v", err)
	}
}

func TestFaultSortsAndPages(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	start := time.Now().Add(-2 * time.Hour)
	for i := range 23 {
		for k := range 1 + i%4 {
			s.add(seedLetter{group: "points", message: fmt.Sprint("m", i), at: start.Add(time.Duration(i*7%23+k) * time.Minute)})
		}
	}
	faults := NewFaults(s.pool)
	for _, sort := range []string{"", "-open", "-last_seen", "first_seen"} {
		seen := map[int32]bool{}
		var last *Fault
		p := Page{Limit: 5}
		for {
			page, err := faults.List(t.Context(), FaultFilter{Group: "points", Sort: sort}, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range page.Items {
				if seen[f.ID] {
					t.Fatalf("%s: fault %d twice", sort, f.ID)
				}
				if last != nil && outOfPlace(*last, f, sort) {
					t.Fatalf("%s: %+v after %+v", sort, f, *last)
				}
				seen[f.ID], last = true, &f
			}
			if page.Next == "" {
				break
			}
			p.Cursor = page.Next
		}
		if len(seen) != 23 {
			t.Errorf("%s: %d faults, want 23", sort, len(seen))
		}
	}
}

func outOfPlace(a, b Fault, sort string) bool {
	switch sort {
	case "-last_seen":
		return b.LastSeen.After(a.LastSeen)
	case "first_seen":
		return b.FirstSeen.Before(a.FirstSeen)
	}
	return b.Open > a.Open
}

func TestFaultTabs(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(
		seedLetter{message: "open"}, seedLetter{message: "both"}, seedLetter{message: "both", state: Replaying},
		seedLetter{message: "muted"}, seedLetter{message: "resolved", state: Resolved}, seedLetter{message: "resolved", state: Discarded},
		seedLetter{message: "discarded", state: Discarded},
	)
	s.exec("UPDATE fault SET mute_until = now() + interval '1 hour' WHERE message = 'muted'")
	faults := NewFaults(s.pool)
	for tab, want := range map[FaultTab]string{
		TabOpen: "[both open]", TabReplaying: "[both]", TabMuted: "[muted]", TabResolved: "[resolved]", TabDiscarded: "[discarded]",
		TabAll: "[discarded resolved muted both open]",
	} {
		page, err := faults.List(t.Context(), FaultFilter{Tab: tab, Sort: "-last_seen"}, Page{})
		if err != nil {
			t.Fatal(err)
		}
		set := map[string]bool{}
		for _, f := range page.Items {
			set[f.Message] = true
		}
		var names []string
		for _, n := range []string{"discarded", "resolved", "muted", "both", "open"} {
			if set[n] {
				names = append(names, n)
			}
		}
		if fmt.Sprint(names) != want {
			t.Errorf("%s: %v, want %s", tab, names, want)
		}
	}
	for field, f := range map[string]FaultFilter{"state": {Tab: "closed"}, "sort": {Sort: "loudness"}, "source": {Source: "\x00"}} {
		var bad *ErrBadFilter
		if _, err := faults.List(t.Context(), f, Page{}); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestFoldLosesAndDoublesNothingUnderConcurrency(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(seedLetter{message: "boom"}, seedLetter{message: "bang"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 3)
	for range 3 { // three replicas fold at once
		go func() {
			for {
				if _, err := Fold(ctx, s.pool); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	faults := []int32{int32(s.one("SELECT min(id) FROM fault")), int32(s.one("SELECT max(id) FROM fault"))}
	const rounds = 300
	for i := range rounds {
		s.exec(`INSERT INTO fault_delta (fault_id, state, verdict, n, seen_at) VALUES ($1, 1, 0, 3, now()), ($1, 1, 0, -1, NULL), ($1, 3, 10, 1, NULL)`, faults[i%2])
	}
	testkit.Eventually(t, 10*time.Second, func() bool { return s.one("SELECT count(*) FROM fault_delta") == 0 }, "all deltas folded")
	cancel()
	for range 3 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("fold: %v", err)
		}
	}
	want := map[string]int64{
		"SELECT sum(open_n)::bigint FROM fault":                                   2 + 2*rounds,
		"SELECT sum(resolved_n)::bigint FROM fault":                               rounds,
		"SELECT sum(n)::bigint FROM fault_count WHERE state = 1 AND verdict = 0":  2 + 2*rounds,
		"SELECT sum(n)::bigint FROM fault_count WHERE state = 3 AND verdict = 10": rounds,
		"SELECT sum(n)::bigint FROM fault_hour":                                   2 + 3*rounds,
		"SELECT sum(resolved)::bigint FROM fault_hour":                            rounds,
		"SELECT open_n - resolved_n FROM fault ORDER BY id LIMIT 1":               1 + rounds/2,
	}
	for sql, n := range want {
		if got := s.one(sql); got != n {
			t.Errorf("%s: %d, want %d", sql, got, n)
		}
	}
}

func TestVerdictMovesAreNoArrivals(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	s.add(seedLetter{message: "boom", state: Resolved})
	s.fold()
	before := s.one("SELECT coalesce(sum(n + resolved), 0)::bigint FROM fault_hour")
	s.exec(`INSERT INTO fault_delta (fault_id, state, verdict, n) SELECT id, 3, v.verdict, v.n FROM fault, (VALUES (0, -1), (10, 1)) v(verdict, n)`)
	s.fold()
	if after := s.one("SELECT coalesce(sum(n + resolved), 0)::bigint FROM fault_hour"); after != before {
		t.Errorf("a verdict that moved counts as %d letters", after-before)
	}
}
