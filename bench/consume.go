package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"oncemore/consumer"
	"oncemore/consumer/kafka"
	"oncemore/consumer/pgstore"
)

const (
	consumeRecords = 100_000
	consumeBatch   = 500
	consumeGoal    = 0.4
)

const pointsTable = `create table user_points (order_id text primary key, points bigint not null)`

// Consume measures a group with a handler per record: its record, its effect
// and its offset. The limit is what the database does with the same events in
// sets, by as many connections as there are partitions, and without a broker.
func Consume(ctx context.Context, e Env, partitions int32) error {
	return e.ratio(consumeName(partitions), consumeGoal,
		func() (rate, error) { return e.consume(ctx, partitions) },
		func() (rate, error) { return e.consumeLimit(ctx, int(partitions)) })
}

func consumeName(partitions int32) string {
	if partitions == 1 {
		return "consume_1_partition"
	}
	return fmt.Sprintf("consume_%d_partitions", partitions)
}

func (e Env) consume(ctx context.Context, partitions int32) (rate, error) {
	pool, drop, err := e.shop(ctx)
	if err != nil {
		return rate{}, err
	}
	defer drop()
	topic := unique("bench-consume")
	remove, err := e.topic(ctx, topic, partitions, orders(consumeRecords))
	if err != nil {
		return rate{}, err
	}
	defer remove()
	member, err := kafka.New(consumer.Config[pgstore.Tx]{
		Group: unique("bench"), Store: pgstore.New(pool, pgstore.Options{}), Handler: addPoints, BatchSize: consumeBatch,
		EventID: consumer.EventIDSource{Header: "event-id"}, Logger: slog.New(slog.DiscardHandler),
	}, kafka.Options{Topics: []string{topic}, Client: []kgo.Opt{kgo.SeedBrokers(e.Kafka)}, CreateTopics: true})
	if err != nil {
		return rate{}, err
	}
	return timeMember(ctx, member)
}

// timeMember measures from the first committed batch to the last, so that
// joining the group, which happens once in a consumer's life, does not count.
func timeMember(ctx context.Context, member consumer.Runner) (rate, error) {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- member.Run(running) }()
	defer func() { stop(); <-ended }()
	first := int64(0)
	if err := until(ctx, func() (bool, error) { first = member.Status().Consumed; return first > 0, nil }); err != nil {
		return rate{}, err
	}
	began := time.Now()
	if err := until(ctx, func() (bool, error) { return member.Status().Consumed >= consumeRecords, nil }); err != nil {
		return rate{}, err
	}
	return rate{int(consumeRecords - first), time.Since(began)}, nil
}

const sqlAddPoints = `
insert into user_points (order_id, points) values ($1, 100)
on conflict (order_id) do update set points = user_points.points + excluded.points`

func addPoints(_ context.Context, tx pgstore.Tx, ev consumer.Event) error {
	tx.Queue(sqlAddPoints, string(ev.Key))
	return nil
}

const sqlAddPointsSet = `
insert into user_points (order_id, points) select unnest($1::text[]), 100
on conflict (order_id) do update set points = user_points.points + excluded.points`

const sqlClaimSet = `
insert into mq_consume_record (event_id, consumer_group, consumed_at)
select id, 'limit', now() from unnest($1::text[]) as e(id) order by id collate "C"
on conflict (event_id, consumer_group) do nothing returning event_id`

func (e Env) consumeLimit(ctx context.Context, workers int) (rate, error) {
	pool, drop, err := e.shop(ctx)
	if err != nil {
		return rate{}, err
	}
	defer drop()
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		g.Go(func() error { return limitWorker(ctx, pool, w, workers) })
	}
	if err := g.Wait(); err != nil {
		return rate{}, err
	}
	return rate{consumeRecords, time.Since(began)}, nil
}

// limitWorker does every workers-th batch: claim and effect as sets, one commit.
func limitWorker(ctx context.Context, pool *pgxpool.Pool, w, workers int) error {
	for from := w * consumeBatch; from < consumeRecords; from += workers * consumeBatch {
		events, orders := make([]string, 0, consumeBatch), make([]string, 0, consumeBatch)
		for n := from; n < min(from+consumeBatch, consumeRecords); n++ {
			orders = append(orders, strconv.Itoa(n))
			events = append(events, eventID(n))
		}
		batch := &pgx.Batch{}
		batch.Queue(sqlClaimSet, events)
		batch.Queue(sqlAddPointsSet, orders)
		if err := pool.SendBatch(ctx, batch).Close(); err != nil { // a batch is one transaction
			return err
		}
	}
	return nil
}

func (e Env) shop(ctx context.Context) (*pgxpool.Pool, func(), error) {
	pool, drop, err := e.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, err = pool.Exec(ctx, pointsTable)
	if err == nil {
		err = pgstore.Migrate(ctx, pool)
	}
	if err != nil {
		drop()
		return nil, nil, err
	}
	return pool, drop, nil
}

func eventID(n int) string { return "payment-success-" + strconv.Itoa(n) }

func orders(n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		id := eventID(i)
		records[i] = &kgo.Record{
			Key: []byte(strconv.Itoa(i)), Value: fmt.Appendf(nil, `{"eventId":%q,"orderId":"%d","points":100,"amount":"249.00","currency":"CNY"}`, id, i),
			Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(id)}},
		}
	}
	return records
}
