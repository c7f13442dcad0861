package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	consumeUsers   = 20_000 // rows that batches share, also with those of other partitions
	consumeGoal    = 0.6
)

const pointsTable = `create table user_points (user_id text primary key, points bigint not null)`

// way is one way to give points, as a handler and as the database alone does it.
type way struct {
	name  string
	set   func(*consumer.Config[pgstore.Tx])
	limit func(b *pgx.Batch, users []string)
}

// ways are a handler for each event, whose statements are pipelined, next to
// the same pipeline written by hand; and a handler of batches next to one
// statement for the set. Batches that meet at the same rows deadlock unless they
// come to them in one order: the handler declares its keys, the limits sort.
var ways = []way{
	{"consume_handler", func(c *consumer.Config[pgstore.Tx]) { c.Handler, c.Keys = addPoints, userKey }, pipelined},
	{"consume_batch", func(c *consumer.Config[pgstore.Tx]) { c.BatchHandler = addPointsOfAll }, inSets},
}

// Consume measures a group: records, effects and offsets, with rows that its
// batches share. The limit is what the database does with the same events by as
// many connections as there are partitions, claims included and without a broker.
func Consume(ctx context.Context, e Env, partitions int32) error {
	for _, w := range ways {
		err := e.ratio(consumeName(w.name, partitions), consumeGoal,
			func() (rate, error) { return e.consume(ctx, partitions, w) },
			func() (rate, error) { return e.consumeLimit(ctx, int(partitions), w) })
		if err != nil {
			return err
		}
	}
	return nil
}

func consumeName(name string, partitions int32) string {
	if partitions == 1 {
		return name + "_1_partition"
	}
	return fmt.Sprintf("%s_%d_partitions", name, partitions)
}

func (e Env) consume(ctx context.Context, partitions int32, w way) (rate, error) {
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
	member, err := e.member(pool, topic, w.set)
	if err != nil {
		return rate{}, err
	}
	return timeMember(ctx, member, consumeRecords)
}

func (e Env) member(pool *pgxpool.Pool, topic string, set func(*consumer.Config[pgstore.Tx])) (consumer.Runner, error) {
	cfg := consumer.Config[pgstore.Tx]{
		Group: unique("bench"), Store: pgstore.New(pool, pgstore.Options{}), BatchSize: consumeBatch,
		EventID: consumer.EventIDSource{Header: "event-id"}, Logger: slog.New(slog.DiscardHandler),
	}
	set(&cfg)
	return kafka.New(cfg, kafka.Options{Topics: []string{topic}, Client: []kgo.Opt{kgo.SeedBrokers(e.Kafka)}, CreateTopics: true})
}

// timeMember measures from the first committed batch to the last, so that
// joining the group, which happens once in a consumer's life, does not count.
func timeMember(ctx context.Context, member consumer.Runner, records int64) (rate, error) {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- member.Run(running) }()
	defer func() { stop(); <-ended }()
	first := int64(0)
	if err := until(ctx, func() (bool, error) { first = member.Status().Consumed; return first > 0, nil }); err != nil {
		return rate{}, err
	}
	began := time.Now()
	if err := until(ctx, func() (bool, error) { return member.Status().Consumed >= records, nil }); err != nil {
		return rate{}, err
	}
	return rate{int(records - first), time.Since(began)}, nil
}

const sqlAddPoints = `
insert into user_points (user_id, points) values ($1, 100)
on conflict (user_id) do update set points = user_points.points + excluded.points`

func addPoints(_ context.Context, tx pgstore.Tx, ev consumer.Event) error {
	tx.Queue(sqlAddPoints, string(ev.Key))
	return nil
}

const sqlAddPointsSet = `
insert into user_points (user_id, points) select u, 100 * count(*) from unnest($1::text[]) as e(u) group by u order by u
on conflict (user_id) do update set points = user_points.points + excluded.points`

func userKey(ev consumer.Event) ([]string, error) { return []string{"user/" + string(ev.Key)}, nil }

func addPointsOfAll(_ context.Context, tx pgstore.Tx, events []consumer.Event) error {
	users := make([]string, len(events))
	for i, ev := range events {
		users[i] = string(ev.Key)
	}
	tx.Queue(sqlAddPointsSet, users)
	return nil
}

func pipelined(b *pgx.Batch, users []string) {
	for _, u := range slices.Sorted(slices.Values(users)) {
		b.Queue(sqlAddPoints, u)
	}
}

func inSets(b *pgx.Batch, users []string) { b.Queue(sqlAddPointsSet, users) }

const sqlClaimSet = `
insert into mq_consume_record (event_id, consumer_group, consumed_at)
select id, 'limit', now() from unnest($1::text[]) as e(id) order by id collate "C"
on conflict (event_id, consumer_group) do nothing returning event_id`

func (e Env) consumeLimit(ctx context.Context, workers int, w way) (rate, error) {
	pool, drop, err := e.shop(ctx)
	if err != nil {
		return rate{}, err
	}
	defer drop()
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for no := range workers {
		g.Go(func() error { return limitWorker(ctx, pool, no, workers, w) })
	}
	if err := g.Wait(); err != nil {
		return rate{}, err
	}
	return rate{consumeRecords, time.Since(began)}, nil
}

// limitWorker does the events of one partition, batch by batch: claim and
// effects in one round trip, which is one transaction.
func limitWorker(ctx context.Context, pool *pgxpool.Pool, no, workers int, w way) error {
	var mine []int
	for n := no; n < consumeRecords; n += workers {
		mine = append(mine, n)
	}
	for chunk := range slices.Chunk(mine, consumeBatch) {
		events, users := make([]string, len(chunk)), make([]string, len(chunk))
		for i, n := range chunk {
			events[i], users[i] = eventID(n), user(n)
		}
		batch := &pgx.Batch{}
		batch.Queue(sqlClaimSet, events)
		w.limit(batch, users)
		if err := pool.SendBatch(ctx, batch).Close(); err != nil {
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

// user is whose event it is, in no order (Knuth's multiplicative hash).
func user(n int) string { return strconv.Itoa(int(uint32(n)*2654435761>>9) % consumeUsers) }

func orders(n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		id := eventID(i)
		records[i] = &kgo.Record{
			Key: []byte(user(i)), Value: fmt.Appendf(nil, `{"eventId":%q,"orderId":"%d","userId":%q,"points":100,"amount":"249.00","currency":"CNY"}`, id, i, user(i)),
			Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(id)}},
		}
	}
	return records
}
