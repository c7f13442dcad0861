package effect_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"oncemore/consumer"
	"oncemore/consumer/effect"
	"oncemore/consumer/mysqlstore"
	"oncemore/internal/testkit"
)

// mysqlBench is a business database in MySQL with the store on it.
type mysqlBench struct {
	db    *sql.DB
	store *mysqlstore.Store
}

func setupMySQL(t *testing.T, tables ...string) mysqlBench {
	t.Helper()
	cfg := testkit.MySQL(t)
	db, err := mysqlstore.OpenPool(cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	store, err := mysqlstore.Open(cfg, mysqlstore.Options{LockTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	b := mysqlBench{db, store}
	b.exec(t, append([]string{mysqlstore.DDL}, tables...)...)
	return b
}

func (b mysqlBench) exec(t *testing.T, all ...string) {
	t.Helper()
	for _, text := range all {
		if _, err := b.db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

func (b mysqlBench) query(t *testing.T, text string, args ...any) string {
	t.Helper()
	var got string
	if err := b.db.QueryRowContext(t.Context(), text, args...).Scan(&got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return got
}

// deliver does what the runtime does with one event.
func (b mysqlBench) deliver(ctx context.Context, e effect.Effect[mysqlstore.Tx], ev consumer.Event) error {
	claim, err := b.store.Claim(ctx, ev.Group, []string{ev.ID})
	if err != nil {
		return err
	}
	defer claim.Rollback(ctx)
	if !claim.Fresh(ev.ID) {
		return nil
	}
	if err := e.Handler()(ctx, claim.Tx(), ev); err != nil {
		return claim.Blame(err)
	}
	return claim.Commit(ctx)
}

func newMySQL(t *testing.T, text string, rows *int64) *effect.MySQL {
	t.Helper()
	e, err := effect.NewMySQL(text, rows)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const mysqlSeen = `create table seen (a text, b decimal(65, 30), c boolean, d json, e bigint unsigned, f varchar(5))`

// Sums are exact: what has 30 digits has them in the end. Nothing of a payload
// ends a literal.
func TestMySQLKeepsValuesExact(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, mysqlSeen)
	e := newMySQL(t, "insert into seen (a, b, c, d, e) values (:a, 0.1+:b, :c, :d, 1+:e) # a ? and :more", nil)
	err := b.deliver(t.Context(), e, paid("evt-1", `{"a":"it's ' :b ? \\ \" 中","b":12345678901234567890.000000000000000000000000000001,"c":true,
		"d":{"n":[1,"x"]},"e":18446744073709551614}`))
	if err != nil {
		t.Fatal(err)
	}
	got := b.query(t, `select concat_ws('|', a, b, c, json_extract(d, '$.n[1]'), e) from seen`)
	want := `it's ' :b ? \ " 中|12345678901234567890.100000000000000000000000000001|1|"x"|18446744073709551615`
	if got != want {
		t.Errorf("stored\n%s, want\n%s", got, want)
	}
}

func TestMySQLNullsMinusAndBuiltins(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, mysqlSeen)
	e := newMySQL(t, "insert into seen (a, b, e) select concat_ws('|', :event_id, :consumer_group, :topic, :key, :$.topic), 1-:n, :none limit:one", nil)
	if err := b.deliver(t.Context(), e, paid("evt-1", `{"n":-2,"none":null,"topic":"own","one":1,"f":1e2}`)); err != nil {
		t.Fatal(err)
	}
	if got := b.query(t, `select concat(a, ' ', truncate(b, 0), ' ', e is null) from seen`); got != "evt-1|points-consumer-group|order.paid|k|own 3 1" {
		t.Errorf("stored %s", got)
	}
	if err := b.deliver(t.Context(), newMySQL(t, "update seen set e = :f", nil), paid("evt-2", `{"f":1e2}`)); err != nil {
		t.Fatal(err)
	}
	if got := b.query(t, `select e from seen`); got != "100" {
		t.Errorf("1e2 is %s", got)
	}
}

func TestMySQLOutcomes(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, mysqlSeen, `create table parent (id int primary key)`, `create table child (id int primary key, of int not null references parent (id), n tinyint not null check (n < 100))`)
	one := int64(1)
	for name, c := range map[string]struct {
		sql, payload string
		rows         *int64
		outcome      consumer.Outcome
		class        string
	}{
		"missing field": {"insert into seen (a) values (:nope)", `{}`, nil, consumer.OutcomePermanent, "oncemore.FieldError"},
		"out of range":  {"insert into child values (1, 1, :n)", `{"n":1000}`, nil, consumer.OutcomePermanent, "sql.1264"},
		"not a number":  {"insert into child values (1, 1, :n)", `{"n":"many"}`, nil, consumer.OutcomePermanent, "sql.1366"},
		"too long":      {"insert into seen (f) values (:n)", `{"n":"123456"}`, nil, consumer.OutcomePermanent, "sql.1406"},
		"null":          {"insert into child values (1, 1, :n)", `{"n":null}`, nil, consumer.OutcomePermanent, "sql.1048"},
		"foreign key":   {"insert into child values (1, 7, :n)", `{"n":1}`, nil, consumer.OutcomeRetry, "sql.1452"},
		"no table":      {"insert into nowhere values (:n)", `{"n":1}`, nil, consumer.OutcomeUnavailable, "sql.1146"},
		"no column":     {"insert into seen (nope) values (:n)", `{"n":1}`, nil, consumer.OutcomeUnavailable, "sql.1054"},
		"no SQL":        {"insert what :n", `{"n":1}`, nil, consumer.OutcomeUnavailable, "sql.1064"},
		"rows":          {"update seen set a = :n where a = 'nobody'", `{"n":1}`, &one, consumer.OutcomeRetry, "sql.rows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := b.deliver(t.Context(), newMySQL(t, c.sql, c.rows), paid("evt-"+name, c.payload))
			if err == nil {
				t.Fatal("no error")
			}
			if got := consumer.OutcomeOf(err); got != c.outcome || consumer.ErrorClass(err) != c.class {
				t.Errorf("outcome %d, class %s of %v, want %d and %s", got, consumer.ErrorClass(err), err, c.outcome, c.class)
			}
			if got := b.query(t, "select count(*) from mq_consume_record where event_id = ?", "evt-"+name); got != "0" {
				t.Errorf("a failed event left %s consume records", got)
			}
		})
	}
}

func TestMySQLPrepare(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t, mysqlSeen)
	if err := newMySQL(t, "insert into seen (a, b) values (:a, :b + 1)", nil).Prepare(t.Context(), b.db); err != nil {
		t.Errorf("a good statement: %v", err)
	}
	for _, text := range []string{"insert into nowhere values (:a)", "insert into seen (a, nope) values (:a, 1)", "insert into seen (a) values (:a, :b)"} {
		if err := newMySQL(t, text, nil).Prepare(t.Context(), b.db); err == nil {
			t.Errorf("prepared %q", text)
		}
	}
}

func TestMySQLSyntax(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"insert into t values (?)":          "parameters have names here: write :name instead of ?",
		"select /*!50000 :a */ 1":           "the server would execute",
		"commit":                            "has to begin with one of insert",
		"merge into t":                      "has to begin with one of insert",
		"insert into t values (:a); select": "one statement only",
		"select 'a\\'":                      "is never closed",
		"select `a":                         "is never closed",
	} {
		if _, err := effect.NewMySQL(text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// The server sees as many parameters as we do, whatever the statement looks like.
func TestMySQLCountsTheSameParameters(t *testing.T) {
	t.Parallel()
	b := setupMySQL(t)
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	pieces := []string{
		"1", "':x ?'", `'\':x'`, `"\":x '"`, "'a' ':x'", `''':x'`, "(select 1 as `:x`)", "/* :x /* :y */ 1", "1 # :x ?\n", "1 -- :x\n", "1--:n", "1---1",
		":a", ":b.c + 1", "@v := :n", ":$", "cast(:n as signed)", `json_extract('{"a:b":1}', '$.x')`, "-:n", "_utf8mb4':x'", "x'41'", "(select a$b from (select 1 as a$b) d$ where :n = 1)",
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(rt, "pieces"), ", ")
		e, err := effect.NewMySQL("select "+text, nil)
		if err != nil {
			rt.Fatal(err)
		}
		err = conn.Raw(func(c any) error {
			stmt, err := c.(driver.ConnPrepareContext).PrepareContext(context.Background(), effect.TextOfMySQL(e))
			if err != nil {
				return err
			}
			defer stmt.Close()
			if want := strings.Count(effect.TextOfMySQL(e), "?") - strings.Count(text, "?"); stmt.NumInput() != want {
				return fmt.Errorf("the server sees %d parameters, we see %d", stmt.NumInput(), want)
			}
			return nil
		})
		if err != nil {
			rt.Fatalf("%q: %v", effect.TextOfMySQL(e), err)
		}
	})
}
