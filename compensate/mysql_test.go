package compensate

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"oncemore/consumer/barrier"
	"oncemore/consumer/mysqlstore"
	"oncemore/internal/testkit"
	"oncemore/reconcile"
)

const mysqlCredit = `
action: credit
applies_to: [missing_effect]
kind: sql
connection: my
sql: insert into effect (event_id, amount, at) values (:event_id, :consumed.amount, '2026-11-30 14:00:00')
expect: {rows: 1}
`

// openMySQLBank is a bank whose effects are kept in MySQL or MariaDB.
func openMySQLBank(t *testing.T) (*bank, *sql.DB) {
	t.Helper()
	b := openBank(t)
	cfg := testkit.MySQL(t)
	ledger, err := mysqlstore.OpenPool(cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ledger.Close() })
	reader := cfg.Clone()
	reader.User, reader.Passwd = "r_"+cfg.DBName[2:22], "reader"
	for _, sql := range []string{
		"CREATE TABLE effect (event_id varchar(255) COLLATE utf8mb4_bin PRIMARY KEY, amount decimal(20,2), at datetime(6)) ENGINE=InnoDB", barrier.MySQLDDL,
		"CREATE USER " + reader.User + "@'%' IDENTIFIED BY 'reader'", "GRANT SELECT ON " + cfg.DBName + ".* TO " + reader.User + "@'%'",
	} {
		if _, err := ledger.ExecContext(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	t.Cleanup(func() {
		if _, err := ledger.ExecContext(context.Background(), "DROP USER "+reader.User+"@'%'"); err != nil {
			t.Error(err)
		}
	})
	reading, err := mysqlstore.OpenPool(reader, mysqlstore.PoolOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reading.Close() })
	b.Targets["my"] = Target{MySQL: ledger}
	b.keepJob(strings.Replace(bankJob, "effect: {connection: pg", "effect: {connection: my", 1))
	b.runs, err = reconcile.NewRuns(b.console, b.Jobs, map[string]reconcile.Database{
		"pg": {Name: "pg", Postgres: b.reading}, "my": {Name: "my", MySQL: reading}}, reconcile.Options{Clock: b.clock, Log: b.Compensations.Log})
	if err != nil {
		t.Fatal(err)
	}
	b.Runs = b.runs
	return b, ledger
}

func rowsOf(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A statement in MySQL: counted without a trace, executed once with its guard row,
// rolled back where it affects another number of rows.
func TestMySQLTarget(t *testing.T) {
	t.Parallel()
	b, ledger := openMySQLBank(t)
	b.define(mysqlCredit)
	first, second := b.missing("e-1", 100), b.missing("e-2", 7)
	seen, err := b.Preview(t.Context(), maker, "credit", []int64{first}, 1)
	if err != nil || len(seen) != 1 || len(seen[0].Counted) != 1 || seen[0].Counted[0].Rows != 1 || seen[0].Counted[0].Error != "" {
		t.Errorf("preview %+v, %v", seen, err)
	}
	if n := rowsOf(t, ledger, "SELECT count(*) FROM effect"); n != 0 {
		t.Errorf("the preview left %d rows", n)
	}
	comp := b.approved("credit", first)
	if comp = b.do(comp.ID); comp.State != Verified {
		t.Fatalf("%s: %s", comp.State, text(comp.Why, ""))
	}
	if n := rowsOf(t, ledger, "SELECT count(*) FROM oncemore_barrier WHERE saga = 'C-1' AND step = 'action'"); n != 1 {
		t.Errorf("%d guard rows", n)
	}
	b.define(strings.Replace(mysqlCredit, "rows: 1", "rows: 2", 1))
	comp = b.approved("credit", second)
	if comp = b.do(comp.ID); comp.State != NeedsAttention || !strings.Contains(text(comp.Why, ""), "1, not 2") {
		t.Errorf("%s: %s", comp.State, text(comp.Why, ""))
	}
	if n := rowsOf(t, ledger, "SELECT count(*) FROM effect"); n != 1 {
		t.Errorf("%d effects after one that was rolled back", n)
	}
}
