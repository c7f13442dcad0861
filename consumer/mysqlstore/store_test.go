package mysqlstore_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/storetest"
	"oncemore/internal/testkit"
)

const sqlCounters = "CREATE TABLE counter (`key` VARCHAR(64) COLLATE utf8mb4_bin PRIMARY KEY, n INT NOT NULL)"

const sqlAdd = "INSERT INTO counter (`key`, n) VALUES (?, ?) ON DUPLICATE KEY UPDATE n = n + VALUES(n)"

// database is a business database, seen by a pool that is not the store's.
type database struct {
	*sql.DB
	cfg *mysql.Config
}

// empty is a database without tables.
func empty(t *testing.T) database {
	t.Helper()
	cfg := testkit.MySQL(t)
	return database{mustOpen(t, cfg.FormatDSN()), cfg}
}

func mustOpen(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// prepared is a database with consume records and counters.
func prepared(t *testing.T) database {
	t.Helper()
	db := empty(t)
	if err := mysqlstore.Migrate(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	db.exec(t, sqlCounters)
	return db
}

func (db database) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func query[V any](t *testing.T, db database, text string, args ...any) []V {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var all []V
	for rows.Next() {
		var v V
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func (db database) counter(t *testing.T, key string) int {
	t.Helper()
	return query[int](t, db, "SELECT COALESCE(SUM(n), 0) FROM counter WHERE `key` = ?", key)[0]
}

func (db database) records(t *testing.T, group string) []string {
	t.Helper()
	return query[string](t, db, `SELECT event_id FROM mq_consume_record WHERE consumer_group = ? ORDER BY event_id`, group)
}

func (db database) store(t *testing.T, o mysqlstore.Options) *mysqlstore.Store {
	t.Helper()
	return open(t, db.cfg, o)
}

func open(t *testing.T, cfg *mysql.Config, o mysqlstore.Options) *mysqlstore.Store {
	t.Helper()
	store, err := mysqlstore.Open(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// claim claims on a store of its own.
func (db database) claim(t *testing.T, ids ...string) consumer.Claim[mysqlstore.Tx] {
	t.Helper()
	c, err := db.store(t, mysqlstore.Options{LockTimeout: 5 * time.Second}).Claim(t.Context(), "g", ids)
	if err != nil {
		t.Fatalf("claim %q: %v", ids, err)
	}
	t.Cleanup(func() { c.Rollback(context.Background()) })
	return c
}

// cut ends every connection to the database but the one that asks.
func (db database) cut(t *testing.T) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var ids sql.NullString
	const others = `SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE db = ? AND id <> CONNECTION_ID()`
	if err := conn.QueryRowContext(t.Context(), others, db.cfg.DBName).Scan(&ids); err != nil {
		t.Fatal(err)
	}
	for id := range strings.SplitSeq(ids.String, ",") {
		_, err := conn.ExecContext(t.Context(), "KILL "+cmp.Or(id, "0"))
		if err != nil && !strings.Contains(err.Error(), "Unknown thread") {
			t.Fatal(err)
		}
	}
}

func wantOutcome(t *testing.T, err error, want consumer.Outcome) {
	t.Helper()
	if err == nil || consumer.OutcomeOf(err) != want {
		t.Errorf("outcome %d of error %v, want %d", consumer.OutcomeOf(err), err, want)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture[mysqlstore.Tx] {
		return prepared(t).fixture(t, mysqlstore.Options{})
	})
}

// fixture is a store on the database for the conformance suite.
func (db database) fixture(t *testing.T, o mysqlstore.Options) storetest.Fixture[mysqlstore.Tx] {
	t.Helper()
	db.SetMaxIdleConns(0) // so that Cut meets the store alone
	away := db.cfg.Clone()
	away.Addr = closedPort(t)
	o.LockTimeout = time.Second
	return storetest.Fixture[mysqlstore.Tx]{
		Store: db.store(t, o),
		Add: func(ctx context.Context, tx mysqlstore.Tx, key string, n int) error {
			_, err := tx.ExecContext(ctx, sqlAdd, key, n)
			return err
		},
		Fail: func(ctx context.Context, tx mysqlstore.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO no_such_table VALUES (1)`)
			return err
		},
		Read:        db.counter,
		Records:     db.records,
		Cut:         db.cut,
		Unreachable: open(t, away, mysqlstore.Options{}),
	}
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

// The six steps of the specification, by the worker that the adapters use.
func TestWorkerOnMySQL(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	kit := consumertest.New(t, consumer.Config[mysqlstore.Tx]{
		Group: "points", Store: db.store(t, mysqlstore.Options{}), EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: func(ctx context.Context, tx mysqlstore.Tx, ev consumer.Event) error {
			_, err := tx.ExecContext(ctx, sqlAdd, "10001", 100)
			return err
		},
	})
	paid := consumertest.JSON("order.paid", `{"eventId":"payment-success-10001"}`)
	kit.OnlyOnce(paid, func() string { return fmt.Sprint(db.counter(t, "10001")) })
	if got := db.counter(t, "10001"); got != 100 {
		t.Errorf("%d points, want 100", got)
	}
	if got := db.records(t, "points"); fmt.Sprint(got) != "[payment-success-10001]" {
		t.Errorf("records %v", got)
	}
}

func TestTableIsTheSpecifiedOne(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	if err := mysqlstore.Migrate(t.Context(), db.DB); err != nil {
		t.Fatalf("a second migration: %v", err)
	}
	got := query[string](t, db, `
SELECT CONCAT_WS(' ', column_name, data_type, character_maximum_length, collation_name, is_nullable, NULLIF(column_key, ''), NULLIF(extra, ''))
FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'mq_consume_record' ORDER BY ordinal_position`)
	want := []string{"id bigint NO PRI auto_increment", "event_id varchar 255 utf8mb4_bin NO MUL",
		"consumer_group varchar 255 utf8mb4_bin NO", "consumed_at datetime NO"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("columns\n%v\nwant\n%v", got, want)
	}
}

func TestSessionSettings(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	loose := db.cfg.Clone()
	loose.Params = map[string]string{"sql_mode": "'ANSI_QUOTES'", "time_zone": "'+09:00'", "autocommit": "1", "lc_messages": "'de_DE'"}
	c, err := open(t, loose, mysqlstore.Options{LockTimeout: 1500 * time.Millisecond}).Claim(t.Context(), "g", []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Rollback(t.Context())
	var mode, zone, charset, language string
	var lock, metadata, autocommit int
	err = c.Tx().QueryRowContext(t.Context(), `SELECT @@sql_mode, @@time_zone, @@character_set_client, @@innodb_lock_wait_timeout, @@lock_wait_timeout, @@autocommit, @@lc_messages`).
		Scan(&mode, &zone, &charset, &lock, &metadata, &autocommit, &language)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(mode, "ANSI_QUOTES") || !strings.Contains(mode, "STRICT_ALL_TABLES") {
		t.Errorf("sql_mode %s", mode)
	}
	if zone != "+00:00" || charset != "utf8mb4" || lock != 2 || metadata != 2 || autocommit != 0 || language != "en_US" {
		t.Errorf("time_zone %s, charset %s, lock %d, metadata lock %d, autocommit %d, language %s", zone, charset, lock, metadata, autocommit, language)
	}
}

// A claim sees what was committed after its transaction began.
func TestReadCommitted(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	c := db.claim(t, "a")
	for want := 1; want <= 2; want++ {
		db.exec(t, sqlAdd, "k", 1)
		var got int
		if err := c.Tx().QueryRowContext(t.Context(), "SELECT n FROM counter WHERE `key` = 'k'").Scan(&got); err != nil || got != want {
			t.Errorf("reads %d, want %d (%v)", got, want, err)
		}
	}
}

func TestConsumedAtIsUTC(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"DATETIME", "TIMESTAMP", "DATETIME(6)"} {
		db := prepared(t)
		db.exec(t, "ALTER TABLE mq_consume_record MODIFY consumed_at "+kind+" NOT NULL")
		abroad := db.cfg.Clone()
		abroad.Loc, abroad.ParseTime = time.FixedZone("", 9*3600), true
		abroad.Params = map[string]string{"time_zone": "'+09:00'"}
		c, err := open(t, abroad, mysqlstore.Options{}).Claim(t.Context(), "g", []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		utc := db.cfg.Clone()
		utc.Params = map[string]string{"time_zone": "'+00:00'"}
		reader := mustOpen(t, utc.FormatDSN())
		at, err := mysqlstore.Find(t.Context(), reader, "g", "a")
		if err != nil || at == nil || time.Since(*at).Abs() > time.Minute {
			t.Errorf("%s: consumed at %v (%v)", kind, at, err)
		}
		since, err := mysqlstore.Since(t.Context(), reader, "g")
		if err != nil || since == nil || !since.Equal(*at) {
			t.Errorf("%s: since %v, want %v (%v)", kind, since, at, err)
		}
	}
}

func TestLookupOfRecords(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	if at, err := mysqlstore.Since(t.Context(), db.DB, "g"); err != nil || at != nil {
		t.Errorf("since of an empty table: %v, %v", at, err)
	}
	db.exec(t, `ALTER TABLE mq_consume_record MODIFY event_id VARCHAR(64) COLLATE utf8mb4_general_ci NOT NULL`)
	db.exec(t, `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at)
		VALUES ('old', 'g', '2026-01-02 03:04:05'), ('new', 'g', '2026-03-04'), ('other', 'h', '2025-01-01')`)
	since, err := mysqlstore.Since(t.Context(), db.DB, "g")
	if err != nil || since == nil || since.Format(time.DateTime) != "2026-01-02 03:04:05" {
		t.Errorf("since: %v, %v", since, err)
	}
	if at, err := mysqlstore.Find(t.Context(), db.DB, "g", "new"); err != nil || at == nil || at.Format(time.DateOnly) != "2026-03-04" {
		t.Errorf("find: %v, %v", at, err)
	}
	if at, err := mysqlstore.Find(t.Context(), db.DB, "g", "NEW"); err != nil || at != nil {
		t.Errorf("an id of another case was found: %v, %v", at, err)
	}
}

func TestHandlersCannotControlTheTransaction(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	ctx := t.Context()
	for _, text := range []string{"COMMIT", " rollback ", "/* x */ commit", "-- x\ncommit", "# x\nCOMMIT", "BEGIN", "START TRANSACTION", "SAVEPOINT a",
		"ROLLBACK TO oncemore_claim", "release savepoint oncemore_claim", "/*!50000 COMMIT */", "/*M! COMMIT */", "/*!99999 select */ commit", "XA START 'x'",
		"SET autocommit = 1", "SET sql_mode = ''", "set session transaction isolation level serializable", "CREATE TABLE x (i INT)", "DROP TABLE counter",
		"ALTER TABLE counter ADD x INT", "TRUNCATE counter", "LOCK TABLES counter WRITE", "UNLOCK TABLES", "PREPARE p FROM 'COMMIT'", "EXECUTE IMMEDIATE 'COMMIT'",
		"BEGIN NOT ATOMIC COMMIT; END", "ANALYZE TABLE counter", "FLUSH TABLES", "USE mysql", "", "/* only"} {
		c := db.claim(t, "a")
		_, executed := c.Tx().ExecContext(ctx, text)
		c.Rollback(ctx)
		c = db.claim(t, "a")
		_, asked := c.Tx().QueryContext(ctx, text)
		c.Rollback(ctx)
		c = db.claim(t, "a")
		row := c.Tx().QueryRowContext(ctx, text).Scan()
		c.Rollback(ctx)
		c = db.claim(t, "a")
		_, prepared := c.Tx().PrepareContext(ctx, text)
		committed := c.Commit(ctx) // the handler kept the error to itself
		c.Rollback(ctx)
		for i, err := range []error{executed, asked, row, prepared, committed} {
			if !errors.Is(err, mysqlstore.ErrTransactionControl) {
				t.Errorf("%q by way %d: %v", text, i, err)
			}
		}
	}
	c := db.claim(t, "b")
	if _, err := c.Tx().ExecContext(ctx, "SELECT 1; COMMIT"); err == nil {
		t.Error("two statements in one went through")
	}
	c.Rollback(ctx)
	if got := db.records(t, "g"); len(got) != 0 {
		t.Errorf("records %v got committed", got)
	}
}

func TestHandlersMayQueryAndChange(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	c := db.claim(t, "b")
	for _, text := range []string{"select 'commit; begin; it''s'", "(SELECT 1) UNION (SELECT 2)", "/* why */ -- x\n UPDATE counter SET n = 1 WHERE `key` = 'end'",
		"with x as (select 1 as a) select a from x", "REPLACE INTO counter VALUES ('r', 1)", "DELETE FROM counter WHERE `key` = 'r'", "DO 1"} {
		if _, err := c.Tx().ExecContext(t.Context(), text); err != nil {
			t.Errorf("%q is refused: %v", text, err)
		}
	}
	if err := c.Commit(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStoredProceduresThatCommitAreFoundOut(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	db.exec(t, "CREATE PROCEDURE good() INSERT INTO counter VALUES ('good', 1)")
	db.exec(t, "CREATE PROCEDURE bad() COMMIT")
	c := db.claim(t, "a")
	if _, err := c.Tx().ExecContext(t.Context(), "CALL good()"); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context()); err != nil || db.counter(t, "good") != 1 {
		t.Errorf("a procedure that keeps to its rows: %v", err)
	}
	c = db.claim(t, "b")
	if _, err := c.Tx().ExecContext(t.Context(), "CALL bad()"); err != nil {
		t.Fatal(err)
	}
	err := c.Commit(t.Context())
	wantOutcome(t, err, consumer.OutcomeRetry)
	if !strings.Contains(fmt.Sprint(err), "stored procedure") {
		t.Errorf("the error does not name the cause: %v", err)
	}
}

func TestPreparedStatements(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	c := db.claim(t, "a")
	add, err := c.Tx().PrepareContext(t.Context(), sqlAdd)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := add.ExecContext(t.Context(), "k", 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := db.counter(t, "k"); got != 6 {
		t.Errorf("counter %d, want 6", got)
	}
	if _, err := add.ExecContext(t.Context(), "k", 1); err == nil {
		t.Error("a statement outlives its transaction")
	}
	if _, err := c.Tx().ExecContext(t.Context(), sqlAdd, "k", 1); err == nil {
		t.Error("Tx outlives its transaction")
	}
}

// After a deadlock the server has rolled back. A handler that does not look at
// the error, and goes on, must not write anything without a record.
func TestGoingOnAfterADeadlockWritesNothing(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*testing.T, mysqlstore.Tx){
		"by exec": func(t *testing.T, tx mysqlstore.Tx) {
			tx.ExecContext(t.Context(), sqlAdd, "x", 1)
			if _, err := tx.ExecContext(t.Context(), sqlAdd, "after", 1); err == nil {
				t.Error("a statement after the deadlock went through")
			}
		},
		"by rows": func(t *testing.T, tx mysqlstore.Tx) {
			rows, err := tx.QueryContext(t.Context(), "SELECT n FROM counter WHERE `key` = 'x' FOR UPDATE")
			if err == nil {
				for rows.Next() {
				}
				rows.Close()
			}
			tx.ExecContext(t.Context(), sqlAdd, "after", 1)
		},
		"by row": func(t *testing.T, tx mysqlstore.Tx) {
			var n int
			tx.QueryRowContext(t.Context(), "SELECT n FROM counter WHERE `key` = 'x' FOR UPDATE").Scan(&n)
			tx.ExecContext(t.Context(), sqlAdd, "after", 1)
		},
		"by prepared statement": func(t *testing.T, tx mysqlstore.Tx) {
			add, err := tx.PrepareContext(t.Context(), sqlAdd)
			if err != nil {
				t.Fatal(err)
			}
			add.ExecContext(t.Context(), "x", 1)
			add.ExecContext(t.Context(), "after", 1)
		},
	}
	for name, goOn := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := prepared(t)
			db.exec(t, sqlAdd, "x", 1)
			db.exec(t, sqlAdd, "y", 1)
			loseDeadlock(t, db, goOn)
			if got := db.records(t, "g"); len(got) != 0 {
				t.Errorf("records %v", got)
			}
			if got := db.counter(t, "after"); got != 0 {
				t.Errorf("effect %d without a record", got)
			}
		})
	}
}

// loseDeadlock lets a claim wait for x, by way of wait, while a heavier
// transaction that has x waits for the claim's y.
func loseDeadlock(t *testing.T, db database, wait func(*testing.T, mysqlstore.Tx)) {
	t.Helper()
	c := db.claim(t, "victim")
	if _, err := c.Tx().ExecContext(t.Context(), "SELECT n FROM counter WHERE `key` = 'y' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	other, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	for _, key := range []string{"x", "w1", "w2", "w3", "w4", "w5"} { // the server gives up the lighter one
		if _, err := other.ExecContext(t.Context(), sqlAdd, key, 1); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(t.Context(), sqlAdd, "y", 1)
		done <- err
	}()
	wait(t, c.Tx())
	if err := <-done; err != nil {
		t.Fatalf("the other transaction lost: %v", err)
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context()); err == nil {
		t.Error("committed after a deadlock")
	}
	c.Rollback(t.Context())
}

// A duplicate key undoes its own statement only: the usual way to find out that
// a row is there already.
func TestDuplicateKeyMayBeHandled(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	db.exec(t, "INSERT INTO counter VALUES ('there', 1)")
	c := db.claim(t, "a")
	_, err := c.Tx().ExecContext(t.Context(), "INSERT INTO counter VALUES ('there', 1)")
	var violation *mysql.MySQLError
	if !errors.As(err, &violation) || violation.Number != 1062 {
		t.Fatalf("error %v, want 1062", err)
	}
	wantOutcome(t, c.Blame(err), consumer.OutcomeRetry)
	if _, err := c.Tx().ExecContext(t.Context(), sqlAdd, "k", 1); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if db.counter(t, "k") != 1 || len(db.records(t, "g")) != 1 {
		t.Error("the rest of the transaction was not committed")
	}
}

func TestRowsLeftOpenAreTheHandlersFault(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	for i := range 200 {
		db.exec(t, sqlAdd, fmt.Sprint(i), 1)
	}
	c := db.claim(t, "a")
	rows, err := c.Tx().QueryContext(t.Context(), "SELECT a.n, REPEAT('x', 100) FROM counter a, counter b")
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	_, err = c.Tx().ExecContext(t.Context(), sqlAdd, "k", 1)
	if wantOutcome(t, c.Blame(err), consumer.OutcomeRetry); !strings.Contains(fmt.Sprint(err), "has not closed the rows") {
		t.Errorf("error %v", err)
	}
	wantOutcome(t, c.Commit(t.Context()), consumer.OutcomeRetry)
	c.Rollback(t.Context())

	c = db.claim(t, "a")
	c.Tx().QueryRowContext(t.Context(), "SELECT a.n, REPEAT('x', 100) FROM counter a, counter b") // not scanned
	wantOutcome(t, c.Commit(t.Context()), consumer.OutcomeRetry)
	c.Rollback(t.Context())
	if got := db.records(t, "g"); len(got) != 0 {
		t.Errorf("records %v", got)
	}
}

func TestHandlersOwnDeadlineIsItsFailure(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	c := db.claim(t, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Tx().ExecContext(ctx, `SELECT SLEEP(1)`)
	wantOutcome(t, c.Blame(err), consumer.OutcomeRetry)
}

func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	c, err := db.store(t, mysqlstore.Options{StatementTimeout: 100 * time.Millisecond}).Claim(t.Context(), "g", []string{"b"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Rollback(t.Context())
	var n int
	began := time.Now()
	err = c.Tx().QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.columns a, information_schema.columns b, information_schema.columns c`).Scan(&n)
	wantOutcome(t, c.Blame(err), consumer.OutcomeRetry)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the server took %s to end the statement", took)
	}
}

// What breaks while rows are read is seen as well, whatever the handler says.
func TestConnectionLostWhereWeDoNotSeeIt(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	db.SetMaxIdleConns(0)
	c := db.claim(t, "a")
	add, err := c.Tx().PrepareContext(t.Context(), sqlAdd)
	if err != nil {
		t.Fatal(err)
	}
	db.cut(t)
	if _, err := add.ExecContext(t.Context(), "k", 1); err == nil {
		t.Fatal("the connection was not cut")
	}
	wantOutcome(t, c.Blame(errors.New("no points today")), consumer.OutcomeUnavailable)
}
