package check_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"oncemore/consumer/effect"
	"oncemore/consumer/mysqlstore"
	"oncemore/internal/check"
	"oncemore/internal/testkit"
)

// mysqlInput is the sound input with its business in MySQL.
func mysqlInput(t *testing.T) (check.Input, *sql.DB) {
	t.Helper()
	cfg := testkit.MySQL(t)
	open := func(cfg *mysql.Config, o mysqlstore.PoolOptions) *sql.DB {
		db, err := mysqlstore.OpenPool(cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	writer := open(cfg, mysqlstore.PoolOptions{})
	for _, text := range []string{mysqlstore.DDL, "create table user_points (order_id bigint primary key, points numeric not null)"} {
		if _, err := writer.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	points, err := effect.NewMySQL("insert into user_points values (:orderId, :points)", nil)
	if err != nil {
		t.Fatal(err)
	}
	in := soundInput(t)
	in.Connections = []check.Connection{{Name: "shop", MySQL: open(mysqlReader(t, writer, cfg), mysqlstore.PoolOptions{ReadOnly: true}), Writer: true, WriteMySQL: writer}}
	in.Consumers[0].Prepare, in.Consumers[0].PrepareMySQL = nil, points.Prepare
	return in, writer
}

// mysqlReader is a user of the server who may only select from the database.
func mysqlReader(t *testing.T, admin *sql.DB, cfg *mysql.Config) *mysql.Config {
	t.Helper()
	reading := cfg.Clone()
	reading.User, reading.Passwd = strings.ReplaceAll(testkit.Name("r"), "-", "_"), "reads-only"
	for _, text := range []string{"CREATE USER " + reading.User + " IDENTIFIED BY 'reads-only'", "GRANT SELECT ON " + cfg.DBName + ".* TO " + reading.User} {
		if _, err := admin.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		db, err := sql.Open("mysql", cfg.FormatDSN())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("DROP USER " + reading.User); err != nil {
			t.Error(err)
		}
	})
	return reading
}

// A credential that may write is told of, and so is a look-up that fails though
// table and columns are there.
func TestEvidenceThatMayBeWrittenOrFails(t *testing.T) {
	t.Parallel()
	in, db := mysqlInput(t)
	reader := in.Connections[0].MySQL
	in.Connections[0].MySQL = db
	expect(t, run(t, in), "evidence.readonly.writes")
	in.Connections[0].MySQL = reader
	in.Evidence[0].Try = func(context.Context) error { return errors.New("unknown column 'stauts' in 'WHERE'") }
	f := one(t, run(t, in), "evidence.lookup.failed")
	if f.Severity != check.Critical || !slices.Contains(f.Evidence, "unknown column 'stauts' in 'WHERE'") {
		t.Errorf("%+v", f)
	}
	in.Evidence[0].Try = func(context.Context) error { return nil }
	one(t, run(t, in), "evidence.lookup.ok")
	in.Evidence[0].Strangers = func(context.Context) []string { return []string{"evt-1", "evt-2"} }
	if f := one(t, run(t, in), "evidence.group.absent"); f.Severity != check.Warning || !slices.Contains(f.Evidence, "consumer_group holds evt-1, evt-2") {
		t.Errorf("%+v", f)
	}
}

func TestMySQLConnections(t *testing.T) {
	t.Parallel()
	in, db := mysqlInput(t)
	expect(t, run(t, in))
	alter := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	alter("alter table mq_consume_record modify event_id varchar(64) collate utf8mb4_general_ci not null, drop key uk_event_consumer, add unique key uk_event_consumer (event_id(20), consumer_group)")
	expect(t, run(t, in), "consume_record.collation.loose", "consume_record.length.short", "consume_record.unique.missing")
	alter("alter table mq_consume_record drop key uk_event_consumer, drop column consumed_at")
	expect(t, run(t, in), "consume_record.columns.missing", "evidence.columns.missing")
	alter("alter table mq_consume_record engine = MyISAM, add consumed_at datetime not null")
	expect(t, run(t, in), "consume_record.engine.bad", "evidence.index.missing")
	alter("drop table mq_consume_record")
	alter("drop table user_points")
	expect(t, run(t, in), "consume_record.table.missing", "evidence.table.missing", "consumer.statement.bad")
}

func TestMySQLThatIsDown(t *testing.T) {
	t.Parallel()
	in, db := mysqlInput(t)
	db.Close()
	in.Connections[0].MySQL = db
	expect(t, run(t, in), "connection.reach.down", "connection.reach.down", "consume_record.table.unknown", "consumer.statement.down", "evidence.table.unknown")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if check.AllPassed(check.Run(ctx, in, func() time.Time { return noon })) {
		t.Error("all passed")
	}
}
