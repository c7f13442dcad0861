package compensate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/barrier"
	"oncemore/internal/access"
	"oncemore/migrations/pgtest"
	"oncemore/reconcile"
)

var (
	maker   = access.Actor{User: "max", Role: access.Operator, Via: "test", Reason: "customer called"}
	checker = access.Actor{User: "cleo", Role: access.Approver, Via: "test", Reason: "looks right"}
	second  = access.Actor{User: "dora", Role: access.Approver, Via: "test", Reason: "agreed"}
	noon    = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
)

// bank is a service that credits points, and the console that repairs what it
// missed.
type bank struct {
	*testing.T
	console  *pgxpool.Pool
	business *pgxpool.Pool
	reading  *pgxpool.Pool // by a role that only reads
	runs     *reconcile.Runs
	breaks   *reconcile.Breaks
	actions  *Actions
	*Compensations

	mu      sync.Mutex
	now     time.Time
	calls   []string // method, path, Idempotency-Key
	respond func(w http.ResponseWriter, r *http.Request)
}

const bankJob = `
job: points
window: {size: 1h, overlap: 10m, grace: 5m}
consumed: {connection: pg, query: 'select event_id, amount, at from consumed where at >= :from and at < :to', lookup: 'select event_id, amount, at from consumed where event_id in (:keys)'}
effect: {connection: pg, query: 'select event_id, amount, at from effect where at >= :from and at < :to', lookup: 'select event_id, amount, at from effect where event_id in (:keys)'}
key: [event_id]
match: {mode: one_to_one, amount: amount, currency: none, consumed_time: at, effect_time: at}
`

func openBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{T: t, console: pgtest.New(t), business: pgtest.Open(t, pgtest.Empty(t)), now: noon.Add(100 * time.Hour)}
	for _, table := range []string{"consumed", "effect"} {
		b.exec("CREATE TABLE " + table + " (event_id text, amount numeric, at timestamptz)")
	}
	b.exec(barrier.DDL)
	b.reading = b.reader()
	b.keepJob(bankJob)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	server := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(server.Close)
	var err error
	if b.Compensations, err = assemble(b.console, b.business, b.reading, server.URL, b.clock, log); err != nil {
		t.Fatal(err)
	}
	b.runs, b.breaks, b.actions = b.Runs, b.Breaks, b.Actions
	return b
}

func (b *bank) keepJob(text string) {
	b.Helper()
	b.keep(func(tx pgx.Tx) error {
		j, err := reconcile.ParseJob("job.yaml", []byte(text))
		if err == nil {
			_, err = reconcile.NewJobs(b.console).Keep(b.Context(), tx, j, text, "test")
		}
		return err
	})
}

// assemble makes the engine of one process.
func assemble(console, business, reading *pgxpool.Pool, url string, clock func() time.Time, log *slog.Logger) (*Compensations, error) {
	jobs := reconcile.NewJobs(console)
	runs, err := reconcile.NewRuns(console, jobs, map[string]reconcile.Database{"pg": {Name: "pg", Postgres: reading}}, reconcile.Options{Clock: clock, Log: log})
	if err != nil {
		return nil, err
	}
	return New(Config{
		Pool: console, Actions: NewActions(console), Runs: runs, Breaks: reconcile.NewBreaks(console), Jobs: jobs, Targets: map[string]Target{"pg": {Postgres: business}},
		Bases: map[string]Base{"points-api": {URL: url}}, Clock: clock, Log: log,
	})
}

// reader is a pool on the business database whose role only reads.
func (b *bank) reader() *pgxpool.Pool {
	b.Helper()
	role := "r_" + b.business.Config().ConnConfig.Database
	b.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'reader'")
	b.exec("GRANT SELECT ON consumed, effect TO " + role)
	b.Cleanup(func() {
		for _, drop := range []string{"DROP OWNED BY ", "DROP ROLE "} {
			if _, err := b.business.Exec(context.Background(), drop+role); err != nil {
				b.Errorf("%s: %v", drop, err)
			}
		}
	})
	conf := b.business.Config().Copy()
	conf.ConnConfig.User, conf.ConnConfig.Password = role, "reader"
	pool, err := pgxpool.NewWithConfig(b.Context(), conf)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	return pool
}

func (b *bank) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.business.Exec(b.Context(), sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

func (b *bank) keep(do func(pgx.Tx) error) {
	b.Helper()
	if err := pgx.BeginFunc(b.Context(), b.console, do); err != nil {
		b.Fatal(err)
	}
}

func (b *bank) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *bank) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// serve credits what is asked for, unless the test has other answers.
func (b *bank) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	b.calls = append(b.calls, r.Method+" "+r.URL.Path+" "+r.Header.Get("Idempotency-Key"))
	respond := b.respond
	b.mu.Unlock()
	if respond != nil {
		respond(w, r)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (b *bank) called() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.calls...)
}

func (b *bank) answers(respond func(w http.ResponseWriter, r *http.Request)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.respond = respond
}

func (b *bank) define(text string) {
	b.Helper()
	a, err := ParseAction("action.yaml", []byte(text))
	if err != nil {
		b.Fatal(err)
	}
	b.keep(func(tx pgx.Tx) error {
		_, err := b.actions.Keep(b.Context(), tx, a, text, "test")
		return err
	})
}

// missing makes a break of an event that was consumed and not credited.
func (b *bank) missing(id string, amount int) int64 {
	b.Helper()
	b.exec("INSERT INTO consumed VALUES ($1, $2, $3)", id, amount, noon.Add(time.Minute))
	run, err := b.runs.Ask(b.Context(), maker, reconcile.Request{Job: "points", From: noon, To: noon.Add(time.Hour)})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.runs.Do(b.Context(), run); err != nil {
		b.Fatal(err)
	}
	found, _, err := b.breaks.List(b.Context(), reconcile.BreakFilter{EventID: id, Limit: 1}, b.clock())
	if err != nil || len(found) != 1 {
		b.Fatalf("%v, %v", found, err)
	}
	return found[0].ID
}

// propose asks for one repair.
func (b *bank) propose(action string, id int64) *Compensation {
	b.Helper()
	ids, err := b.Propose(b.Context(), maker, action, []int64{id})
	if err != nil {
		b.Fatal(err)
	}
	return b.get(ids[0])
}

func (b *bank) get(id int64) *Compensation {
	b.Helper()
	c, err := b.Get(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// approved proposes and approves.
func (b *bank) approved(action string, id int64) *Compensation {
	b.Helper()
	c := b.propose(action, id)
	if err := b.Approve(b.Context(), checker, c.ID, c.Hash); err != nil {
		b.Fatal(err)
	}
	return c
}

// do carries a compensation on, step by step, until it waits for something that
// is not due.
func (b *bank) do(id int64) *Compensation {
	b.Helper()
	if _, err := b.step(b.Context(), id, -1); err != nil {
		b.Fatal(err)
	}
	return b.get(id)
}

const sqlCredit = `
action: credit
applies_to: [missing_effect]
group: points-consumer-group
kind: sql
connection: pg
sql: insert into effect values (:event_id, :consumed.amount::numeric, now())
`

const httpCredit = `
action: call
applies_to: [missing_effect]
group: points-consumer-group
kind: http
url: "{{points-api}}/credit/{{key.event_id}}"
body: {eventId: "{{key.event_id}}", amount: "{{consumed.amount}}"}
attempts: {max: 3, initial: 10s}
`

func TestCreditIsApprovedExecutedAndVerified(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(sqlCredit)
	id := b.missing("e-1", 100)
	c := b.approved("credit", id)
	if c = b.do(c.ID); c.State != Verified {
		t.Fatalf("%s: %s", c.State, text(c.Why, ""))
	}
	got, err := b.breaks.Get(t.Context(), id)
	if err != nil || got.State != reconcile.Verified || *got.ClosedHow != "compensated" {
		t.Errorf("break %s, %v", got.State, err)
	}
	if _, err := b.Propose(t.Context(), maker, "credit", []int64{id}); err == nil {
		t.Error("a break that is repaired was proposed again")
	}
	var rows int
	if err := b.business.QueryRow(t.Context(), "SELECT count(*) FROM effect").Scan(&rows); err != nil || rows != 1 {
		t.Errorf("%d effects, %v", rows, err)
	}
}

func TestCallsEndInTheirStates(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	for i, c := range []struct {
		status int
		state  State
		calls  int
	}{{201, NeedsAttention, 1}, {401, NeedsAttention, 1}, {422, NeedsAttention, 1}, {409, NeedsAttention, 3}, {429, NeedsAttention, 3}, {503, NeedsAttention, 3}} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			id := b.missing(fmt.Sprintf("e-%d", i), 100)
			b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) })
			before := len(b.called())
			comp := b.approved("call", id)
			for range 5 {
				if comp = b.get(comp.ID); comp.State.Ended() || comp.State == NeedsAttention {
					break
				}
				comp = b.do(comp.ID)
				b.pass(time.Minute)
			}
			if comp.State != c.state || len(b.called())-before != c.calls {
				t.Errorf("%s after %d calls: %s", comp.State, len(b.called())-before, text(comp.Why, ""))
			}
		})
	}
}

// Nobody approves their own, what has changed, what is too old, or alone what
// needs two; and a rejection needs a reason.
func TestApprovalIsRefused(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(strings.Replace(sqlCredit, "kind: sql", "kind: sql\napproval: {checkers: 1, above: {amount: \"50\", checkers: 2}, expires: 1h}", 1))
	id := b.missing("e-1", 100)
	c := b.propose("credit", id)
	own := maker
	own.Role = access.Admin
	for name, try := range map[string]struct {
		actor access.Actor
		hash  []byte
		want  error
	}{
		"own":        {own, c.Hash, ErrOwn},
		"role":       {access.Actor{User: "eve", Role: access.Operator}, c.Hash, access.ErrForbidden},
		"other hash": {checker, []byte("seen before"), ErrVoid},
	} {
		if err := b.Approve(t.Context(), try.actor, c.ID, try.hash); !errors.Is(err, try.want) {
			t.Errorf("%s: %v, want %v", name, err, try.want)
		}
	}
	if err := b.Approve(t.Context(), checker, c.ID, c.Hash); err != nil {
		t.Fatal(err)
	}
	if got := b.get(c.ID); got.State != Proposed {
		t.Errorf("one of two has approved, and it is %s", got.State)
	}
	if err := b.Approve(t.Context(), checker, c.ID, c.Hash); !errors.Is(err, ErrState) {
		t.Errorf("the same checker twice: %v", err)
	}
	if err := b.Approve(t.Context(), second, c.ID, c.Hash); err != nil {
		t.Fatal(err)
	}
	if got := b.get(c.ID); got.State != Approved {
		t.Errorf("both have approved, and it is %s", got.State)
	}

	late := b.propose("credit", b.missing("e-2", 10))
	b.pass(2 * time.Hour)
	if err := b.Approve(t.Context(), checker, late.ID, late.Hash); !errors.Is(err, ErrExpired) || b.get(late.ID).State != Expired {
		t.Errorf("after two hours: %v, %s", err, b.get(late.ID).State)
	}
	changed := b.propose("credit", b.missing("e-3", 10))
	b.define(strings.Replace(sqlCredit, "now())", "now() )", 1))
	if err := b.Approve(t.Context(), checker, changed.ID, changed.Hash); !errors.Is(err, ErrVoid) || b.get(changed.ID).State != Voided {
		t.Errorf("another version of the action: %v, %s", err, b.get(changed.ID).State)
	}
}

// Fifty people press at once: one proposal, one execution.
func TestManyPressAtOnce(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(sqlCredit)
	id := b.missing("e-1", 100)
	var made, proposed atomic.Int64
	var presses sync.WaitGroup
	for range 50 {
		presses.Go(func() {
			if ids, err := b.Propose(t.Context(), maker, "credit", []int64{id}); err == nil {
				made.Add(1)
				proposed.Store(ids[0])
			} else if !errors.Is(err, ErrTwice) {
				t.Error(err)
			}
		})
	}
	presses.Wait()
	if made.Load() != 1 {
		t.Fatalf("%d proposals", made.Load())
	}
	c := b.get(proposed.Load())
	if err := b.Approve(t.Context(), checker, c.ID, c.Hash); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		presses.Go(func() {
			if _, err := b.step(context.WithoutCancel(t.Context()), c.ID, -1); err != nil && !errors.Is(err, errFenced) {
				t.Error(err)
			}
		})
	}
	presses.Wait()
	var effects int
	if err := b.business.QueryRow(t.Context(), "SELECT count(*) FROM effect").Scan(&effects); err != nil || effects != 1 {
		t.Errorf("%d effects, %v", effects, err)
	}
}

// What somebody else has repaired meanwhile is not repaired again.
func TestNotNeeded(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	id := b.missing("e-1", 100)
	c := b.approved("call", id)
	b.exec("INSERT INTO effect VALUES ('e-1', 100, $1)", noon.Add(2*time.Hour))
	if c = b.do(c.ID); c.State != NotNeeded || len(b.called()) != 0 {
		t.Errorf("%s after %d calls", c.State, len(b.called()))
	}
}
