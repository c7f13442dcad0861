package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/alert"
	"oncemore/internal/config"
	"oncemore/migrations/pgtest"
	"oncemore/reconcile"
)

const alertJob = `
job: points
schedule: "0 * * * *"
window: {size: 1h, overlap: 10m, grace: 5m}
consumed: {connection: pg, query: 'select id, amount, currency, at from c where at >= :from and at < :to', lookup: 'select id, amount, currency, at from c where id in (:keys)'}
effect: {connection: pg, query: 'select id, amount, currency, at from e where at >= :from and at < :to', lookup: 'select id, amount, currency, at from e where id in (:keys)'}
key: [id]
match: {mode: one_to_one, amount: amount, currency: currency, consumed_time: at, effect_time: at}
`

// What finance has to be told of: a failed run, one that does not come, more
// money than the config allows, and what has been open for too long.
func TestFinanceIsTold(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	now := time.Now()
	rules := map[string]config.AlertRule{"at_risk": {Above: -1, Amounts: map[string]string{"CNY": "100.00", "USD": "10"}}, "break_age": {Above: -1, OlderThan: 48 * time.Hour}}
	a := &app{pool: pool, conf: &config.Config{Alerts: config.Alerts{Rules: rules}}, clock: func() time.Time { return now }}
	a.reconcile.jobs = reconcile.NewJobs(pool)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		job, err := reconcile.ParseJob("points.yaml", []byte(alertJob))
		if err == nil {
			_, err = a.reconcile.jobs.Keep(t.Context(), tx, job, alertJob, "test")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	told := func() map[string]string {
		t.Helper()
		found := map[string]string{}
		for name, look := range map[string]look{"run_failed": a.lookForFailedRuns, "run_overdue": a.lookForOverdueRuns, "at_risk": a.lookAtRisk, "break_age": a.lookForOldBreaks} {
			conditions, err := look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range conditions {
				found[name+" "+c.Key] = alertWords("en", "alert."+name+".says", c.Args)
			}
		}
		return found
	}
	if quiet := told(); len(quiet) != 0 {
		t.Errorf("of a job that has just begun: %v", quiet)
	}
	breaks := `INSERT INTO reconcile_break (job, key, type, key_text, currency, amount, sides, opened_at, opened_run, seen_run)
		VALUES ('points', @key, @type, '{k}', @currency, @amount::numeric, '[{},{},{}]', @at, 1, 1)`
	for i, b := range []struct{ kind, currency, amount string }{
		{"missing_effect", "CNY", "60.00"}, {"duplicate_effect", "CNY", "-40.01"}, {"missing_effect", "USD", "10"}, {"timing", "USD", "500"}, {"missing_effect", "JPY", "9999"},
	} {
		args := pgx.NamedArgs{"key": []byte{byte(i)}, "type": b.kind, "currency": b.currency, "amount": b.amount, "at": now.Add(-72 * time.Hour)}
		if _, err := pool.Exec(t.Context(), breaks, args); err != nil {
			t.Fatal(err)
		}
	}
	failed := `INSERT INTO reconcile_run (job, version, kind, window_from, window_to, plan, plan_reason, asked_by, state, finished_at, error)
		VALUES ('points', 1, 2, @at, @at::timestamptz + interval '1 hour', 'merge', '', 'ada', 5, now(), 'the ledger does not answer')`
	if _, err := pool.Exec(t.Context(), failed, pgx.NamedArgs{"at": now}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(5 * time.Hour)
	got := told()
	want := map[string]string{
		"run_failed job/points":  "Run 1 of points failed, so nobody knows whether its window agrees: the ledger does not answer",
		"at_risk job/points/CNY": "100.01 CNY is at risk in points, in 2 open breaks; more than 100.00 CNY.",
		"break_age job/points":   "points has 4 open breaks, the oldest for 3 d 5 h.",
	}
	for key, text := range want {
		if got[key] != text {
			t.Errorf("%s: %q, want %q", key, got[key], text)
		}
	}
	if late := got["run_overdue job/points"]; len(got) != 4 || len(late) == 0 {
		t.Errorf("told %v", got)
	}
	if _, known := got[fmt.Sprintf("at_risk job/points/%s", "USD")]; known {
		t.Error("10 USD is not more than 10 USD, and timing is no money at risk")
	}
	for _, r := range a.alertRules() {
		if r.Name == "run_failed" && r.Severity != alert.Critical {
			t.Error("a failed run is critical")
		}
	}
}
