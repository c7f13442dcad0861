package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"oncemore/compensate"
	"oncemore/consumer/barrier"
	"oncemore/internal/access"
	"oncemore/internal/testkit"
	"oncemore/reconcile"
	"oncemore/web"
)

const (
	creditAction = `
action: credit
applies_to: [missing_effect]
group: points-consumer-group
kind: sql
connection: shop
sql: insert into effect values (:event_id, :consumed.amount::numeric, :currency, '2026-11-30 12:03Z')
approval: {checkers: 1, above: {amount: "1000", checkers: 2}}
limits: {per_batch: 200}
`
	callAction = `
action: call
applies_to: [missing_effect]
kind: http
url: "{{points-api}}/credit/{{key.event_id}}"
headers: {X-Currency: "{{currency}}"}
body: {eventId: "{{key.event_id}}", amount: "{{consumed.amount}}"}
attempts: {max: 1}
`
	takeBackAction = `
action: take-back
applies_to: [duplicate_effect, amount_mismatch, missing_effect]
kind: saga
steps:
  - {id: reserve, kind: http, url: "{{points-api}}/reserve/{{key.event_id}}", compensate: release}
  - {id: settle, kind: http, url: "{{points-api}}/settle/{{key.event_id}}", compensate: release}
attempts: {max: 3, initial: 300ms}
`
	releaseAction = `
action: release
kind: http
url: "{{points-api}}/release/{{key.event_id}}"
attempts: {max: 1}
`
)

// cut is no status: the connection is cut instead of an answer.
const cut = 0

// repairs is an office whose breaks can be repaired: by a statement, and by calls
// to a service that answers as the test says.
type repairs struct {
	*office
	*compensate.Compensations

	mu     sync.Mutex
	status map[string]int // by path; 201 where it says nothing
	once   map[string]int // by path, for the next call alone
	called []string
}

func setupRepairs(t *testing.T, change ...func(*web.Deps)) *repairs {
	t.Helper()
	r := &repairs{status: map[string]int{}, once: map[string]int{}}
	service := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(service.Close)
	r.office = setupOffice(t, append(change, func(d *web.Deps) {
		var err error
		r.Compensations, err = compensate.New(compensate.Config{
			Pool: d.Pool, Actions: compensate.NewActions(d.Pool), Runs: d.Reconcile.Runs, Breaks: d.Reconcile.Breaks, Jobs: d.Reconcile.Jobs,
			Letters: d.Letters, Judge: d.Judge, Replays: compensate.SafeReplays{Letters: d.Letters, Replays: d.Replays},
			Bases: map[string]compensate.Base{"points-api": {URL: service.URL, Headers: map[string]string{"X-Api-Key": "hunter2"}}}, Log: quiet,
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Compensations = r.Compensations
	})...)
	r.Targets = map[string]compensate.Target{"shop": {Postgres: r.business}}
	r.exec(t, barrier.DDL)
	for _, text := range []string{creditAction, callAction, takeBackAction, releaseAction} {
		r.define(t, text)
	}
	r.reconcile(t)
	return r
}

func (r *repairs) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.called = append(r.called, q.URL.Path)
	status, said := r.status[q.URL.Path]
	if !said {
		status = http.StatusCreated
	}
	if next, stumbles := r.once[q.URL.Path]; stumbles {
		status = next
		delete(r.once, q.URL.Path)
	}
	if event, settles := strings.CutPrefix(q.URL.Path, "/settle/"); settles && status == http.StatusCreated {
		if _, err := r.business.Exec(context.WithoutCancel(q.Context()), sqlTakeBack, event); err != nil {
			status = http.StatusInternalServerError
		}
	}
	if status == cut {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"path": %q}`, q.URL.Path)
}

// sqlTakeBack leaves one entry of an event that has several.
const sqlTakeBack = `DELETE FROM effect WHERE event_id = $1 AND ctid <> (SELECT min(ctid) FROM effect WHERE event_id = $1)`

// stumbles makes the next call of a path answer otherwise.
func (r *repairs) stumbles(path string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.once[path] = status
}

func (r *repairs) answers(path string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status[path] = status
}

func (r *repairs) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := r.business.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (r *repairs) define(t *testing.T, text string) {
	t.Helper()
	a, err := compensate.ParseAction("action.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), r.pool, func(tx pgx.Tx) error {
		_, err := r.Actions.Keep(t.Context(), tx, a, text, "test")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reconcile runs the window: e-2 was consumed and is not in effect.
func (r *repairs) reconcile(t *testing.T) {
	t.Helper()
	actor := access.Actor{User: "operator", Role: access.Operator, Via: "test"}
	from := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	id, err := r.runs.Ask(t.Context(), actor, reconcile.Request{Job: "points", From: from, To: from.Add(time.Hour)})
	if err == nil {
		_, err = r.runs.Do(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// consumed adds events that nothing came of, and finds them.
func (r *repairs) consumed(t *testing.T, n int, amount string) {
	t.Helper()
	r.exec(t, `INSERT INTO consumed SELECT 'm-' || $2 || '-' || i, $2::text::numeric, 'CNY', '2026-11-30 12:05Z' FROM generate_series(1, $1) i`, n, amount)
	r.reconcile(t)
}

// missing is the break of an event.
func (r *repairs) missing(t *testing.T, event string) int64 {
	t.Helper()
	found, _, err := r.Breaks.List(t.Context(), reconcile.BreakFilter{EventID: event, Limit: 1}, time.Now())
	if err != nil || len(found) != 1 {
		t.Fatalf("break of %s: %v, %v", event, found, err)
	}
	return found[0].ID
}

// work carries out what is approved, until the test ends.
func (r *repairs) work(t *testing.T) {
	t.Helper()
	workers := river.NewWorkers()
	r.AddWorkers(workers)
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Queues: map[string]river.QueueConfig{compensate.Queue: {MaxWorkers: 4}}, Workers: workers, Logger: quiet,
		FetchPollInterval: 100 * time.Millisecond, FetchCooldown: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := client.StopAndCancel(ctx); err != nil {
			t.Logf("stop the steps: %v", err)
		}
	})
}

// comesTo waits until a compensation is in a state of the engine.
func (r *repairs) comesTo(t *testing.T, id int64, want compensate.State) {
	t.Helper()
	testkit.Eventually(t, 30*time.Second, func() bool {
		c, err := r.Get(t.Context(), id)
		return err == nil && c.State == want
	}, "C-%d is %s", id, want)
}
