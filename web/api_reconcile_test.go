package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/migrations/pgtest"
	"oncemore/reconcile"
	"oncemore/web"
)

const pointsJob = `
job: points
window: {size: 1h, grace: 5m}
consumed: {connection: shop, query: 'select event_id, amount, currency, at from consumed where at >= :from and at < :to', lookup: 'select event_id, amount, currency, at from consumed where event_id in (:keys)'}
effect: {connection: shop, query: 'select event_id, amount, currency, at from effect where at >= :from and at < :to', lookup: 'select event_id, amount, currency, at from effect where event_id in (:keys)'}
key: [event_id]
match: {mode: one_to_one, amount: amount, currency: currency, consumed_time: at, effect_time: at}
`

// office is the API over a job on a business database of its own.
type office struct {
	*shop
	business *pgxpool.Pool
	runs     *reconcile.Runs
}

func setupOffice(t *testing.T, change ...func(*web.Deps)) *office {
	t.Helper()
	l := &office{business: pgtest.Open(t, pgtest.Empty(t))}
	role := "r_" + l.business.Config().ConnConfig.Database
	for _, sql := range []string{
		"CREATE TABLE consumed (event_id text, amount numeric, currency text, at timestamptz)",
		"CREATE TABLE effect (event_id text, amount numeric, currency text, at timestamptz)",
		"CREATE ROLE " + role + " LOGIN PASSWORD 'reader'", "GRANT SELECT ON consumed, effect TO " + role,
		"INSERT INTO consumed VALUES ('e-1', 100.00, 'CNY', '2026-11-30 12:01Z'), ('e-2', 7.50, 'CNY', '2026-11-30 12:02Z')",
		"INSERT INTO effect VALUES ('e-1', 100.00, 'CNY', '2026-11-30 12:01Z')",
	} {
		if _, err := l.business.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	conf := l.business.Config().Copy()
	conf.ConnConfig.User, conf.ConnConfig.Password = role, "reader"
	reader, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		reader.Close()
		for _, drop := range []string{"DROP OWNED BY ", "DROP ROLE "} {
			if _, err := l.business.Exec(context.Background(), drop+role); err != nil {
				t.Errorf("%s: %v", drop, err)
			}
		}
	})
	l.shop = setupShop(t, append([]func(*web.Deps){func(d *web.Deps) { l.wire(t, d, reader) }}, change...)...)
	return l
}

func (l *office) wire(t *testing.T, d *web.Deps, reader *pgxpool.Pool) {
	t.Helper()
	jobs := reconcile.NewJobs(d.Pool)
	job, err := reconcile.ParseJob("points.yaml", []byte(pointsJob))
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), d.Pool, func(tx pgx.Tx) error {
		_, err := jobs.Keep(t.Context(), tx, job, pointsJob, "test")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	databases := map[string]reconcile.Database{"shop": {Name: "shop", Postgres: reader}}
	l.runs, err = reconcile.NewRuns(d.Pool, jobs, databases, reconcile.Options{
		Clock: func() time.Time { return time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) }, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	d.Reconcile = web.Reconciliation{Jobs: jobs, Runs: l.runs, Breaks: reconcile.NewBreaks(d.Pool)}
}

// read unmarshals an answer that has to have the status.
func read(t *testing.T, r reply, status int, into any) {
	t.Helper()
	if r.status != status {
		t.Fatalf("%d, want %d: %s", r.status, status, r.body)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(r.body), into); err != nil {
			t.Fatal(err)
		}
	}
}

// A run is asked for, read with its proof, its break is assigned and explained,
// and somebody else signs: each answer as the document says.
func TestReconciliationThroughTheAPI(t *testing.T) {
	t.Parallel()
	l := setupOffice(t)
	operator, reviewer, viewer := l.token(t, access.Operator), l.token(t, access.Reviewer), l.token(t, access.Viewer)
	window := `{"from": "2026-11-30T12:00:00Z", "to": "2026-11-30T13:00:00Z"}`
	read(t, l.checked(t, viewer, "POST", "/api/v1/reconciliations/points/runs", window), http.StatusForbidden, nil)
	var run struct {
		ID    int64
		State string
		Seal  *string
		Proof []struct {
			Lines       map[string]struct{ Amount string }
			Unexplained string
		}
	}
	read(t, l.checked(t, operator, "POST", "/api/v1/reconciliations/points/runs", window), http.StatusAccepted, &run)
	if _, err := l.runs.Do(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/api/v1/runs/%d", run.ID)
	read(t, l.checked(t, viewer, "GET", path, ""), http.StatusOK, &run)
	if run.State != "complete" || run.Proof[0].Unexplained != "0" || run.Proof[0].Lines["missing_effect"].Amount != "7.5" {
		t.Errorf("run %+v", run)
	}
	var breaks struct {
		Items []struct {
			ID      int64
			EventID string `json:"event_id"`
			Amount  string
			State   string
		}
	}
	read(t, l.checked(t, viewer, "GET", path+"/breaks", ""), http.StatusOK, &breaks)
	if len(breaks.Items) != 1 || breaks.Items[0].EventID != "e-2" || breaks.Items[0].Amount != "7.5" {
		t.Fatalf("breaks %+v", breaks)
	}
	id := breaks.Items[0].ID
	read(t, l.checked(t, operator, "POST", "/api/v1/breaks/assign", fmt.Sprintf(`{"ids": [%d], "owner": "operator"}`, id)), http.StatusNoContent, nil)
	explain := fmt.Sprintf(`{"ids": [%d], "reason_code": "manual_booking", "reason": "paid by hand"}`, id)
	read(t, l.checked(t, operator, "POST", "/api/v1/breaks/explain", explain), http.StatusForbidden, nil)
	read(t, l.checked(t, reviewer, "POST", "/api/v1/breaks/explain", explain), http.StatusNoContent, nil)
	one := fmt.Sprintf("/api/v1/breaks/%d", id)
	read(t, l.checked(t, reviewer, "POST", one+"/comments", `{"text": "seen on the statement"}`), http.StatusOK, nil)
	detail := l.checked(t, viewer, "GET", one, "")
	for _, want := range []string{`"explained"`, `"seen on the statement"`, `"paid by hand"`} {
		if !strings.Contains(detail.body, want) {
			t.Errorf("%s is not in %s", want, detail.body)
		}
	}
	sign := fmt.Sprintf(`{"act": "sign", "seal": %q, "checklist": ["totals", "breaks", "explanations"], "reason": "one is explained"}`, *run.Seal)
	read(t, l.checked(t, operator, "POST", path+"/sign-off", sign), http.StatusForbidden, nil)
	read(t, l.checked(t, reviewer, "POST", path+"/sign-off", sign), http.StatusOK, nil)
	for _, list := range []string{"/segments", "/log", "/signatures"} {
		read(t, l.checked(t, viewer, "GET", path+list, ""), http.StatusOK, nil)
	}
	for _, list := range []string{"/api/v1/reconciliations", "/api/v1/reconciliations/points", "/api/v1/reconciliations/points/runs?state=complete&sign_off=signed", "/api/v1/breaks?state=all&type=missing_effect&owner=operator&amount_min=7.50"} {
		read(t, l.checked(t, viewer, "GET", list, ""), http.StatusOK, nil)
	}
	read(t, l.checked(t, reviewer, "POST", one+"/unexplain", `{"reason": "not so"}`), http.StatusOK, nil)
	read(t, l.checked(t, operator, "POST", one+"/recheck", ""), http.StatusAccepted, nil)
	read(t, l.checked(t, operator, "POST", "/api/v1/reconciliations/points/pause", `{"reason": "migration"}`), http.StatusNoContent, nil)
	read(t, l.checked(t, operator, "POST", "/api/v1/reconciliations/points/resume", `{"reason": "done"}`), http.StatusNoContent, nil)
}

func TestReconciliationRefusesBadInput(t *testing.T) {
	t.Parallel()
	l := setupOffice(t)
	operator := l.token(t, access.Operator)
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/api/v1/reconciliations/none", "", 404, ""},
		{"GET", "/api/v1/runs/99", "", 404, ""},
		{"GET", "/api/v1/breaks/99", "", 404, ""},
		{"GET", "/api/v1/breaks?sort=amount", "", 400, ""},
		{"GET", "/api/v1/breaks?state=gone", "", 400, ""},
		{"GET", "/api/v1/breaks?amount_min=much", "", 400, ""},
		{"GET", "/api/v1/breaks?older_than=soon", "", 400, ""},
		{"POST", "/api/v1/reconciliations/points/runs", `{}`, 422, ""},
		{"POST", "/api/v1/reconciliations/points/runs", `{"from": "2026-11-30T13:00:00Z", "to": "2026-11-30T12:00:00Z"}`, 422, "it ends at 2026-11-30T12:00:00Z, and begins at"},
		{"POST", "/api/v1/reconciliations/points/runs", `{"from": "2026-11-30T12:00:00Z", "to": "2026-12-01T00:00:00Z"}`, 422, "may be looked at from 2026-12-01T00:05:00Z on"},
		{"POST", "/api/v1/reconciliations/points/runs", `{"keys": [["e-1"]], "plan": "guess"}`, 422, "there are merge and join"},
		{"POST", "/api/v1/reconciliations/points/runs", `{"keys": [["e-1", "2"]]}`, 422, "has 2 parts, and the job's has 1: event_id"},
		{"POST", "/api/v1/breaks/assign", `{"ids": [], "owner": "ada"}`, 422, ""},
		{"POST", "/api/v1/breaks/assign", `{"ids": [99], "owner": "ada"}`, 404, ""},
	} {
		r := l.checked(t, operator, c.method, c.path, c.body)
		if r.status != c.status || !strings.Contains(r.body, c.says) {
			t.Errorf("%s %s %s: %d, want %d and %q: %s", c.method, c.path, c.body, r.status, c.status, c.says, r.body)
		}
	}
}
