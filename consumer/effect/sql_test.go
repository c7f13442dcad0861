package effect_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/effect"
	"oncemore/consumer/pgstore"
	"oncemore/migrations/pgtest"
)

// bench is a business database with the store on it.
type bench struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
}

func setup(t *testing.T) bench {
	t.Helper()
	pool := pgtest.Open(t, pgtest.Empty(t))
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	_, err := pool.Exec(t.Context(), `
		create table shop_order (id bigint primary key);
		create table user_points (order_id bigint primary key references shop_order, points numeric(20, 4) not null check (points >= 0));
		create table seen (a text, b bigint, c boolean, d jsonb, e timestamptz, f text[])`)
	if err != nil {
		t.Fatal(err)
	}
	return bench{pool: pool, store: pgstore.New(pool, pgstore.Options{})}
}

// deliver does what the runtime does with one event.
func (b bench) deliver(ctx context.Context, e effect.Effect[pgstore.Tx], ev consumer.Event) error {
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

func (b bench) query(t *testing.T, sql string, args ...any) string {
	t.Helper()
	var got string
	if err := b.pool.QueryRow(t.Context(), sql, args...).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func paid(id, payload string) consumer.Event {
	return consumer.Event{ID: id, Group: "points-consumer-group", Topic: "order.paid", Key: []byte("k"), Value: []byte(payload), Attempt: 1}
}

func newSQL(t *testing.T, sql string, rows *int64) *effect.SQL {
	t.Helper()
	e, err := effect.NewSQL(sql, rows)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

const addPoints = `
insert into user_points (order_id, points) values (:orderId, :points)
on conflict (order_id) do update set points = user_points.points + excluded.points`

func TestSQLTakesEffectOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newSQL(t, addPoints, nil)
	if _, err := b.pool.Exec(t.Context(), "insert into shop_order values (10001)"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := b.deliver(t.Context(), e, paid("payment-success-10001", `{"orderId":"10001","points":100}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.query(t, "select points::text from user_points where order_id = 10001"); got != "100.0000" {
		t.Errorf("points = %s after two deliveries, want 100.0000", got)
	}
}

// In a batch whose statements are sent together only the culprits become dead
// letters, whether the payload or PostgreSQL is what refuses them.
func TestSQLCulpritsOfABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.pool.Exec(t.Context(), "insert into shop_order select generate_series(0, 99)"); err != nil {
		t.Fatal(err)
	}
	e := newSQL(t, addPoints, nil)
	kit := consumertest.New(t, consumer.Config[pgstore.Tx]{
		Group: "points", Store: b.store, Handler: e.Handler(), BatchSize: e.BatchSize(), EventID: consumer.EventIDSource{JSON: "$.eventId"},
	})
	var events []consumer.Event
	for i := range 100 {
		points := "100"
		switch i {
		case 30:
			points = `"many"`
		case 60:
			points = "-1"
		}
		events = append(events, consumertest.JSON("order.paid", fmt.Sprintf(`{"eventId":"evt-%d","orderId":%d,"points":%s}`, i, i, points)))
	}
	events = append(events, consumertest.JSON("order.paid", `{"eventId":"evt-100","points":1}`))
	r := kit.Deliver(events...)
	var classes []string
	for _, l := range r.Letters {
		classes = append(classes, consumer.ErrorClass(l.Err))
	}
	if r.Consumed != 98 || fmt.Sprint(classes) != "[sql.22P02 sql.23514 oncemore.FieldError]" {
		t.Errorf("consumed %d, letters %v", r.Consumed, classes)
	}
	if got := b.query(t, "select sum(points)::text from user_points"); got != "9800.0000" {
		t.Errorf("points = %s, want 9800.0000", got)
	}
}

func TestSQLKeepsValuesExact(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newSQL(t, "insert into seen values (:a, :b, :c, :d, :e, :f)", nil)
	err := b.deliver(t.Context(), e, paid("evt-1", `{"a":"it's :b $1 \\ 中","b":9223372036854775807,"c":true,
		"d":{"n":0.1000000000000000000001,"b":1},"e":"2026-11-30T12:00:00.123456Z","f":"{x,y}"}`))
	if err != nil {
		t.Fatal(err)
	}
	got := b.query(t, `select concat_ws('|', a, b, c, d, e at time zone 'UTC', f) from seen`)
	want := `it's :b $1 \ 中|9223372036854775807|t|{"b": 1, "n": 0.1000000000000000000001}|2026-11-30 12:00:00.123456|{x,y}`
	if got != want {
		t.Errorf("stored\n%s, want\n%s", got, want)
	}
}

func TestSQLNullsAndBuiltins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newSQL(t, "insert into seen (a, b, d) values (concat_ws('|', :event_id::text, :consumer_group::text, :topic::text, :key::text, :$.topic::text), :b, :$)", nil)
	if err := b.deliver(t.Context(), e, paid("evt-1", `{"b":null,"topic":"own"}`)); err != nil {
		t.Fatal(err)
	}
	got := b.query(t, `select concat_ws(' ', a, b is null, d) from seen`)
	if want := `evt-1|points-consumer-group|order.paid|k|own t {"b": null, "topic": "own"}`; got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
}

// Any integer and any decimal comes back with every digit.
func TestSQLNumbersSurvive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newSQL(t, "insert into seen (a, d) values (:n::numeric::text, jsonb_build_array(:n::numeric))", nil)
	no := 0
	rapid.Check(t, func(rt *rapid.T) {
		no++
		want := rapid.StringMatching(`-?[1-9][0-9]{0,40}(\.[0-9]{1,30})?`).Draw(rt, "number")
		if err := b.deliver(context.Background(), e, paid(fmt.Sprint("evt-", no), `{"n":`+want+`}`)); err != nil {
			rt.Fatal(err)
		}
		if got := b.query(t, "delete from seen returning a"); got != want {
			rt.Fatalf("stored %s, want %s", got, want)
		}
	})
}

func TestSQLOutcomes(t *testing.T) {
	t.Parallel()
	one := int64(1)
	cases := []struct {
		name, sql, payload string
		rows               *int64
		outcome            consumer.Outcome
		class              string
	}{
		{"missing field", addPoints, `{"orderId":1}`, nil, consumer.OutcomePermanent, "oncemore.FieldError"},
		{"no JSON", addPoints, `points=1`, nil, consumer.OutcomePermanent, "oncemore.FieldError"},
		{"no number", addPoints, `{"orderId":"x","points":1}`, nil, consumer.OutcomePermanent, "sql.22P02"},
		{"float for a bigint", addPoints, `{"orderId":1.5,"points":1}`, nil, consumer.OutcomePermanent, "sql.22P02"},
		{"too big", addPoints, `{"orderId":1,"points":1e30}`, nil, consumer.OutcomePermanent, "sql.22003"},
		{"zero byte", "insert into seen (a) values (:a)", `{"a":"\u0000"}`, nil, consumer.OutcomePermanent, "sql.22021"},
		{"null where none may be", addPoints, `{"orderId":1,"points":null}`, nil, consumer.OutcomePermanent, "sql.23502"},
		{"parent not there yet", addPoints, `{"orderId":1,"points":1}`, nil, consumer.OutcomeRetry, "sql.23503"},
		{"check constraint", addPoints, `{"orderId":1,"points":-1}`, nil, consumer.OutcomeRetry, "sql.23514"},
		{"no such table", "insert into nowhere values (:a)", `{"a":1}`, nil, consumer.OutcomeUnavailable, "sql.42P01"},
		{"rows", "update user_points set points = :points where order_id = :orderId", `{"orderId":1,"points":1}`, &one, consumer.OutcomeRetry, "sql.rows"},
		{"division", "select 1 / (:a::int - 7)", `{"a":7}`, nil, consumer.OutcomePermanent, "sql.22012"},
	}
	b := setup(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := b.deliver(t.Context(), newSQL(t, c.sql, c.rows), paid("evt-"+c.name, c.payload))
			if err == nil {
				t.Fatal("no error")
			}
			if got := consumer.OutcomeOf(err); got != c.outcome || consumer.ErrorClass(err) != c.class {
				t.Errorf("outcome %d, class %s of %v, want %d and %s", got, consumer.ErrorClass(err), err, c.outcome, c.class)
			}
			if got := b.query(t, "select count(*)::text from mq_consume_record where event_id = $1", "evt-"+c.name); got != "0" {
				t.Errorf("a failed event left %s consume records", got)
			}
		})
	}
}

// A table that disappears while the consumer runs makes it wait; events that
// were queued together do not become dead letters for it.
func TestSQLTableDroppedLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newSQL(t, "insert into seen (a) values (:a)", nil)
	if err := b.deliver(t.Context(), e, paid("evt-1", `{"a":"x"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pool.Exec(t.Context(), "drop table seen"); err != nil {
		t.Fatal(err)
	}
	b.pool.Reset() // a new connection has nothing prepared
	err := b.deliver(t.Context(), e, paid("evt-2", `{"a":"x"}`))
	if err == nil {
		t.Fatal("no error")
	}
	again := paid("evt-2", `{"a":"x"}`)
	again.Attempt = 2
	if err := b.deliver(t.Context(), e, again); consumer.OutcomeOf(err) != consumer.OutcomeUnavailable {
		t.Errorf("second attempt: %v, want unavailable", err)
	}
}

func TestSQLContentionKeepsItsMark(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.store = pgstore.New(b.pool, pgstore.Options{LockTimeout: 50_000_000})
	blocker, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blocker.Rollback(context.Background()) //nolint:errcheck // ends with the test
	if _, err := blocker.Exec(t.Context(), "lock table seen in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	err = b.deliver(t.Context(), newSQL(t, "insert into seen (a) values (:a)", nil), paid("evt-1", `{"a":"x"}`))
	if consumer.OutcomeOf(err) != consumer.OutcomeContention {
		t.Errorf("a lock time-out is %v, want contention", err)
	}
}

func TestSQLPrepare(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := newSQL(t, addPoints, nil).Prepare(t.Context(), b.pool); err != nil {
		t.Errorf("a good statement: %v", err)
	}
	bad := []string{
		"insert into nowhere values (:a)",
		"insert into seen (a, nope) values (:a, 1)",
		"select :a + :b", // types cannot be inferred
		"insert into seen (a) values (:a, :b)",
	}
	for _, sql := range bad {
		if err := newSQL(t, sql, nil).Prepare(t.Context(), b.pool); err == nil {
			t.Errorf("prepared %q", sql)
		}
	}
}

// PostgreSQL sees as many parameters as we do, whatever the statement looks like.
func TestPostgresCountsTheSameParameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := b.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	pieces := []string{
		"1", "':x'", `E'\':x'`, "$$:x$$", "$t$ ':x $t$", `':x'::text`, "(array[10,20,30])[2:3]", "(array[1,2])[:1]", "array[:n::int, 2]",
		"/* :x /* :y */ */ 1", "1 -- :x\n", "E'a'\n'\\':x'", `U&'\0061:x'`, ":a::text", ":b.c::int + 1", "(array[1,2])[(:n::int):2]", "(array[1,2])[:n::int]",
		`'{"a:b": 1}'::jsonb -> ':x'`, ":$::jsonb",
	}
	rapid.Check(t, func(rt *rapid.T) {
		sql := "select 0"
		for _, piece := range rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(rt, "pieces") {
			sql += ", " + piece
		}
		e, err := effect.NewSQL(sql, nil)
		if err != nil {
			rt.Fatal(err)
		}
		desc, err := conn.Conn().PgConn().Prepare(context.Background(), "", effect.Text(e), nil)
		if err != nil {
			rt.Fatalf("PostgreSQL refuses %q: %v", effect.Text(e), err)
		}
		if len(desc.ParamOIDs) != len(e.Params()) {
			rt.Fatalf("PostgreSQL sees %d parameters in %q, we see %v", len(desc.ParamOIDs), effect.Text(e), e.Params())
		}
	})
}

func TestNewSQLSaysWhere(t *testing.T) {
	t.Parallel()
	_, err := effect.NewSQL("insert into t values (:a); commit", nil)
	var syntax *effect.SyntaxError
	if !errors.As(err, &syntax) || syntax.Offset != 27 {
		t.Errorf("NewSQL = %v, want a SyntaxError at byte 27", err)
	}
}
