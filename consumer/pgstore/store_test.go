package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/consumer/storetest"
	"oncemore/migrations/pgtest"
)

const sqlCounters = `CREATE TABLE counter (key text PRIMARY KEY, n int NOT NULL)`

const sqlAdd = `
INSERT INTO counter (key, n) VALUES ($1, $2)
ON CONFLICT (key) DO UPDATE SET n = counter.n + excluded.n`

// database is a business database with consume records and counters.
func database(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Open(t, pgtest.Empty(t))
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	mustExec(t, pool, sqlCounters)
	return pool
}

func mustExec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[V any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []V {
	t.Helper()
	rows, _ := pool.Query(t.Context(), sql, args...)
	all, err := pgx.CollectRows(rows, pgx.RowTo[V])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

func counter(t *testing.T, pool *pgxpool.Pool, key string) int {
	t.Helper()
	return query[int](t, pool, `SELECT coalesce(sum(n), 0)::int FROM counter WHERE key = $1`, key)[0]
}

func records(t *testing.T, pool *pgxpool.Pool, group string) []string {
	t.Helper()
	return query[string](t, pool, `SELECT event_id FROM mq_consume_record WHERE consumer_group = $1 ORDER BY event_id`, group)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture[pgstore.Tx] {
		watcher := database(t)
		pool := pgtest.Open(t, watcher.Config().ConnString())
		return storetest.Fixture[pgstore.Tx]{
			Store: pgstore.New(pool, pgstore.Options{LockTimeout: time.Second}),
			Add: func(ctx context.Context, tx pgstore.Tx, key string, n int) error {
				_, err := tx.Exec(ctx, sqlAdd, key, n)
				return err
			},
			Fail: func(ctx context.Context, tx pgstore.Tx) error {
				_, err := tx.Exec(ctx, `SELECT 1 / $1::int`, 0)
				return err
			},
			Read:        func(t *testing.T, key string) int { return counter(t, watcher, key) },
			Records:     func(t *testing.T, group string) []string { return records(t, watcher, group) },
			Cut:         func(t *testing.T) { cut(t, watcher) },
			Unreachable: pgstore.New(pgtest.Open(t, "postgres://nobody@"+closedPort(t)+"/none?sslmode=disable"), pgstore.Options{}),
		}
	})
}

// cut ends every connection to the database but the one that asks.
func cut(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func claim(t *testing.T, pool *pgxpool.Pool, ids ...string) consumer.Claim[pgstore.Tx] {
	t.Helper()
	c, err := pgstore.New(pool, pgstore.Options{}).Claim(t.Context(), "g", ids)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Rollback(context.Background()) })
	return c
}

func TestTableIsTheSpecifiedOne(t *testing.T) {
	t.Parallel()
	pool := database(t)
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatalf("a second migration: %v", err)
	}
	got := query[string](t, pool, `
SELECT column_name || ' ' || data_type || coalesce('(' || character_maximum_length || ')', '') ||
       CASE is_nullable WHEN 'NO' THEN ' not null' ELSE '' END
FROM information_schema.columns WHERE table_name = 'mq_consume_record' ORDER BY ordinal_position`)
	want := []string{"id bigint not null", "event_id character varying(255) not null",
		"consumer_group character varying(255) not null", "consumed_at timestamp with time zone not null"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("columns\n%v\nwant\n%v", got, want)
	}
	got = query[string](t, pool, `
SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'mq_consume_record'::regclass AND contype IN ('p', 'u') ORDER BY contype`)
	want = []string{"mq_consume_record_pkey PRIMARY KEY (id)", "uk_event_consumer UNIQUE (event_id, consumer_group)"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("constraints\n%v\nwant\n%v", got, want)
	}
}

func TestConsumedAtIsTheDatabasesClock(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := claim(t, pool, "a")
	if _, err := c.Tx().Exec(t.Context(), `INSERT INTO counter SELECT 'same', (SELECT count(*) FROM mq_consume_record WHERE consumed_at = now())`); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if counter(t, pool, "same") != 1 {
		t.Error("consumed_at is not the start of the transaction")
	}
}

func TestTransactionSettings(t *testing.T) {
	t.Parallel()
	pool := database(t)
	mustExec(t, pool, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''serializable''', current_database()); END $$`)
	fresh := pgtest.Open(t, pool.Config().ConnString())
	store := pgstore.New(fresh, pgstore.Options{LockTimeout: 1500 * time.Millisecond, StatementTimeout: 7 * time.Second})
	c, err := store.Claim(t.Context(), "g", []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	var isolation, lock, statement string
	err = c.Tx().QueryRow(t.Context(), `SELECT current_setting('transaction_isolation'), current_setting('lock_timeout'), current_setting('statement_timeout')`).
		Scan(&isolation, &lock, &statement)
	if err != nil || isolation != "read committed" || lock != "1500ms" || statement != "7s" {
		t.Errorf("isolation %s, lock_timeout %s, statement_timeout %s (%v)", isolation, lock, statement, err)
	}
	if err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query[string](t, fresh, `SELECT current_setting('lock_timeout')`); got[0] != "0" {
		t.Errorf("lock_timeout %s outlives the transaction", got[0])
	}
}

func TestHandlersCannotControlTheTransaction(t *testing.T) {
	t.Parallel()
	pool := database(t)
	ctx := t.Context()
	for _, sql := range []string{"COMMIT", " rollback ", "/* x */ commit", "-- x\ncommit", "BEGIN", "end", "abort", "savepoint a",
		"release a", "start transaction", "prepare transaction 'x'", "select 1; commit", "update counter set n = 1;\n -- done\n COMMIT;"} {
		c := claim(t, pool, "a")
		_, direct := c.Tx().Exec(ctx, sql)
		_, asked := c.Tx().Query(ctx, sql)
		row := c.Tx().QueryRow(ctx, sql).Scan()
		batch := &pgx.Batch{}
		batch.Queue(sql)
		sent := c.Tx().SendBatch(ctx, batch).Close()
		c.Tx().Queue(sql)
		queued := c.Commit(ctx)
		for i, err := range []error{direct, asked, row, sent, queued} {
			if !errors.Is(err, pgstore.ErrTransactionControl) {
				t.Errorf("%q by way %d: %v", sql, i, err)
			}
		}
		c.Rollback(ctx)
	}
	c := claim(t, pool, "b")
	for _, sql := range []string{"select 'commit; begin; it''s'", "select 1 as commitment", "update counter set n = 1 where key = 'end'",
		"do $x$ begin perform 1; end; $x$", "select 'a'; select 'b; rollback'"} {
		if _, err := c.Tx().Exec(ctx, sql); err != nil {
			t.Errorf("%q is refused: %v", sql, err)
		}
	}
	c.Rollback(ctx)
	if got := records(t, pool, "g"); len(got) != 0 {
		t.Errorf("records %v got committed", got)
	}
}

func TestQueuedStatements(t *testing.T) {
	t.Parallel()
	pool := database(t)
	ctx := t.Context()
	c := claim(t, pool, "a")
	for range 100 {
		c.Tx().Queue(sqlAdd, "k", 1)
	}
	var seen int
	if err := c.Tx().QueryRow(ctx, `SELECT n FROM counter WHERE key = 'k'`).Scan(&seen); err != nil || seen != 100 {
		t.Errorf("a direct query sees %d of what was queued before it (%v)", seen, err)
	}
	c.Tx().Queue(sqlAdd, "k", 1)
	if err := c.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if got := counter(t, pool, "k"); got != 101 {
		t.Errorf("counter %d, want 101", got)
	}

	c = claim(t, pool, "b")
	c.Tx().Queue(sqlAdd, "k", 1)
	c.Tx().Queue(`SELECT 1 / $1::int`, 0)
	if err := c.Commit(ctx); consumer.OutcomeOf(err) != consumer.OutcomeRetry || !strings.Contains(fmt.Sprint(err), "division by zero") {
		t.Errorf("a failing queued statement: %v", err)
	}
	c.Rollback(ctx)

	c = claim(t, pool, "c")
	c.Tx().Queue(sqlAdd, "k", 1).Exec(func(tag pgconn.CommandTag) error {
		return consumer.Permanent(fmt.Errorf("%d rows are one too many", tag.RowsAffected()))
	})
	if err := c.Commit(ctx); consumer.OutcomeOf(err) != consumer.OutcomePermanent {
		t.Errorf("a callback's error: %v", err)
	}
	c.Rollback(ctx)
	if got := counter(t, pool, "k"); got != 101 {
		t.Errorf("counter %d after two rollbacks, want 101", got)
	}
	if got := records(t, pool, "g"); fmt.Sprint(got) != "[a]" {
		t.Errorf("records %v, want [a]", got)
	}
}

// Claims of the same ids in opposite orders wait for each other: they are sorted
// in the database, so none is the victim of a deadlock.
func TestOppositeClaimsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	pool := database(t)
	mustExec(t, pool, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''5ms''', current_database()); END $$`)
	store := pgstore.New(pgtest.Open(t, pool.Config().ConnString()), pgstore.Options{LockTimeout: time.Minute})
	ids := make([]string, 4000)
	for i := range ids {
		ids[i] = fmt.Sprintf("e%05d", i*7919%len(ids))
	}
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	errs := make(chan error, 16)
	for i := range cap(errs) {
		go func() {
			c, err := store.Claim(t.Context(), "g", [][]string{ids, reversed}[i%2])
			if err == nil {
				c.Rollback(t.Context())
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestCopyFromAndBatch(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := claim(t, pool, "a")
	c.Tx().Queue(sqlAdd, "first", 1)
	n, err := c.Tx().CopyFrom(t.Context(), pgx.Identifier{"counter"}, []string{"key", "n"}, pgx.CopyFromRows([][]any{{"x", 1}, {"y", 2}}))
	if err != nil || n != 2 {
		t.Fatalf("copied %d: %v", n, err)
	}
	batch := &pgx.Batch{}
	batch.Queue(sqlAdd, "x", 4)
	if err := c.Tx().SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if counter(t, pool, "x") != 5 || counter(t, pool, "first") != 1 {
		t.Error("copy, batch and queue did not all commit")
	}
}

// A deadline of the handler's own breaks the connection. That is the handler's
// failure: waiting for the store would repeat it for ever.
func TestHandlersOwnDeadlineIsItsFailure(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := claim(t, pool, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Tx().Exec(ctx, `SELECT pg_sleep(5)`)
	if got := consumer.OutcomeOf(c.Blame(err)); err == nil || got != consumer.OutcomeRetry {
		t.Errorf("outcome %d of %v, want a retry", got, err)
	}
}

func TestCommitFailuresAreBlamed(t *testing.T) {
	t.Parallel()
	pool := database(t)
	mustExec(t, pool, `CREATE TABLE parent (id int PRIMARY KEY)`)
	mustExec(t, pool, `CREATE TABLE child (parent int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)`)
	c := claim(t, pool, "a")
	if _, err := c.Tx().Exec(t.Context(), `INSERT INTO child VALUES (1)`); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context()); err == nil || consumer.OutcomeOf(err) != consumer.OutcomeRetry {
		t.Errorf("a deferred constraint at commit: %v", err)
	}
	c.Rollback(t.Context())
	if got := records(t, pool, "g"); len(got) != 0 {
		t.Errorf("records %v after a failed commit", got)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, ddl, want string }{
		{"missing", ``, "table is missing"},
		{"no constraint", `CREATE TABLE mq_consume_record (id bigint, event_id text, consumer_group text, consumed_at timestamptz)`, "unique constraint"},
		{"wrong columns", `CREATE TABLE mq_consume_record (id bigint, event_id text UNIQUE, consumer_group text, consumed_at timestamptz)`, "unique constraint"},
		{"deferrable", `CREATE TABLE mq_consume_record (event_id text, consumer_group text, consumed_at timestamptz, UNIQUE (event_id, consumer_group) DEFERRABLE)`, "unique constraint"},
		{"partial", `CREATE TABLE mq_consume_record (event_id text, consumer_group text, consumed_at timestamptz);
			CREATE UNIQUE INDEX ON mq_consume_record (event_id, consumer_group) WHERE consumed_at IS NULL`, "unique constraint"},
		{"narrow group", `CREATE TABLE mq_consume_record (event_id varchar(64), consumer_group varchar(4), consumed_at timestamptz, UNIQUE (consumer_group, event_id))`, "holds 4 characters"},
		{"collation", `CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
			CREATE TABLE mq_consume_record (event_id text COLLATE ci, consumer_group text, consumed_at timestamptz, UNIQUE (event_id, consumer_group))`, "collation"},
		{"the specification's widths", `CREATE TABLE mq_consume_record (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id varchar(64) NOT NULL, consumer_group varchar(64) NOT NULL,
			consumed_at timestamptz NOT NULL, CONSTRAINT uk_event_consumer UNIQUE (event_id, consumer_group))`, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Open(t, pgtest.Empty(t))
			if c.ddl != "" {
				mustExec(t, pool, c.ddl)
			}
			err := pgstore.New(pool, pgstore.Options{}).Check(t.Context(), "points")
			if (err == nil) != (c.want == "") || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("check says %v, want %q", err, c.want)
			}
		})
	}
}

// Claims on a table that is not as it should be wait for the operator: no letter.
func TestClaimWithoutTableIsUnavailable(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, pgtest.Empty(t))
	for _, ddl := range []string{`SELECT 1`, `CREATE TABLE mq_consume_record (event_id text, consumer_group text, consumed_at timestamptz)`} {
		mustExec(t, pool, ddl)
		_, err := pgstore.New(pool, pgstore.Options{}).Claim(t.Context(), "g", []string{"a"})
		if err == nil || consumer.OutcomeOf(err) != consumer.OutcomeUnavailable {
			t.Errorf("after %q: %v", ddl, err)
		}
	}
}

func TestConcurrentMigrations(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, pgtest.Empty(t))
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() { errs <- pgstore.Migrate(t.Context(), pool) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
