package reconcile

import (
	"errors"
	"testing"
	"time"

	"oncemore/internal/access"
	"oncemore/internal/schedule"
)

func because(a access.Actor, reason string) access.Actor {
	a.Reason = reason
	return a
}

func TestSignOffNeedsAnotherPersonAndAWholeRun(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("a", "1.00", time.Minute)
	run := o.run(0, 1)
	preparer := access.Actor{User: run.AskedBy, Role: access.Admin, Reason: "looks right"}
	refused := map[string]struct {
		actor access.Actor
		seal  []byte
		list  []string
		want  error
	}{
		"own run":       {preparer, run.Seal, Checklist, ErrOwnRun},
		"role":          {because(access.Actor{User: "eve", Role: access.Operator}, "x"), run.Seal, Checklist, access.ErrForbidden},
		"no reason":     {bob, run.Seal, Checklist, access.ErrReasonRequired},
		"checklist":     {because(bob, "x"), run.Seal, Checklist[1:], ErrChecklist},
		"another state": {because(bob, "x"), []byte("seen before"), Checklist, ErrSealBroken},
	}
	for name, c := range refused {
		if err := o.runs.Sign(t.Context(), c.actor, run.ID, c.seal, c.list); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := o.runs.Sign(t.Context(), because(bob, "one is known"), run.ID, run.Seal, Checklist); err != nil {
		t.Fatal(err)
	}
	_, err := o.runs.Ask(t.Context(), ada, Request{Job: "points", From: noon, To: noon.Add(time.Hour)})
	if !errors.Is(err, ErrWindow) {
		t.Errorf("a signed window was run again: %v", err)
	}
	if err := o.runs.Reopen(t.Context(), bob, run.ID); !errors.Is(err, access.ErrReasonRequired) {
		t.Errorf("reopened without a reason: %v", err)
	}
	if err := o.runs.Reopen(t.Context(), because(bob, "too early"), run.ID); err != nil {
		t.Fatal(err)
	}
	signatures, err := o.runs.Signatures(t.Context(), run.ID)
	if err != nil || len(signatures) != 2 || signatures[0].Act != "signed" || signatures[1].Reason != "too early" {
		t.Errorf("signatures %+v, %v", signatures, err)
	}
}

// What somebody changes in a sealed run behind the console's back shows.
func TestSealNoticesTampering(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("a", "1.00", time.Minute)
	run := o.run(0, 1)
	if err := o.runs.Verify(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := o.console.Exec(t.Context(), "UPDATE reconcile_run_break SET amount = 0"); err != nil {
		t.Fatal(err)
	}
	if err := o.runs.Verify(t.Context(), run.ID); !errors.Is(err, ErrSealBroken) {
		t.Errorf("verified: %v", err)
	}
	if err := o.runs.Sign(t.Context(), because(bob, "x"), run.ID, run.Seal, Checklist); !errors.Is(err, ErrSealBroken) {
		t.Errorf("signed: %v", err)
	}
}

// A signed window is looked at again; totals that changed supersede it.
func TestRecheckSupersedes(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "\nrecheck: [1d, 7d]\n")
	o.consume("a", "1.00", time.Minute)
	o.credit("a", "1.00", time.Minute)
	run := o.run(0, 1)
	if err := o.runs.Sign(t.Context(), bob, run.ID, run.Seal, Checklist); err != nil {
		t.Fatal(err)
	}
	s := schedule.New(o.console, quiet(), func() time.Time { return o.now })
	o.runs.Schedule(s)
	for day, want := range []SignState{Signed, Superseded} {
		o.now = o.now.Add([]time.Duration{25 * time.Hour, 7 * 24 * time.Hour}[day])
		if n, err := s.Tick(t.Context()); n != 1 || err != nil {
			t.Fatalf("day %d: %d entries done, %v", day, n, err)
		}
		o.doAll()
		signed, err := o.runs.Get(t.Context(), run.ID)
		if err != nil || signed.Sign != want {
			t.Fatalf("after recheck %d the run is %s, want %s (%v)", day, signed.Sign, want, err)
		}
		o.credit("late", "9.00", 2*time.Minute) // a row appears in the signed window
	}
}

// Explained money leaves the roll-forward, and comes back with another amount.
func TestExplain(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("a", "5.00", time.Minute)
	o.run(0, 1)
	breaks := NewBreaks(o.console)
	all, _, err := breaks.List(t.Context(), BreakFilter{Job: "points", Limit: 10}, o.now)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	id := all[0].ID
	if err := breaks.Explain(t.Context(), because(ada, "x"), []int64{id}, "other"); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("an operator explained: %v", err)
	}
	if err := breaks.Explain(t.Context(), because(bob, "x"), []int64{id}, "because"); !errors.Is(err, ErrReasonCode) {
		t.Errorf("unknown code: %v", err)
	}
	if err := breaks.Explain(t.Context(), because(bob, "paid by hand"), []int64{id}, "manual_booking"); err != nil {
		t.Fatal(err)
	}
	second := o.run(1, 2)
	c := second.Roll.Currencies["CNY"]
	same(t, "explained", c.Moved[MovedExplained], Line{-1, amountOf(-5)})
	same(t, "closing", c.Closing, Line{0, amountOf(0)})
	same(t, "at risk", len(second.AtRisk), 0)
	same(t, "breaks", o.breaks(), map[string]string{"a missing_effect": "3 5"})

	o.credit("a", "4.00", time.Minute)
	o.run(0, 1)
	same(t, "breaks", o.breaks(), map[string]string{"a missing_effect": "6 5", "a amount_mismatch": "1 1"})
}
