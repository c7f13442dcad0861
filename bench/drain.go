package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/migrations"
)

const (
	drainLetters    = 30_000
	drainPartitions = 4
	drainGoal       = 0.5
	drainFullGoal   = 0.6
)

// Drain measures how fast dead letters with a payload of 1 KB and a stack of
// 4 KB become rows. The limit is COPY of the very rows that the drain wrote,
// into tables with the same indexes.
func Drain(ctx context.Context, e Env) error {
	var drained *pgxpool.Pool
	var drop func()
	ours := func() (r rate, err error) {
		drained, drop, err = e.migrated(ctx)
		if err != nil {
			return rate{}, err
		}
		return e.drain(ctx, drained)
	}
	limit := func() (rate, error) {
		defer drop()
		return e.copyRows(ctx, drained)
	}
	return e.ratio("drain", drainGoal, ours, limit)
}

func (e Env) migrated(ctx context.Context) (*pgxpool.Pool, func(), error) {
	pool, drop, err := e.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := migrations.Up(ctx, pool); err != nil {
		drop()
		return nil, nil, err
	}
	return pool, drop, nil
}

func (e Env) drain(ctx context.Context, pool *pgxpool.Pool) (rate, error) {
	topic := unique("bench") + ".DLT"
	remove, err := e.topic(ctx, topic, drainPartitions, deadLetters(drainLetters))
	if err != nil {
		return rate{}, err
	}
	defer remove()
	drainer, cluster, err := e.drainer(pool, topic)
	if err != nil {
		return rate{}, err
	}
	defer cluster.Close()
	return timeDrain(ctx, drainer)
}

// drainer drains one topic; the caller closes the cluster after it.
func (e Env) drainer(pool *pgxpool.Pool, topic string) (*dlq.Drainer, *dlq.Cluster, error) {
	set, err := dialect.Load()
	if err != nil {
		return nil, nil, err
	}
	cluster, err := dlq.NewCluster("bench", kgo.SeedBrokers(e.Kafka))
	if err != nil {
		return nil, nil, err
	}
	return dlq.NewDrainer(dlq.DrainerConfig{
		Pool: pool, Cluster: cluster, Sources: []dlq.DrainSource{{Pattern: topic}}, Dialects: set,
		Log: slog.New(slog.DiscardHandler), Group: unique("bench-drain"),
	}), cluster, nil
}

// timeDrain measures from the first stored batch to the last.
func timeDrain(ctx context.Context, drainer *dlq.Drainer) (rate, error) {
	stop := background(ctx, drainer.Run)
	defer stop()
	first := int64(0)
	if err := until(ctx, func() (bool, error) { first = stored(drainer); return first > 0, nil }); err != nil {
		return rate{}, err
	}
	began := time.Now()
	if err := until(ctx, func() (bool, error) { return stored(drainer) >= drainLetters, nil }); err != nil {
		return rate{}, err
	}
	return rate{int(drainLetters - first), time.Since(began)}, nil
}

func stored(drainer *dlq.Drainer) (n int64) {
	for _, s := range drainer.Status() {
		n += s.Drained
	}
	return n
}

// written are the tables that hold letters, in the order of their copies. What
// else a drain writes, identities above all, is its own cost.
var written = []string{"dead_letter", "dead_letter_body"}

// drainInto drains into tables that are full, next to COPY of the same rows into
// the same tables, under other ids.
func (e Env) drainInto(ctx context.Context, pool *pgxpool.Pool) error {
	var since uuid.UUID
	ours := func() (rate, error) {
		if err := pool.QueryRow(ctx, "select id from dead_letter order by id desc limit 1").Scan(&since); err != nil {
			return rate{}, fmt.Errorf("find the newest letter: %w", err)
		}
		return e.drain(ctx, pool)
	}
	limit := func() (rate, error) { return e.copyAgain(ctx, pool, since) }
	return e.ratio("drain_into_full_tables", drainFullGoal, ours, limit)
}

// sqlCopyAgain reads the rows that arrived since, a millisecond later each, so
// that they can be written beside themselves.
const sqlCopyAgain = `copy (select ((lpad(to_hex(('x0000' || substr(h, 1, 12))::bit(64)::bigint + 1), 12, '0') || substr(h, 13))::uuid) as id, %[2]s
from (select *, replace(id::text, '-', '') as h from %[1]s where id > '%[3]s') d order by 1) to stdout with (format binary)`

const sqlColumns = `
select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute
where attrelid = $1::regclass and attnum > 0 and not attisdropped and attname <> 'id'`

func (e Env) copyAgain(ctx context.Context, pool *pgxpool.Pool, since uuid.UUID) (rate, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return rate{}, err
	}
	defer conn.Release()
	rows, columns := make([]bytes.Buffer, len(written)), make([]string, len(written))
	for i, table := range written {
		if err := conn.QueryRow(ctx, sqlColumns, table).Scan(&columns[i]); err != nil {
			return rate{}, fmt.Errorf("columns of %s: %w", table, err)
		}
		if _, err := conn.Conn().PgConn().CopyTo(ctx, &rows[i], fmt.Sprintf(sqlCopyAgain, table, columns[i], since)); err != nil {
			return rate{}, fmt.Errorf("copy out of %s: %w", table, err)
		}
	}
	began := time.Now()
	var n int64
	for i, table := range written {
		tag, err := conn.Conn().PgConn().CopyFrom(ctx, &rows[i], fmt.Sprintf("copy %s (id, %s) from stdin with (format binary)", table, columns[i]))
		if err != nil {
			return rate{}, fmt.Errorf("copy into %s: %w", table, err)
		}
		n = tag.RowsAffected()
	}
	return rate{int(n), time.Since(began)}, nil
}

// copyRows copies the drained rows into another migrated database.
func (e Env) copyRows(ctx context.Context, from *pgxpool.Pool) (rate, error) {
	to, drop, err := e.migrated(ctx)
	if err != nil {
		return rate{}, err
	}
	defer drop()
	rows := make([]bytes.Buffer, len(written))
	for i, table := range written {
		if err := copyOut(ctx, from, table, &rows[i]); err != nil {
			return rate{}, err
		}
	}
	conn, err := to.Acquire(ctx)
	if err != nil {
		return rate{}, err
	}
	defer conn.Release()
	began := time.Now()
	for i, table := range written {
		if _, err := conn.Conn().PgConn().CopyFrom(ctx, &rows[i], "copy "+table+" from stdin with (format binary)"); err != nil {
			return rate{}, fmt.Errorf("copy into %s: %w", table, err)
		}
	}
	return rate{drainLetters, time.Since(began)}, nil
}

// copyOut reads a table's rows; a partitioned one only through a query.
func copyOut(ctx context.Context, pool *pgxpool.Pool, table string, into *bytes.Buffer) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Conn().PgConn().CopyTo(ctx, into, "copy (table "+table+") to stdout with (format binary)"); err != nil {
		return fmt.Errorf("copy out of %s: %w", table, err)
	}
	return nil
}

// deadStack has 4 KB.
var deadStack = strings.Repeat("\tat com.shop.points.PointsListener.onMessage(PointsListener.java:42)\n", 60)

// deadLetters are as Spring Kafka publishes them: 20 kinds of error.
func deadLetters(n int) []*kgo.Record {
	filler := strings.Repeat("x", 900)
	records := make([]*kgo.Record, n)
	for i := range records {
		class := fmt.Sprintf("com.shop.points.RuleException%d", i%20)
		records[i] = &kgo.Record{
			Key: fmt.Appendf(nil, "%d", i), Value: fmt.Appendf(nil, `{"eventId":%q,"orderId":"%d","note":%q}`, eventID(i), i, filler),
			Headers: []kgo.RecordHeader{
				{Key: "event-id", Value: []byte(eventID(i))},
				{Key: "kafka_dlt-exception-fqcn", Value: []byte(class)},
				{Key: "kafka_dlt-exception-message", Value: fmt.Appendf(nil, "rule %d not found", i)},
				{Key: "kafka_dlt-exception-stacktrace", Value: []byte(class + ": rule not found\n" + deadStack)},
				{Key: "kafka_dlt-original-topic", Value: []byte("order.paid")},
				{Key: "kafka_dlt-original-partition", Value: binary.BigEndian.AppendUint32(nil, uint32(i%drainPartitions))},
				{Key: "kafka_dlt-original-offset", Value: binary.BigEndian.AppendUint64(nil, uint64(i))},
				{Key: "kafka_dlt-original-timestamp", Value: binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))},
				{Key: "kafka_dlt-original-timestamp-type", Value: []byte("CreateTime")},
				{Key: "kafka_dlt-original-consumer-group", Value: []byte("points-consumer-group")},
			},
		}
	}
	return records
}
