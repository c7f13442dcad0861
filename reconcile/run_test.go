package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
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
	var err error
	if o.runs, err = NewRuns(o.console, o.jobs, o.named, Options{Clock: func() time.Time { return o.now }, Log: quiet()}); err != nil {
		t.Fatal(err)
	}
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

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// doAll carries out every run that waits.
func (o *office) doAll() {
	o.Helper()
	rows, err := o.console.Query(o.Context(), "SELECT id FROM reconcile_run WHERE state <= 2 ORDER BY id")
	if err != nil {
		o.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		o.Fatal(err)
	}
	for _, id := range ids {
		if _, err := o.runs.Do(o.Context(), id); err != nil {
			o.Fatal(err)
		}
	}
}

// A process that dies in the middle leaves whole segments: the next one goes on
// after them, and nothing is found twice.
func TestRunIsResumedAfterACrash(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	for i := range 6 {
		o.consume(fmt.Sprintf("h%d", i), "1.00", time.Duration(i)*time.Hour+time.Minute)
	}
	id, err := o.runs.Ask(t.Context(), ada, Request{Job: "points", From: noon, To: noon.Add(6 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	dying, cancel := context.WithCancel(t.Context())
	clock := o.runs.opts.Clock
	var asked atomic.Int32
	o.runs.opts.Clock = func() time.Time {
		if asked.Add(1) == 3 {
			cancel()
		}
		return clock()
	}
	if _, err := o.runs.Do(dying, id); err == nil {
		t.Fatal("it did not die")
	}
	if _, err := o.console.Exec(t.Context(), "UPDATE reconcile_run SET lease_until = now() - interval '1 second'"); err != nil {
		t.Fatal(err)
	}
	o.runs.opts.Clock = clock
	run, err := o.runs.Do(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if run.State != Complete || !run.Tally.Foots() {
		t.Errorf("%s, unexplained %s", run.State, run.Tally.Unexplained("CNY"))
	}
	same(t, "opened", run.Roll.Currencies["CNY"].Moved[MovedOpened], Line{6, amountOf(6)})
}

// What cannot be trusted is refused with a sentence, and makes no break.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.consume("a", "1.00", time.Minute)
	o.exec("CREATE TABLE floats (event_id text, amount float8, currency text, at timestamptz)")
	o.readable()
	good := jobText("pg", "my", matchOne)
	for name, c := range map[string]struct{ old, new, want string }{
		"float amounts":  {"from consumed where at >= :from", "from floats where at >= :from", "cannot hold 0.10 exactly"},
		"lying column":   {"select event_id, amount, currency, at from consumed where at >=", "select event_id, amount as total, currency, at from consumed where at >=", "gives no column amount"},
		"no such table":  {"from consumed where at >= :from", "from consumer where at >= :from", "does not exist"},
		"ignores window": {"from consumed where at >= :from and at < :to", "from consumed where :from < :to", "outside of :from and :to"},
	} {
		o.define(strings.ReplaceAll(good, c.old, c.new))
		run := o.run(1, 2)
		if name == "ignores window" {
			same(t, name, run.State, Partial)
		} else {
			same(t, name, run.State, Failed)
		}
		if run.Error == nil || !strings.Contains(*run.Error, c.want) {
			t.Errorf("%s: error %v, want %q", name, run.Error, c.want)
		}
	}
	o.runs.databases["pg"] = Database{Name: "pg", Postgres: o.pg}
	o.define(good)
	if run := o.run(1, 2); run.State != Failed || !strings.Contains(*run.Error, "may change consumed") {
		t.Errorf("a connection that writes: %s %v", run.State, run.Error)
	}
	same(t, "breaks", o.breaks(), map[string]string{})
}

// More differences than the limit: the counts stay true, the run is partial.
func TestLimitGivesPartialWithTrueCounts(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "\nlimits: {breaks: 3, parallel: 1}\n")
	for i := range 5 {
		o.consume(fmt.Sprintf("m%d", i), "1.00", time.Minute)
	}
	run := o.run(0, 1)
	same(t, "state", run.State, Partial)
	same(t, "consumed", run.Tally.Totals[Consumed]["CNY"], Total{5, amountOf(5)})
	same(t, "breaks", len(o.breaks()), 3)
	if err := o.runs.Sign(t.Context(), because(bob, "x"), run.ID, run.Seal, Checklist); !errors.Is(err, ErrNotSignable) {
		t.Errorf("signed: %v", err)
	}
}
