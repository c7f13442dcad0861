package compensate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/barrier"
	"oncemore/internal/access"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const undoAction = `
action: undo
kind: http
url: "{{points-api}}/undo"
body: {eventId: "{{key.event_id}}"}
`

const sagaHead = `
action: repair
applies_to: [missing_effect]
group: points-consumer-group
kind: saga
attempts: {max: 2, initial: 10s}
verify: none
`

const threeSteps = sagaHead + `steps:
  - {id: a, kind: http, url: "{{points-api}}/a", compensate: undo}
  - {id: b, kind: http, url: "{{points-api}}/b", compensate: undo}
  - {id: c, kind: http, url: "{{points-api}}/c", compensate: undo}
`

// participants keep a barrier in the business database, and a row for each step
// that stands.
type participants struct {
	*bank
	answer func(step string, op barrier.Op) int // 0: do it
}

func openParticipants(t *testing.T, saga string) *participants {
	p := &participants{bank: openBank(t), answer: func(string, barrier.Op) int { return 0 }}
	p.exec("CREATE TABLE stands (step text)")
	p.define(undoAction)
	p.define(saga)
	p.answers(p.take)
	return p
}

// take is a participant as docs/compensation.md asks for.
func (p *participants) take(w http.ResponseWriter, r *http.Request) {
	m, err := barrier.FromHeader(r.Header)
	if err != nil {
		barrier.Answer(w, "", err)
		return
	}
	if status := p.answer(m.Step, m.Op); status != 0 {
		w.WriteHeader(status)
		return
	}
	d, err := p.effect(r, m)
	barrier.Answer(w, d, err)
}

func (p *participants) effect(r *http.Request, m barrier.Mark) (d barrier.Decision, err error) {
	err = pgx.BeginFunc(r.Context(), p.business, func(tx pgx.Tx) error {
		if d, err = barrier.Enter(r.Context(), tx, m); err != nil || !d.Applies() {
			return err
		}
		statement := "INSERT INTO stands VALUES ($1)"
		if m.Op == barrier.Cancel {
			statement = "DELETE FROM stands WHERE step = $1"
		}
		_, err = tx.Exec(r.Context(), statement, m.Step)
		return err
	})
	return d, err
}

// standing lists the effects that are there, one per effect and not per step.
func (p *participants) standing() string {
	p.Helper()
	rows, err := p.business.Query(p.Context(), "SELECT step FROM stands ORDER BY step")
	if err != nil {
		p.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		p.Fatal(err)
	}
	return strings.Join(all, " ")
}

// steps are the calls so far, by step and operation: a a:cancel.
func (p *participants) steps() string {
	var all []string
	for _, c := range p.called() {
		_, key, _ := strings.Cut(c[strings.LastIndex(c, " ")+1:], ":")
		all = append(all, key)
	}
	return strings.Join(all, " ")
}

// saga proposes and approves one, and carries it on over its waits.
func (p *participants) saga() *Compensation {
	p.Helper()
	return p.carry(p.approved("repair", p.missing("e-1", 100)).ID)
}

func (p *participants) carry(id int64) *Compensation {
	p.Helper()
	for range 10 {
		c := p.do(id)
		if c.State.Ended() || c.State == NeedsAttention {
			return c
		}
		p.pass(time.Minute)
	}
	p.Fatal("it does not end")
	return nil
}

func (p *participants) is(c *Compensation, state State, why, steps, standing string) {
	p.Helper()
	if got := text(c.Why, ""); c.State != state || !strings.Contains(got, why) {
		p.Errorf("%s: %q, want %s: %q", c.State, got, state, why)
	}
	if got := p.steps(); got != steps {
		p.Errorf("calls\n%s, want\n%s", got, steps)
	}
	if got := p.standing(); got != standing {
		p.Errorf("%q stands, want %q", got, standing)
	}
}

func TestSagaIsDoneInOrder(t *testing.T) {
	t.Parallel()
	p := openParticipants(t, threeSteps)
	p.is(p.saga(), Verified, "", "a b c", "a b c")
}

// What failed is not undone, and what was done is, the last step first. A saga
// that is undone is not tried again: its steps are barred.
func TestSagaIsUndoneInReverse(t *testing.T) {
	t.Parallel()
	p := openParticipants(t, threeSteps)
	p.answer = func(step string, op barrier.Op) int {
		if step == "c" && op == barrier.Try {
			return 422
		}
		return 0
	}
	c := p.saga()
	p.is(c, NeedsAttention, "step c: HTTP 422; everything that was done is undone", "a b c b:cancel a:cancel", "")
	if err := p.Retry(t.Context(), maker, c.ID); !errors.Is(err, ErrState) {
		t.Errorf("tried again: %v", err)
	}
	if err := p.Cancel(t.Context(), maker, c.ID); err != nil || p.get(c.ID).State != Cancelled {
		t.Errorf("%s, %v", p.get(c.ID).State, err)
	}
}

// A cut connection, an answer that does not come in time and a server that fails
// again and again leave a step that may stand: it is undone with the others.
func TestUnknownStepsAreUndone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail  func(p *participants, w http.ResponseWriter, r *http.Request)
		calls string
	}{
		"cut": {func(p *participants, w http.ResponseWriter, r *http.Request) {
			p.take(&silent{http.Header{}}, r) // it is applied, and the answer lost
			panic(http.ErrAbortHandler)
		}, "a b b b:cancel a:cancel"}, // net/http repeats what has an Idempotency-Key on another connection
		"too late": {func(p *participants, w http.ResponseWriter, r *http.Request) {
			p.take(&silent{http.Header{}}, r)
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done() // the caller has given up
		}, "a b b:cancel a:cancel"},
		"503": {func(_ *participants, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, "a b b b:cancel a:cancel"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openParticipants(t, strings.Replace(threeSteps, `url: "{{points-api}}/b"`, `timeout: 300ms, url: "{{points-api}}/b"`, 1))
			p.answers(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/b" {
					c.fail(p, w, r)
					return
				}
				p.take(w, r)
			})
			p.is(p.saga(), NeedsAttention, "step b: ", c.calls, "")
		})
	}
}

// silent takes an answer that nobody gets.
type silent struct{ h http.Header }

func (s *silent) Header() http.Header         { return s.h }
func (s *silent) Write(b []byte) (int, error) { return len(b), nil }
func (s *silent) WriteHeader(int)             {}

// Steps side by side are under way at once, and what comes after them waits for
// all of them.
func TestParallelSteps(t *testing.T) {
	t.Parallel()
	p := openParticipants(t, sagaHead+`steps:
  - {id: a, kind: http, url: "{{points-api}}/a", compensate: undo}
  - {id: b, kind: http, url: "{{points-api}}/b", after: [a], compensate: undo}
  - {id: c, kind: http, url: "{{points-api}}/c", after: [a], compensate: undo}
  - {id: d, kind: http, url: "{{points-api}}/d", after: [b, c]}
`)
	var both sync.WaitGroup
	both.Add(2)
	p.answer = func(step string, op barrier.Op) int {
		switch {
		case op == barrier.Try && (step == "b" || step == "c"):
			both.Done()
			both.Wait() // a saga that runs them one by one runs into the time-out
		case step == "d":
			return 422
		}
		return 0
	}
	c := p.saga()
	calls := strings.Fields(p.steps())
	if len(calls) > 2 {
		slices.Sort(calls[1:3])
	}
	if got := strings.Join(calls, " "); got != "a b c d c:cancel b:cancel a:cancel" || c.State != NeedsAttention || p.standing() != "" {
		t.Errorf("%s: %s, %q stands", c.State, got, p.standing())
	}
}

// A step that cannot be undone stops everything below it, until it works or
// somebody else agrees to leave it out. Nobody can cancel the undoing.
func TestFailedUndoStops(t *testing.T) {
	t.Parallel()
	p := openParticipants(t, threeSteps)
	undoFails := true
	p.answer = func(step string, op barrier.Op) int {
		if step == "c" || step == "b" && op == barrier.Cancel && undoFails {
			return 422
		}
		return 0
	}
	c := p.saga()
	p.is(c, NeedsAttention, "stopped at what undoes b: HTTP 422", "a b c b:cancel", "a b")
	if err := p.Cancel(t.Context(), maker, c.ID); !errors.Is(err, ErrState) {
		t.Errorf("the undoing was cancelled: %v", err)
	}
	if err := p.Retry(t.Context(), maker, c.ID); err != nil {
		t.Fatal(err)
	}
	p.is(p.carry(c.ID), NeedsAttention, "stopped at what undoes b", "a b c b:cancel b:cancel", "a b")
	if err := p.ApproveSkip(t.Context(), checker, c.ID, 1, Back); err == nil {
		t.Error("nobody has asked to leave it out")
	}
	if err := p.AskSkip(t.Context(), maker, c.ID, 1, Back); err != nil {
		t.Fatal(err)
	}
	own := access.Actor{User: maker.User, Role: access.Approver, Reason: "mine"}
	if err := p.ApproveSkip(t.Context(), own, c.ID, 1, Back); !errors.Is(err, ErrOwn) {
		t.Errorf("agreed to their own: %v", err)
	}
	if err := p.ApproveSkip(t.Context(), checker, c.ID, 1, Back); err != nil {
		t.Fatal(err)
	}
	p.is(p.carry(c.ID), NeedsAttention, "everything that was done is undone", "a b c b:cancel b:cancel a:cancel", "b")
	rows, err := p.Steps(t.Context(), c.ID)
	at := slices.IndexFunc(rows, func(r StepRow) bool { return r.Op == Back && r.Step == "b" })
	if err != nil || at < 0 || rows[at].State != StepSkipped || *rows[at].SkipBy != maker.User || *rows[at].SkipApprovedBy != checker.User {
		t.Errorf("%+v, %v", rows, err)
	}
}

// A cancel undoes what is done, before it is through and after its verification
// has failed.
func TestCancelUndoes(t *testing.T) {
	t.Parallel()
	p := openParticipants(t, threeSteps)
	p.answer = func(step string, op barrier.Op) int {
		if step == "b" && op == barrier.Try {
			return 429
		}
		return 0
	}
	c := p.do(p.approved("repair", p.missing("e-1", 100)).ID)
	if err := p.Cancel(t.Context(), maker, c.ID); err != nil {
		t.Fatal(err)
	}
	p.is(p.do(c.ID), Cancelled, "everything that was done is undone", "a b b:cancel a:cancel", "")

	q := openParticipants(t, strings.Replace(threeSteps, "verify: none", "verify: rerun_key", 1))
	c = q.saga()
	q.is(c, NeedsAttention, "still differs", "a b c", "a b c")
	if err := q.Cancel(t.Context(), maker, c.ID); err != nil {
		t.Fatal(err)
	}
	q.is(q.carry(c.ID), Cancelled, "undone", "a b c c:cancel b:cancel a:cancel", "")
}

const tccSaga = sagaHead + `mode: tcc
steps:
  - {id: a, kind: http, url: "{{points-api}}/a", confirm: {url: "{{points-api}}/ok"}, cancel: {url: "{{points-api}}/no"}}
  - {id: b, kind: http, url: "{{points-api}}/b", after: [], confirm: {url: "{{points-api}}/ok"}, cancel: {url: "{{points-api}}/no"}}
`

func TestTryConfirmCancel(t *testing.T) {
	t.Parallel()
	sorted := func(p *participants) string {
		calls := strings.Fields(p.steps())
		slices.Sort(calls)
		return strings.Join(calls, " ")
	}
	p := openParticipants(t, tccSaga)
	var lost sync.Once
	p.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ok" {
			cut := false
			lost.Do(func() { cut = true })
			if cut { // confirmed, and the answer lost: it comes twice
				p.take(&silent{http.Header{}}, r)
				panic(http.ErrAbortHandler)
			}
		}
		p.take(w, r)
	})
	if c, calls := p.saga(), sorted(p); c.State != Verified || len(strings.Fields(calls)) != 5 || p.standing() != "a a b b" {
		t.Errorf("%s: %s, %q stands", c.State, calls, p.standing())
	}

	q := openParticipants(t, tccSaga)
	q.answer = func(step string, op barrier.Op) int {
		if step == "b" && op == barrier.Try {
			return 422
		}
		return 0
	}
	c := q.saga()
	if calls := sorted(q); c.State != NeedsAttention || calls != "a a:cancel b b:cancel" || q.standing() != "" {
		t.Errorf("%s: %s, %q stands", c.State, calls, q.standing())
	}
	steps, err := q.Steps(t.Context(), c.ID)
	var said []string
	for _, s := range steps {
		if s.Op == Back && s.Barrier != nil {
			said = append(said, s.Step+" "+*s.Barrier)
		}
	}
	if err != nil || strings.Join(said, ", ") != "a applied, b empty" {
		t.Errorf("barriers %v, %v", said, err)
	}
}

// Statements go through the same barrier, in both kinds of databases: what undoes
// a statement that never came has no effect, and keeps it out.
func TestStatementsOfSagas(t *testing.T) {
	t.Parallel()
	my, err := sql.Open("mysql", testkit.MySQL(t).FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { my.Close() })
	if err := barrier.MigrateMySQL(t.Context(), my); err != nil {
		t.Fatal(err)
	}
	pg := pgtest.Open(t, pgtest.Empty(t))
	if err := barrier.Migrate(t.Context(), pg); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]Target{"postgres": {Postgres: pg}, "mariadb": {MySQL: my}} {
		t.Run(name, func(t *testing.T) {
			run := func(op barrier.Op, saga string) answer {
				text := map[barrier.Op]string{barrier.Try: "update account set points = points + 5", barrier.Cancel: "update account set points = points - 5"}[op]
				return target.execute(t.Context(), &Statement{Text: text, Rows: 1}, Inputs{}, barrier.Mark{Saga: saga, Step: "s", Op: op}, false)
			}
			points := func() (n int) {
				var err error
				if target.MySQL != nil {
					err = my.QueryRowContext(t.Context(), "select points from account").Scan(&n)
				} else {
					err = pg.QueryRow(t.Context(), "select points from account").Scan(&n)
				}
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			for _, statement := range []string{"create table account (points int)", "insert into account values (100)"} {
				if target.MySQL != nil {
					_, err = my.ExecContext(t.Context(), statement)
				} else {
					_, err = pg.Exec(t.Context(), statement)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []struct {
				saga    string
				op      barrier.Op
				outcome outcome
				barrier string
				points  int
			}{
				{"C-1", barrier.Try, done, "applied", 105},
				{"C-1", barrier.Try, already, "duplicate", 105},
				{"C-1", barrier.Cancel, done, "applied", 100},
				{"C-1", barrier.Cancel, already, "duplicate", 100},
				{"C-2", barrier.Cancel, done, "empty", 100},
				{"C-2", barrier.Try, refused, "suspended", 100},
				{"C-2", barrier.Cancel, already, "duplicate", 100},
			} {
				if a := run(c.op, c.saga); a.outcome != c.outcome || a.Barrier != c.barrier || points() != c.points {
					t.Errorf("%s of %s: %s %s %s, %d points", c.op, c.saga, a.outcome, a.Barrier, a.Error, points())
				}
			}
		})
	}
}

// Two workers at one step: whoever has lost the lease records nothing, and the
// step is done once.
func TestTwoWorkersAtOneStep(t *testing.T) {
	t.Parallel()
	p := openParticipants(t, strings.Replace(threeSteps, "attempts:", "limits: {per_batch: 5}\nattempts:", 1))
	arrived, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.answer = func(step string, op barrier.Op) int {
		if step == "b" && op == barrier.Try {
			once.Do(func() { close(arrived); <-proceed })
		}
		return 0
	}
	c := p.approved("repair", p.missing("e-1", 100))
	slow := make(chan error, 1)
	go func() {
		_, err := p.step(t.Context(), c.ID, -1)
		slow <- err
	}()
	<-arrived
	if _, err := p.step(t.Context(), c.ID, -1); !errors.Is(err, errFenced) {
		t.Fatalf("two work at it: %v", err)
	}
	p.lapse(c.ID)
	p.pass(time.Minute) // over the step's time-out
	if got := p.do(c.ID); got.State != NeedsAttention {
		t.Errorf("%s: %s", got.State, text(got.Why, ""))
	}
	close(proceed)
	if err := <-slow; !errors.Is(err, errFenced) {
		t.Errorf("the overtaken worker: %v", err)
	}
	p.is(p.get(c.ID), NeedsAttention, "step b: the process that made the call has died", "a b b:cancel a:cancel", "")
}

// lapse lets the lease of a worker run out.
func (b *bank) lapse(id int64) {
	b.Helper()
	if _, err := b.console.Exec(b.Context(), "UPDATE compensation SET lease_until = now() - interval '1 second' WHERE id = $1", id); err != nil {
		b.Fatal(err)
	}
}

// child is what a process that is killed between call and record needs to know.
type child struct {
	Console, Server string
	ID              int64
	Now             time.Time
}

const childVariable = "ONCEMORE_COMPENSATE_CHILD"

// TestMain runs a step of a compensation in a process of its own, which kills
// itself between a call's answer and its record.
func TestMain(m *testing.M) {
	text := os.Getenv(childVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	fmt.Println(c.run())
	os.Exit(3) // it should have been killed
}

// A process is killed between the answer of a call and its record: the next one
// asks, and where nobody can be asked, everything is undone. Nothing is done twice.
func TestSagaOfAKilledProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		probe           string
		state           State
		calls, standing string
	}{
		"without a probe": {"", NeedsAttention, "a b b b:cancel a:cancel", ""},
		"with a probe":    {`, probe: {url: "{{points-api}}/credits", applied_when: {status: 200}}`, Verified, "a b b  c", "a b c"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openParticipants(t, strings.Replace(threeSteps, `url: "{{points-api}}/b", compensate: undo`, `url: "{{points-api}}/b", compensate: undo`+c.probe, 1))
			busy := true
			p.answer = func(step string, op barrier.Op) int {
				if step == "b" && busy {
					busy = false
					return 429
				}
				return 0
			}
			answer := p.take
			p.answers(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/credits" {
					return // 200: it is there
				}
				answer(w, r)
			})
			id := p.do(p.approved("repair", p.missing("e-1", 100)).ID).ID // a is done, b waits
			p.pass(time.Minute)
			p.kill(id)
			p.lapse(id)
			p.is(p.carry(id), c.state, "", c.calls, c.standing)
		})
	}
}

// kill carries a compensation on in a process that is killed at once after the
// next answer.
func (p *participants) kill(id int64) {
	p.Helper()
	told, err := json.Marshal(child{p.console.Config().ConnString(), p.Bases["points-api"].URL, id, p.clock()})
	if err != nil {
		p.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(told))
	out, err := cmd.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.Fatalf("the child was not killed: %v: %s", err, out)
	}
}

func (c child) run() error {
	pool, err := pgxpool.New(context.Background(), c.Console)
	if err != nil {
		return err
	}
	all, err := New(Config{Pool: pool, Actions: NewActions(pool), Bases: map[string]Base{"points-api": {URL: c.Server}}, Clock: func() time.Time { return c.Now }})
	if err != nil {
		return err
	}
	all.reached = func(m moment) {
		if m == momentAnswered {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	_, err = all.step(context.Background(), c.ID, -1)
	return err
}

// The action of examples/participant is one.
func TestExampleIsAnAction(t *testing.T) {
	t.Parallel()
	a, err := ReadAction("../examples/participant/participant.yaml")
	if err != nil || a.Mode != TryConfirmCancel || len(a.Steps) != 2 {
		t.Fatalf("%+v, %v", a, err)
	}
}

// What cannot undo is refused when the files are read, not when it is needed.
func TestWhatUndoesIsChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	saga := "kind: saga\nsteps: [{id: a, kind: http, url: '{{points-api}}/a', compensate: %s}]\n"
	for name, text := range map[string]string{
		"one":   "action: one\n" + fmt.Sprintf(saga, "two"),
		"two":   "action: two\n" + fmt.Sprintf(saga, "three"),
		"three": "action: three\nkind: http\nurl: '{{points-api}}/x'\n",
		"four":  "action: four\n" + fmt.Sprintf(saga, "nobody"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := ReadDir(dir)
	for _, want := range []string{"one.yaml:1: step a is undone by two, which is of kind saga and has to be http or sql", "four.yaml:1: step a is undone by nobody, and there is no such action"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
	if strings.Contains(fmt.Sprint(err), "three") {
		t.Errorf("an action that undoes is refused: %v", err)
	}
	if _, err := ParseAction("tcc.yaml", []byte(strings.Replace(tccSaga, "kind: http,", "kind: http, compensate: undo,", 1))); err == nil {
		t.Error("a tcc with compensate")
	}
}
