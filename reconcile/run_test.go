package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/migrations/pgtest"
)

// office is books with a console that reconciles them.
type office struct {
	*books
	console *pgxpool.Pool
	jobs    *Jobs
	runs    *Runs
	now     time.Time
}

var (
	ada = access.Actor{User: "ada", Role: access.Operator, Via: "test"}
	bob = access.Actor{User: "bob", Role: access.Reviewer, Via: "test"}
)

// openOffice has a job of one hour's windows over empty sides in PostgreSQL
// (consumed) and MariaDB (effect).
func openOffice(t *testing.T, extra string) *office {
	t.Helper()
	o := &office{books: openBooks(t), console: pgtest.New(t), now: noon.Add(100 * time.Hour)}
	o.exec(fmt.Sprintf(tableConsumed, "consumed", "timestamptz"))
	o.execMySQL(fmt.Sprintf(tableConsumed, "effect", "timestamp(6) null"))
	o.readable()
	o.jobs = NewJobs(o.console)
	o.define(jobText("pg", "my", matchOne+extra))
	o.runs = NewRuns(o.console, o.jobs, o.named, Options{Clock: func() time.Time { return o.now }})
	return o
}

func (o *office) define(text string) {
	o.Helper()
	j := parseJob(o, text)
	err := pgx.BeginFunc(o.Context(), o.console, func(tx pgx.Tx) error {
		_, err := o.jobs.Keep(o.Context(), tx, j, text, "test")
		return err
	})
	if err != nil {
		o.Fatal(err)
	}
}

func (o *office) consume(id, amount string, at time.Duration) {
	o.Helper()
	o.exec("INSERT INTO consumed VALUES ($1, $2::numeric, 'CNY', $3)", id, amount, noon.Add(at))
}

func (o *office) credit(id, amount string, at time.Duration) {
	o.Helper()
	o.execMySQL("INSERT INTO effect VALUES (?, ?, 'CNY', ?)", id, amount, noon.Add(at))
}

// run compares hours after noon.
func (o *office) run(from, to int) *Run {
	o.Helper()
	id, err := o.runs.Ask(o.Context(), ada, Request{Job: "points", From: noon.Add(time.Duration(from) * time.Hour), To: noon.Add(time.Duration(to) * time.Hour)})
	if err != nil {
		o.Fatal(err)
	}
	run, err := o.runs.Do(o.Context(), id)
	if err != nil {
		o.Fatal(err)
	}
	return run
}

// breaks gives key, type and state of all breaks.
func (o *office) breaks() map[string]string {
	o.Helper()
	rows, err := o.console.Query(o.Context(), "SELECT key_text[1] || ' ' || type, state || ' ' || amount FROM reconcile_break")
	if err != nil {
		o.Fatal(err)
	}
	found := map[string]string{}
	var key, state string
	if _, err := pgx.ForEachRow(rows, []any{&key, &state}, func() error { found[key] = state; return nil }); err != nil {
		o.Fatal(err)
	}
	return found
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// A break lives until a run finds its key whole, comes back if it comes back, and
// the roll-forward accounts for each step.
func TestBreakLivesAcrossRuns(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("gone", "100.00", time.Minute)
	o.consume("whole", "50.00", time.Minute)
	o.credit("whole", "50.00", time.Minute)
	first := o.run(0, 2)
	same(t, "state", first.State, Complete)
	same(t, "breaks", o.breaks(), map[string]string{"gone missing_effect": "1 100"})
	same(t, "closing", first.Roll.Currencies["CNY"].Closing, Line{1, amountOf(100)})
	if !first.Tally.Foots() || first.Tally.Matched != 1 || len(first.Seal) != 32 || first.Sign != SignWaiting {
		t.Errorf("matched %d, unexplained %s, sign %d", first.Tally.Matched, first.Tally.Unexplained("CNY"), first.Sign)
	}

	o.credit("gone", "100.00", 5*time.Hour)
	second := o.run(2, 3) // another window: open breaks are read again all the same
	same(t, "breaks", o.breaks(), map[string]string{"gone missing_effect": "6 100"})
	c := second.Roll.Currencies["CNY"]
	same(t, "opening", c.Opening, Line{1, amountOf(100)})
	same(t, "auto-closed", c.Moved[MovedAutoClosed], Line{-1, amountOf(-100)})
	same(t, "closing", c.Closing, Line{0, amountOf(0)})

	o.execMySQL("DELETE FROM effect WHERE event_id = 'gone'")
	third := o.run(0, 1)
	same(t, "breaks", o.breaks(), map[string]string{"gone missing_effect": "7 100"})
	same(t, "reopened", third.Roll.Currencies["CNY"].Moved[MovedReopened], Line{1, amountOf(100)})
	same(t, "at risk", third.AtRisk["CNY"], Line{1, amountOf(100)})
}

// A single key is read again without a window, closes its break, and leaves
// others alone.
func TestRunOfKeys(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("a", "1.00", time.Minute)
	o.consume("b", "2.00", time.Minute)
	o.run(0, 1)
	o.credit("a", "1.00", time.Hour)
	o.credit("b", "2.00", time.Hour)
	id, err := o.runs.Ask(t.Context(), ada, Request{Job: "points", Keys: [][]string{{"a"}}})
	if err != nil {
		t.Fatal(err)
	}
	run, err := o.runs.Do(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "breaks", o.breaks(), map[string]string{"a missing_effect": "6 1", "b missing_effect": "1 2"})
	same(t, "state and sign", fmt.Sprint(run.State, run.Sign), fmt.Sprint(Complete, SignNone))
}
