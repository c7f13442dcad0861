package dlq

import (
	"errors"
	"testing"

	"github.com/google/uuid"
)

func subject(event, group string) Subject {
	s := Subject{LetterID: uuid.Must(uuid.NewV7()), Group: group, Cluster: "c", OriginTopic: "t"}
	if event != "" {
		s.EventID = &event
	}
	return s
}

func judgedFor(s Subject, route *Route, verdicts ...GroupVerdict) Judged {
	j := Judged{LetterID: s.LetterID, Route: route, Groups: verdicts, Headline: Unknown}
	if route != nil {
		j.Headline = 0
		for _, g := range verdicts {
			if g.Reached {
				j.Headline = worst(j.Headline, g.Verdict)
			}
		}
	}
	return j
}

func reaches(group string, v Verdict) GroupVerdict {
	return GroupVerdict{Group: group, Verdict: v, Reached: true, Reason: Reason{Key: "reason." + v.String()}}
}

var (
	originT = &Route{Cluster: "c", Topic: "t"}
	toA     = &Route{Cluster: "c", Topic: "a.replay", Group: "a"}
)

func TestLettersOfOneEventAndTargetAreOneItem(t *testing.T) {
	t.Parallel()
	set := newPlanSet(PlanRequest{Target: ToOrigin})
	all := []GroupVerdict{reaches("a", Safe), reaches("b", AlreadyApplied), reaches("c", Safe)}
	for _, group := range []string{"a", "b", "c"} {
		s := subject("e1", group)
		set.add(s, judgedFor(s, originT, all...), Open)
	}
	other := subject("e2", "a")
	set.add(other, judgedFor(other, originT, all...), Open)
	none, alsoNone := subject("", "a"), subject("", "a")
	for _, s := range []Subject{none, alsoNone} {
		set.add(s, judgedFor(s, originT, reaches("a", NoEventID)), Open)
	}
	if err := set.finish(); err != nil {
		t.Fatal(err)
	}
	if len(set.items) != 2 || len(set.items[0].letters)+len(set.items[1].letters) != 4 {
		t.Errorf("%d items", len(set.items))
	}
	if set.verdicts[Safe] != 2 || set.verdicts[NoEventID] != 2 || len(set.refused) != 2 {
		t.Errorf("verdicts %v, %d refused", set.verdicts, len(set.refused))
	}
}

func TestOneBlockedGroupKeepsAnItemBack(t *testing.T) {
	t.Parallel()
	set := newPlanSet(PlanRequest{Target: ToOrigin})
	a, b := subject("e1", "a"), subject("e1", "b")
	for _, s := range []Subject{a, b} {
		set.add(s, judgedFor(s, originT, reaches("a", Safe), reaches("b", Unprotected)), Open)
	}
	if err := set.finish(); err != nil {
		t.Fatal(err)
	}
	if len(set.items) != 0 || set.verdicts[Unprotected] != 1 {
		t.Errorf("%d items, %v", len(set.items), set.verdicts)
	}
	for _, r := range set.refused {
		if r.Group != "b" || r.Verdict != Unprotected || r.Reason.Key != "reason.unprotected" {
			t.Errorf("refusal %+v", r)
		}
	}
	if len(set.refused) != 2 || set.refusedLetters() != 2 {
		t.Errorf("%d refusals", len(set.refused))
	}
}

func TestOverrideCountsOnlyForTheVerdictThatWasSeen(t *testing.T) {
	t.Parallel()
	s := subject("e1", "a")
	for verdict, sent := range map[Verdict]int{Unprotected: 1, Expired: 0} {
		set := newPlanSet(PlanRequest{Target: ToGroup, Overrides: []Override{{LetterID: s.LetterID, Group: "a", Verdict: verdict, Reason: "checked by hand"}}})
		set.add(s, judgedFor(s, toA, reaches("a", Unprotected)), Open)
		if err := set.finish(); err != nil {
			t.Fatal(err)
		}
		if len(set.items) != sent || len(set.overridden) != sent {
			t.Errorf("override of %s: %d items, %d overridden", verdict, len(set.items), len(set.overridden))
		}
	}
	set := newPlanSet(PlanRequest{Target: ToGroup, Overrides: []Override{{LetterID: uuid.New(), Group: "a", Verdict: Expired, Reason: "x"}}})
	set.add(s, judgedFor(s, toA, reaches("a", Unprotected)), Open)
	var bad *ErrBadOverride
	if err := set.finish(); !errors.As(err, &bad) {
		t.Errorf("override of a letter outside the selection: %v", err)
	}
}

func TestOriginTakesInWhatItReachesAnyway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		origin Verdict // in group b, which has no target of its own
		items  int
	}{
		"safe":        {Safe, 1},
		"unprotected": {Unprotected, 1},
	} {
		set := newPlanSet(PlanRequest{Target: ToSafe})
		a, b := subject("e1", "a"), subject("e1", "b")
		set.add(a, judgedFor(a, toA, reaches("a", Safe)), Open)
		set.add(b, judgedFor(b, originT, reaches("a", Safe), reaches("b", c.origin)), Open)
		if err := set.finish(); err != nil {
			t.Fatal(err)
		}
		if len(set.items) != c.items {
			t.Fatalf("%s: %d items", name, len(set.items))
		}
		toOrigin, letters := set.items[0].route.Group == "", len(set.items[0].letters)
		if c.origin == Safe && (!toOrigin || letters != 2) || c.origin != Safe && (toOrigin || letters != 1) {
			t.Errorf("%s: to origin %v with %d letters", name, toOrigin, letters)
		}
	}
}

func TestLettersThatAreNotOpenStay(t *testing.T) {
	t.Parallel()
	set := newPlanSet(PlanRequest{Target: ToGroup})
	for _, state := range []State{Open, Replaying, Resolved, Discarded} {
		s := subject("e-"+string(rune('0'+state)), "a")
		set.add(s, judgedFor(s, toA, reaches("a", Safe)), state)
	}
	if err := set.finish(); err != nil {
		t.Fatal(err)
	}
	if len(set.items) != 2 || set.verdicts[InFlight] != 1 || len(set.refused) != 2 {
		t.Errorf("%d items, %v, %+v", len(set.items), set.verdicts, set.refused)
	}
}

func TestWithoutATargetNothingGoes(t *testing.T) {
	t.Parallel()
	set := newPlanSet(PlanRequest{Target: ToGroup})
	s := subject("e1", "a")
	j := judgedFor(s, nil, GroupVerdict{Group: "a", Verdict: Safe})
	j.NoRoute = Reason{Key: "reason.no_group_target"}
	set.add(s, j, Open)
	if err := set.finish(); err != nil {
		t.Fatal(err)
	}
	if len(set.items) != 0 || len(set.refused) != 1 || set.refused[0].Reason.Key != "reason.no_group_target" || set.refused[0].Verdict != Unknown {
		t.Errorf("%d items, refused %+v", len(set.items), set.refused)
	}
}

func TestDigestNamesTheSet(t *testing.T) {
	t.Parallel()
	a, b := subject("e1", "a"), subject("e2", "a")
	digest := func(subjects ...Subject) string {
		set := newPlanSet(PlanRequest{Target: ToGroup})
		for _, s := range subjects {
			set.add(s, judgedFor(s, toA, reaches("a", Safe)), Open)
		}
		if err := set.finish(); err != nil {
			t.Fatal(err)
		}
		return string(set.digest())
	}
	if digest(a, b) != digest(b, a) {
		t.Error("the order of selection changes the digest")
	}
	if digest(a, b) == digest(a) {
		t.Error("another set has the same digest")
	}
}
