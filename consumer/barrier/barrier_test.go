package barrier_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"oncemore/consumer/barrier"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// participant keeps points: a try reserves one, a confirm books it, a cancel
// releases it. Without a barrier each call would count.
type participant struct {
	call   func(ctx context.Context, m barrier.Mark) (barrier.Decision, error)
	points func(t *testing.T, op barrier.Op) int // effects of an operation
}

const (
	sqlEffect      = `INSERT INTO effect (op) VALUES ($1)`
	sqlEffects     = `SELECT count(*) FROM effect WHERE op = $1`
	sqlMakeEffects = `CREATE TABLE effect (op varchar(8))`
)

func onPostgres(t *testing.T) participant {
	t.Helper()
	pool := pgtest.Open(t, pgtest.Empty(t))
	for range 2 { // it may run again
		if err := barrier.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), sqlMakeEffects); err != nil {
		t.Fatal(err)
	}
	return participant{
		call: func(ctx context.Context, m barrier.Mark) (d barrier.Decision, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if d, err = barrier.Enter(ctx, tx, m); err != nil || !d.Applies() {
					return err
				}
				_, err = tx.Exec(ctx, sqlEffect, m.Op)
				return err
			})
			return d, err
		},
		points: func(t *testing.T, op barrier.Op) (n int) {
			if err := pool.QueryRow(t.Context(), sqlEffects, op).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
	}
}

func onMariaDB(t *testing.T) participant {
	t.Helper()
	db, err := sql.Open("mysql", testkit.MySQL(t).FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for range 2 {
		if err := barrier.MigrateMySQL(t.Context(), db); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), sqlMakeEffects); err != nil {
		t.Fatal(err)
	}
	once := func(ctx context.Context, m barrier.Mark) (d barrier.Decision, err error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return "", err
		}
		defer tx.Rollback() //nolint:errcheck // harmless after Commit
		if d, err = barrier.EnterMySQL(ctx, tx, m); err != nil {
			return "", err
		}
		if d.Applies() {
			if _, err := tx.ExecContext(ctx, strings.Replace(sqlEffect, "$1", "?", 1), string(m.Op)); err != nil {
				return "", err
			}
		}
		return d, tx.Commit()
	}
	return participant{
		call: func(ctx context.Context, m barrier.Mark) (barrier.Decision, error) {
			for {
				d, err := once(ctx, m)
				if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == 1213 {
					continue // contention: again, as the consumer's runtime does
				}
				return d, err
			}
		},
		points: func(t *testing.T, op barrier.Op) (n int) {
			if err := db.QueryRowContext(t.Context(), strings.Replace(sqlEffects, "$1", "?", 1), string(op)).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
	}
}

// each runs a test on both kinds of databases.
func each(t *testing.T, test func(t *testing.T, p participant)) {
	for name, open := range map[string]func(*testing.T) participant{"postgres": onPostgres, "mariadb": onMariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func TestCallsInAnyOrderHaveTheRightEffects(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p participant) {
		for i, c := range []struct {
			name  string
			calls string // of try, confirm and cancel
			say   string // a decision or an error each
			have  string // operations that had an effect
		}{
			{"as it should be", "try confirm", "applied applied", "try confirm"},
			{"undone", "try cancel", "applied applied", "try cancel"},
			{"try twice", "try try confirm", "applied duplicate applied", "try confirm"},
			{"confirm twice", "try confirm confirm", "applied applied duplicate", "try confirm"},
			{"cancel twice", "try cancel cancel", "applied applied duplicate", "try cancel"},
			{"cancel before try", "cancel", "empty", ""},
			{"try after cancel", "cancel try", "empty suspended", ""},
			{"try and cancel again after cancel", "cancel try cancel try", "empty suspended duplicate suspended", ""},
			{"late copy of a try", "try cancel try", "applied applied duplicate", "try cancel"},
			{"confirm of nothing", "confirm try confirm", "not_tried applied applied", "try confirm"},
			{"confirm after cancel", "try cancel confirm", "applied applied cancelled", "try cancel"},
			{"confirm after an empty cancel", "cancel confirm", "empty cancelled", ""},
			{"cancel after confirm", "try confirm cancel", "applied applied confirmed", "try confirm"},
		} {
			before := effects(t, p)
			var said []string
			for op := range strings.FieldsSeq(c.calls) {
				said = append(said, word(p.call(t.Context(), barrier.Mark{Saga: fmt.Sprintf("C-%d", i), Step: "credit", Op: barrier.Op(op)})))
			}
			if got := strings.Join(said, " "); got != c.say {
				t.Errorf("%s: %s\n%s, want\n%s", c.name, c.calls, got, c.say)
			}
			for j, op := range ops {
				if got, want := effects(t, p)[j]-before[j], strings.Count(" "+c.have+" ", " "+string(op)+" "); got != want {
					t.Errorf("%s: %d effects of %s, want %d", c.name, got, op, want)
				}
			}
		}
	})
}

var ops = []barrier.Op{barrier.Try, barrier.Confirm, barrier.Cancel}

func effects(t *testing.T, p participant) (n [3]int) {
	for i, op := range ops {
		n[i] = p.points(t, op)
	}
	return n
}

func word(d barrier.Decision, err error) string {
	for name, known := range map[string]error{"not_tried": barrier.ErrNotTried, "cancelled": barrier.ErrCancelled, "confirmed": barrier.ErrConfirmed} {
		if errors.Is(err, known) {
			return name
		}
	}
	if err != nil {
		return err.Error()
	}
	return string(d)
}

// Calls at once: whichever comes first, what was tried is settled once, and
// what was cancelled first is not tried.
func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p participant) {
		const sagas = 12
		var calls sync.WaitGroup
		for i := range sagas {
			for _, op := range []barrier.Op{barrier.Try, barrier.Try, barrier.Cancel, barrier.Cancel, barrier.Confirm} {
				calls.Go(func() {
					_, err := p.call(context.WithoutCancel(t.Context()), barrier.Mark{Saga: fmt.Sprint(i), Step: "s", Op: op})
					if err != nil && !errors.Is(err, barrier.ErrNotTried) && !errors.Is(err, barrier.ErrCancelled) && !errors.Is(err, barrier.ErrConfirmed) {
						t.Errorf("%d %s: %v", i, op, err)
					}
				})
			}
		}
		calls.Wait()
		if n := effects(t, p); n[0] != n[1]+n[2] || n[0] > sagas {
			t.Errorf("%d tried, %d confirmed, %d cancelled", n[0], n[1], n[2])
		}
	})
}

// A rolled-back operation leaves nothing: it may come again.
func TestRollbackTakesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, pgtest.Empty(t))
	if err := barrier.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	m := barrier.Mark{Saga: "C-1", Step: "credit", Op: barrier.Try}
	for _, fail := range []error{errors.New("the effect failed"), nil} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if d, err := barrier.Enter(t.Context(), tx, m); err != nil || d != barrier.Applied {
				t.Errorf("%s, %v", d, err)
			}
			return fail
		})
		if !errors.Is(err, fail) {
			t.Fatal(err)
		}
		var stands bool
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			stands, err = barrier.Stands(t.Context(), tx, m)
			return err
		})
		if err != nil || stands != (fail == nil) {
			t.Errorf("after %v it stands: %t, %v", fail, stands, err)
		}
	}
}

// Whatever comes in whatever order, a step's effects are one of: none, try, try
// and confirm, try and cancel.
func TestEffectsOfAnyCalls(t *testing.T) {
	t.Parallel()
	p := onPostgres(t)
	saga := 0
	rapid.Check(t, func(r *rapid.T) {
		saga++
		before := effects(t, p)
		had := ""
		for _, op := range rapid.SliceOfN(rapid.SampledFrom(ops), 0, 7).Draw(r, "ops") {
			d, err := p.call(t.Context(), barrier.Mark{Saga: fmt.Sprint(saga), Step: "s", Op: op})
			if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
				r.Fatal(refused)
			}
			if d.Applies() {
				had += string(op) + " "
			}
		}
		if after := effects(t, p); after[0]+after[1]+after[2]-before[0]-before[1]-before[2] != len(strings.Fields(had)) {
			r.Fatalf("%s: %v to %v", had, before, after)
		}
		switch had {
		case "", "try ", "try confirm ", "try cancel ":
		default:
			r.Fatalf("effects of %s", had)
		}
	})
}

func TestMarksAreChecked(t *testing.T) {
	t.Parallel()
	for _, m := range []barrier.Mark{
		{"", "s", barrier.Try},
		{"C-1", "", barrier.Try},
		{"C-1", "s", "commit"},
		{strings.Repeat("x", 65), "s", barrier.Try},
		{"C-1", strings.Repeat("x", 129), barrier.Try},
		{"C-\xff", "s", barrier.Try},
		{"C-\n", "s", barrier.Try},
	} {
		h := http.Header{barrier.SagaHeader: {m.Saga}, barrier.StepHeader: {m.Step}, barrier.OpHeader: {string(m.Op)}}
		if _, err := barrier.FromHeader(h); !errors.Is(err, barrier.ErrMark) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

func TestAnswersOfAParticipant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d      barrier.Decision
		err    error
		status int
	}{
		{barrier.Applied, nil, 200},
		{barrier.Duplicate, nil, 200},
		{barrier.Empty, nil, 200},
		{barrier.Suspended, nil, 409},
		{"", barrier.ErrMark, 400},
		{"", barrier.ErrNotTried, 425},
		{"", barrier.ErrCancelled, 422},
		{"", barrier.ErrConfirmed, 422},
		{"", errors.New("connection refused"), 503},
	} {
		w := httptest.NewRecorder()
		barrier.Answer(w, c.d, c.err)
		if w.Code != c.status || w.Header().Get(barrier.DecisionHeader) != string(c.d) {
			t.Errorf("%s, %v: %d %v", c.d, c.err, w.Code, w.Header())
		}
	}
}
