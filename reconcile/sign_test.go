package reconcile

import (
	"archive/zip"
	"bytes"
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

// What pages read of all this.
func TestListsAndTrend(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	breaks := NewBreaks(o.console)
	for i, amount := range []string{"5.00", "7.00", "9.00"} {
		o.consume(amount, amount, time.Duration(i)*time.Hour+time.Minute)
		o.run(i, i+1)
	}
	all, more, err := breaks.List(t.Context(), BreakFilter{Job: "points", Limit: 2}, o.now)
	if err != nil || !more || len(all) != 2 || all[0].Key[0] != "9.00" || *all[0].EventID != "9.00" || all[0].Sides[Consumed].Rows != 1 {
		t.Errorf("%+v, more %t, %v", all, more, err)
	}
	seven := amountOf(7)
	for name, f := range map[string]BreakFilter{
		"amount": {AmountMin: &seven, States: []BreakState{Open}, Limit: 5, Before: all[0].ID},
		"key":    {Key: "7.00", Limit: 5},
		"run":    {Run: 2, Type: MissingEffect, EventID: "7.00", Currency: "CNY", Limit: 5},
	} {
		found, _, err := breaks.List(t.Context(), f, o.now)
		if err != nil || len(found) != 1 || found[0].Key[0] != "7.00" {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	aging, err := breaks.Aging(t.Context(), "points", time.Now())
	if err != nil || len(aging) != 1 || aging[0].Items != 3 || !aging[0].Amount.Equal(amountOf(21)) || aging[0].UpTo != Ages[0] {
		t.Errorf("aging %+v, %v", aging, err)
	}
	said, err := breaks.Said(t.Context(), all[1].ID)
	if err != nil || len(said) != 2 || said[0].What != saidThere || said[1].What != saidNew {
		t.Errorf("said %+v, %v", said, err)
	}
	jobs, err := o.jobs.List(t.Context(), o.runs)
	if err != nil || len(jobs) != 1 || jobs[0].Open != 3 || jobs[0].Waiting != 3 || jobs[0].Last.ID != 3 {
		t.Errorf("jobs %+v, %v", jobs, err)
	}
	trend, err := o.jobs.Trend(t.Context(), "points", 10)
	if err != nil || len(trend) != 3 || trend[2].Keys != 1 || trend[2].Matched != 0 {
		t.Errorf("trend %+v, %v", trend, err)
	}
	runs, more, err := o.runs.List(t.Context(), RunFilter{Job: "points", States: []RunState{Complete}, Signs: []SignState{SignWaiting}, Limit: 2})
	if err != nil || !more || len(runs) != 2 || runs[0].ID != 3 {
		t.Errorf("runs %v, more %t, %v", runs, more, err)
	}
}

// Evidence is taken by what is in it, and given back byte for byte.
func TestEvidenceFiles(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("a", "5.00", time.Minute)
	o.run(0, 1)
	breaks := NewBreaks(o.console)
	page := []byte("%PDF-1.7 statement")
	if err := breaks.Attach(t.Context(), ada, 1, "statement.pdf", page); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"program": []byte("\x7fELF\x02\x01\x01"), "page": []byte("<html><script>"), "empty": nil, "large": make([]byte, MostFile+1), "archive.zip": zipOf(t, "../../x"), "broken.docx": []byte("PK\x03\x04"), "two\nlines": page} {
		if err := breaks.Attach(t.Context(), ada, 1, name, content); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
	files, err := breaks.Files(t.Context(), 1)
	if err != nil || len(files) != 1 || files[0].Content != nil || files[0].Bytes != int64(len(page)) {
		t.Fatalf("%+v, %v", files, err)
	}
	f, err := breaks.File(t.Context(), files[0].ID)
	if err != nil || string(f.Content) != string(page) || f.MediaType != "application/pdf" {
		t.Errorf("%+v, %v", f, err)
	}
	if err := breaks.Attach(t.Context(), ada, 99, "statement.pdf", page); !errors.Is(err, ErrNoBreak) {
		t.Errorf("a break that is not there: %v", err)
	}
	if err := breaks.Attach(t.Context(), ada, 1, `..\..\folder/book.xlsx`, zipOf(t, "[Content_Types].xml")); err != nil {
		t.Error(err)
	}
	if files, err = breaks.Files(t.Context(), 1); err != nil || len(files) != 2 || files[1].Name != "book.xlsx" {
		t.Errorf("%+v, %v", files, err)
	}
}

func zipOf(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	if _, err := w.Create(name); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
