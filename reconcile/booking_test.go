package reconcile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// waits reports whether somebody waits for another booking. It asks by a pool of
// its own: those who wait may have all connections of the console's.
func (o *office) waits() bool {
	o.Helper()
	var n int
	err := o.pg.QueryRow(o.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = $1)",
		o.console.Config().ConnConfig.Database).Scan(&n)
	if err != nil {
		o.Fatal(err)
	}
	return n > 0
}

// Runs of one job at once find the same breaks and close the same ones: each is
// booked once, and the roll-forward counts it once.
func TestRunsAtOnceBookABreakOnce(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	together := func(from, to int) {
		t.Helper()
		held, err := o.console.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer held.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // ends it on failure
		if err := alone(t.Context(), held, "points"); err != nil {
			t.Fatal(err)
		}
		var runs errgroup.Group
		for range 3 {
			id := o.ask(from, to)
			runs.Go(func() error {
				run, err := o.runs.Do(t.Context(), id)
				if err == nil && run.State != Complete {
					err = fmt.Errorf("run %d is %s", id, run.State)
				}
				return err
			})
		}
		if err := until(func() (bool, error) { return o.waits(), nil }); err != nil {
			t.Fatal(err)
		}
		if err := held.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := runs.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		o.consume(fmt.Sprint("e", i), "1.00", time.Minute)
	}
	together(0, 1)
	same(t, "breaks", len(o.breaks()), 20)
	same(t, "opened", o.count("SELECT count(*) FROM reconcile_movement"), 20)

	for i := range 20 {
		o.credit(fmt.Sprint("e", i), "1.00", 30*time.Minute)
	}
	together(1, 2)
	same(t, "closed", o.count("SELECT count(*) FROM reconcile_movement WHERE kind = 'auto_closed'"), 20)
	run := o.run(2, 3)
	same(t, "closing", run.Roll.Currencies["CNY"].Closing, Line{0, amountOf(0)})
}

// A movement whose number is lower than one that a run has seen, and that is
// committed later, is in that run's roll-forward all the same.
func TestRollForwardMissesNoMovement(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("explained", "5.00", time.Minute)
	o.run(0, 1)
	o.consume("new", "7.00", time.Hour+time.Minute)
	id := o.ask(1, 2)

	explaining, err := o.console.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer explaining.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // ends it on failure
	if _, err := explaining.Exec(t.Context(), sqlAloneOf, pgx.NamedArgs{"ids": []int64{1}}); err != nil {
		t.Fatal(err)
	}
	batch := &pgx.Batch{}
	moveByHand(batch, lockedBreak{ID: 1, Job: "points", Currency: "CNY"}, MovedExplained, amountOf(-5), -1)
	if err := explaining.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	var run *Run
	var running errgroup.Group
	running.Go(func() (err error) {
		run, err = o.runs.Do(t.Context(), id)
		return err
	})
	if err := until(func() (bool, error) { return o.waits(), nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := explaining.Exec(t.Context(), "UPDATE reconcile_break SET state = 3 WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	if err := explaining.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := running.Wait(); err != nil {
		t.Fatal(err)
	}
	same(t, "explained", run.Roll.Currencies["CNY"].Moved[MovedExplained], Line{-1, amountOf(-5)})
	same(t, "closing", run.Roll.Currencies["CNY"].Closing, Line{1, amountOf(7)})
}

// An explanation waits for a run that books at the moment.
func TestExplainWaitsForABooking(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("a", "5.00", time.Minute)
	o.run(0, 1)
	held, err := o.console.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // ends it on failure
	if err := alone(t.Context(), held, "points"); err != nil {
		t.Fatal(err)
	}
	var explaining errgroup.Group
	explaining.Go(func() error {
		return NewBreaks(o.console).Explain(t.Context(), because(bob, "known"), []int64{1}, "known_defect")
	})
	if err := until(func() (bool, error) { return o.waits(), nil }); err != nil {
		t.Fatal(err)
	}
	if err := held.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := explaining.Wait(); err != nil {
		t.Fatal(err)
	}
	same(t, "breaks", o.breaks(), map[string]string{"a missing_effect": "3 5"})
}

// A break whose record is no longer kept has not become whole: it stays, with
// what it was about, until somebody explains it. An effect that nothing was
// consumed for is repaired by its removal.
func TestBreakOfRemovedRowsStays(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("lost", "100.00", time.Minute)
	o.credit("alien", "30.00", time.Minute)
	o.run(0, 1)
	o.exec("DELETE FROM consumed")
	o.execMySQL("DELETE FROM effect")
	run := o.run(1, 2)
	same(t, "breaks", o.breaks(), map[string]string{"lost missing_effect": "1 100", "alien effect_without_record": "6 -30"})
	same(t, "at risk", run.AtRisk, map[string]Line{"CNY": {1, amountOf(100)}})
	same(t, "closing", run.Roll.Currencies["CNY"].Closing, Line{1, amountOf(100)})
	b, err := NewBreaks(o.console).Get(t.Context(), int64(o.count("SELECT id FROM reconcile_break WHERE type = 'missing_effect'")))
	if err != nil || b.Sides[Consumed].Rows != 1 || !b.Sides[Consumed].Amount.Equal(amountOf(100)) {
		t.Errorf("the break was about %+v, %v", b.Sides, err)
	}
}

// What was only late, and is removed, is lost.
func TestLateRowsThatAreRemovedAreMissing(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "tolerance: {time: 1000h}\n")
	o.consume("late", "100.00", time.Minute)
	same(t, "at risk", len(o.run(0, 1).AtRisk), 0)
	o.exec("DELETE FROM consumed")
	run := o.run(1, 2)
	same(t, "breaks", o.breaks(), map[string]string{"late timing": "6 100", "late missing_effect": "1 100"})
	same(t, "at risk", run.AtRisk, map[string]Line{"CNY": {1, amountOf(100)}})
	same(t, "closing", run.Roll.Currencies["CNY"].Closing, Line{1, amountOf(100)})
}

// Amounts of two currencies are never taken from each other: what was credited in
// a wrong one is open money.
func TestWrongCurrencyIsOpenMoney(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "sign_off: {required: true, auto_below: \"50\"}\n")
	o.consume("wrong", "100.00", time.Minute)
	o.execMySQL("INSERT INTO effect VALUES ('wrong', 100.00, 'USD', ?)", noon.Add(time.Minute))
	o.consume("more", "10.00", time.Minute)
	o.credit("more", "10.00", time.Minute)
	o.exec("INSERT INTO consumed VALUES ('more', 3.00, 'EUR', $1)", noon.Add(time.Minute))
	o.execMySQL("INSERT INTO effect VALUES ('more', 0.00, 'CNY', ?)", noon.Add(time.Minute))
	run := o.run(0, 1)
	same(t, "breaks", o.breaks(), map[string]string{"wrong amount_mismatch": "1 -100", "more amount_mismatch": "1 3"})
	same(t, "at risk", run.AtRisk, map[string]Line{"EUR": {1, amountOf(3)}, "USD": {1, amountOf(100)}})
	same(t, "sign", run.Sign, SignWaiting)
}

// Nobody knows what a break without an amount is worth: it is below no threshold.
func TestUnknownAmountsAreNotSignedByThemselves(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "sign_off: {required: true, auto_below: \"50\"}\n")
	o.consume("small", "1.00", time.Minute)
	same(t, "sign of a known amount", signOf(o, o.run(0, 1)), Signed)
	o.exec("INSERT INTO consumed VALUES ('unknown', NULL, 'CNY', $1)", noon.Add(time.Hour))
	same(t, "sign of an unknown amount", signOf(o, o.run(1, 2)), SignWaiting)
}

func signOf(o *office, run *Run) SignState {
	o.Helper()
	stored, err := o.runs.Get(o.Context(), run.ID)
	if err != nil {
		o.Fatal(err)
	}
	return stored.Sign
}

// A proof that does not foot, and rows that have no key, are signed with a reason
// only: nothing else says why.
func TestSigningWhatDoesNotFootNeedsAReason(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.exec("INSERT INTO consumed VALUES (NULL, 5.00, 'CNY', $1)", noon.Add(time.Minute))
	run := o.run(0, 1)
	same(t, "at risk", len(run.AtRisk), 0)
	if err := o.runs.Sign(t.Context(), bob, run.ID, run.Seal, Checklist); err == nil {
		t.Error("signed without a reason, though a row has no key")
	}
	if err := o.runs.Sign(t.Context(), because(bob, "test data"), run.ID, run.Seal, Checklist); err != nil {
		t.Error(err)
	}
}

// What the console's database cannot hold costs its segment, and says so; it is
// not tried for ever.
func TestBreakThatCannotBeKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ id, want string }{
		"zero byte": {"a\x00b", "no text"},
		"long":      {strings.Repeat("k", 2100), "2102 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openOffice(t, "")
			o.execMySQL("ALTER TABLE effect MODIFY event_id varchar(3000)")
			o.credit(c.id, "1.00", time.Minute)
			o.consume("other", "1.00", time.Hour)
			run := o.run(0, 2)
			if run.State != Partial || !strings.Contains(said(run), c.want) {
				t.Errorf("run is %s: %s", run.State, said(run))
			}
			same(t, "breaks", o.breaks(), map[string]string{"other missing_effect": "1 1"})
		})
	}
}

// A break that was found by a key of another type cannot be looked for: it is not
// closed, and runs are partial until somebody explains it.
func TestBreakOfAnotherKeyType(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("00000000-0000-4000-8000-000000000001", "5.00", time.Minute)
	o.run(0, 1)
	o.exec("TRUNCATE consumed")
	o.exec("ALTER TABLE consumed ALTER event_id TYPE uuid USING event_id::uuid")
	run := o.run(1, 2)
	if run.State != Partial || !strings.Contains(said(run), "break 1 cannot be looked for") {
		t.Errorf("run is %s: %s", run.State, said(run))
	}
	same(t, "open", o.count("SELECT count(*) FROM reconcile_break WHERE state = 1"), 1)
	if err := NewBreaks(o.console).Explain(t.Context(), because(bob, "the key's type was changed"), []int64{1}, "other"); err != nil {
		t.Fatal(err)
	}
	same(t, "state", o.run(2, 3).State, Complete)
}

func said(run *Run) string {
	if run.Error == nil {
		return "nothing"
	}
	return *run.Error
}
