package check_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"oncemore/consumer/effect"
	"oncemore/consumer/mysqlstore"
	"oncemore/internal/check"
	"oncemore/internal/testkit"
)

// mysqlInput is the sound input with its business in MySQL.
func mysqlInput(t *testing.T) (check.Input, *sql.DB) {
	t.Helper()
	cfg := testkit.MySQL(t)
	open := func(o mysqlstore.PoolOptions) *sql.DB {
		db, err := mysqlstore.OpenPool(cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	writer := open(mysqlstore.PoolOptions{})
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
	in.Connections = []check.Connection{{Name: "shop", MySQL: open(mysqlstore.PoolOptions{ReadOnly: true}), Writer: true, WriteMySQL: writer}}
	in.Consumers[0].Prepare, in.Consumers[0].PrepareMySQL = nil, points.Prepare
	return in, writer
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
