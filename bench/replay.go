package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/kafka"
	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/internal/access"
)

const (
	replayLetters    = 50_000
	replayPartitions = 4
	replayGoal       = 5_000 // per second
)

// Work does the steps of replays until ctx ends, as a console with role jobs.
type Work func(ctx context.Context, pool *pgxpool.Pool, replays *dlq.Replays) error

// Replay measures letters of a group from the start of their replay until each
// has its outcome: judged anew by the group's records, claimed, compared with its
// origin record, published, confirmed, recorded, consumed by the group and told.
// Broker, both databases and the group share the machine. It stands beside a
// producer that sends the same records as fast as it can.
func (e Env) Replay(ctx context.Context, work Work) error {
	rounds := e.Rounds
	if rounds == 0 {
		rounds = 3
	}
	var sent, told, raw, ratios []float64
	for range rounds {
		r, err := e.replayRound(ctx, work)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		limit, err := e.produce(ctx, failedOrders(replayLetters))
		if err != nil {
			return fmt.Errorf("replay, the raw producer: %w", err)
		}
		sent, told, raw = append(sent, r.sent.perSecond()), append(told, r.told.perSecond()), append(raw, limit.perSecond())
		ratios = append(ratios, r.sent.perSecond()/limit.perSecond())
	}
	_, err := fmt.Fprintf(e.Out, "replay: %.0f/s sent, %.0f/s until every outcome is recorded, raw producer %.0f/s (medians of %d)\n"+
		"RATIO replay_letters_per_second %.0f goal >= %d\nRATIO replay_vs_raw_producer %.3f no goal\n",
		median(sent), median(told), median(raw), rounds, median(told), replayGoal, median(ratios))
	return err
}

// replayed is how fast a replay was: until the last letter was sent, and until
// the last outcome was known.
type replayed struct{ sent, told rate }

func (e Env) replayRound(ctx context.Context, work Work) (r replayed, err error) {
	shop, dropShop, err := e.shop(ctx)
	if err != nil {
		return r, err
	}
	defer dropShop()
	pool, drop, err := e.migrated(ctx)
	if err != nil {
		return r, err
	}
	defer drop()
	set, remove, err := e.failedSet(ctx)
	if err != nil {
		return r, err
	}
	defer remove()
	if err := e.drainAll(ctx, pool, set.topic+".DLT"); err != nil {
		return r, err
	}
	member, err := e.replayMember(ctx, shop, set)
	if err != nil {
		return r, err
	}
	replays, cluster, err := e.replays(pool, shop, set)
	if err != nil {
		return r, err
	}
	defer cluster.Close()
	stop := background(ctx, member.Run, func(ctx context.Context) error { return work(ctx, pool, replays) })
	defer stop()
	return timeReplay(ctx, replays)
}

// failedSet is a group whose orders all became dead letters.
type failedSet struct{ topic, group string }

func (e Env) failedSet(ctx context.Context) (failedSet, func(), error) {
	set := failedSet{topic: unique("bench-replay"), group: unique("points")}
	removeOrigin, err := e.topic(ctx, set.topic, replayPartitions, failedOrders(replayLetters))
	if err != nil {
		return set, nil, err
	}
	removeDead, err := e.topic(ctx, set.topic+".DLT", replayPartitions, deadOrders(set))
	if err != nil {
		removeOrigin()
		return set, nil, err
	}
	removeTarget, err := e.topic(ctx, kafka.ReplayTopic(set.group), replayPartitions, nil)
	if err != nil {
		removeDead()
		removeOrigin()
		return set, nil, err
	}
	return set, func() { removeTarget(); removeDead(); removeOrigin() }, nil
}

// failedOrders have a payload of 1 KB.
func failedOrders(n int) []*kgo.Record {
	filler := strings.Repeat("paid by card, ", 64)
	records := make([]*kgo.Record, n)
	for i := range records {
		id := eventID(i)
		records[i] = &kgo.Record{Key: []byte(user(i)), Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte(id)}},
			Value: fmt.Appendf(nil, `{"eventId":%q,"orderId":"%d","userId":%q,"points":100,"note":%q}`, id, i, user(i), filler)}
	}
	return records
}

// deadOrders are the failed orders as Spring Kafka publishes them.
func deadOrders(set failedSet) []*kgo.Record {
	records := failedOrders(replayLetters)
	for i, r := range records {
		r.Headers = append(r.Headers,
			kgo.RecordHeader{Key: "kafka_dlt-exception-fqcn", Value: []byte("com.shop.points.RuleException")},
			kgo.RecordHeader{Key: "kafka_dlt-exception-message", Value: []byte("rule not found")},
			kgo.RecordHeader{Key: "kafka_dlt-exception-stacktrace", Value: []byte(deadStack)},
			kgo.RecordHeader{Key: "kafka_dlt-original-topic", Value: []byte(set.topic)},
			kgo.RecordHeader{Key: "kafka_dlt-original-partition", Value: binary.BigEndian.AppendUint32(nil, uint32(i%replayPartitions))},
			kgo.RecordHeader{Key: "kafka_dlt-original-offset", Value: binary.BigEndian.AppendUint64(nil, uint64(i/replayPartitions))},
			kgo.RecordHeader{Key: "kafka_dlt-original-timestamp", Value: binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli()))},
			kgo.RecordHeader{Key: "kafka_dlt-original-timestamp-type", Value: []byte("CreateTime")},
			kgo.RecordHeader{Key: "kafka_dlt-original-consumer-group", Value: []byte(set.group)})
	}
	return records
}

func (e Env) drainAll(ctx context.Context, pool *pgxpool.Pool, topic string) error {
	drainer, cluster, err := e.drainer(pool, topic)
	if err != nil {
		return err
	}
	defer cluster.Close()
	stop := background(ctx, drainer.Run)
	defer stop()
	if err := until(ctx, func() (bool, error) { return stored(drainer) >= replayLetters, nil }); err != nil {
		return err
	}
	if _, err := dlq.Fold(ctx, pool); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "analyze")
	return err
}

// replayMember is the group, mended. It has passed the orders that it gave up.
func (e Env) replayMember(ctx context.Context, shop *pgxpool.Pool, set failedSet) (consumer.Runner, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(e.Kafka))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(ctx, set.topic)
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", set.topic, err)
	}
	if err := admin.CommitAllOffsets(ctx, set.group, ends.Offsets()); err != nil {
		return nil, fmt.Errorf("commit the ends of %s: %w", set.topic, err)
	}
	return e.member(shop, set.topic, func(c *consumer.Config[pgstore.Tx]) { c.Group, c.BatchHandler = set.group, addPointsOfAll })
}

func (e Env) replays(pool, shop *pgxpool.Pool, set failedSet) (*dlq.Replays, *dlq.Cluster, error) {
	cluster, err := dlq.NewCluster("bench", kgo.SeedBrokers(e.Kafka))
	if err != nil {
		return nil, nil, err
	}
	clusters := map[string]*dlq.Cluster{"bench": cluster}
	book := dlq.GroupBook{{Name: set.group, Cluster: "bench", Topics: []string{set.topic}, Ours: true, Effect: dlq.EffectLocal, Evidence: &dlq.Evidence{
		Connection: "shop", Pool: shop, Table: pgstore.Table, EventID: "event_id", ConsumerGroup: "consumer_group", ConsumedAt: "consumed_at",
		CompleteSince: time.Now().Add(-24 * time.Hour),
	}}}
	judge := dlq.NewJudge(pool, clusters, book, time.Now)
	dialects, err := dialect.Load()
	if err != nil {
		return nil, nil, err
	}
	replays, err := dlq.NewReplays(pool, clusters, judge, dlq.NewOrigins(pool, judge.Topology()), dlq.ReplayOptions{
		ApprovalSize: replayLetters, Dialects: dialects, Log: slog.New(slog.DiscardHandler)})
	return replays, cluster, err
}

// timeReplay plans a replay of everything, and measures it from its start.
func timeReplay(ctx context.Context, replays *dlq.Replays) (r replayed, err error) {
	actor := access.Actor{User: "bench", Role: access.Operator, Via: "bench", Reason: "measured"}
	plan, err := replays.Plan(ctx, actor, dlq.PlanRequest{Selection: dlq.Selection{Filter: &dlq.LetterFilter{State: dlq.Open}}, Target: dlq.ToGroup})
	if err != nil {
		return r, err
	}
	var now dlq.Replay
	reach := func(ok func() bool) error {
		return untilEvery(ctx, 300*time.Millisecond, func() (bool, error) {
			now, err = replays.Get(ctx, plan.ID)
			return err == nil && ok(), err
		})
	}
	if err := reach(func() bool { return now.State == dlq.Planned }); err != nil {
		return r, err
	}
	if err := replays.Start(ctx, actor, plan.ID); err != nil {
		return r, err
	}
	began := time.Now()
	if err := reach(func() bool { return now.Waiting == 0 && now.Sent == replayLetters }); err != nil {
		return r, err
	}
	r.sent = rate{replayLetters, time.Since(began)}
	if err := reach(func() bool { return now.State == dlq.Done }); err != nil {
		return r, err
	}
	r.told = rate{replayLetters, time.Since(began)}
	if now.Outcomes[dlq.Applied] != replayLetters {
		return r, fmt.Errorf("outcomes %v, want %d applied", now.Outcomes, replayLetters)
	}
	return r, nil
}

// background runs each until the returned function ends them, and waits.
func background(ctx context.Context, runs ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, len(runs))
	for _, run := range runs {
		go func() { ended <- run(ctx) }()
	}
	return func() {
		cancel()
		for range runs {
			<-ended
		}
	}
}

// produce sends the records as fast as a producer can that waits for the last
// confirmation only.
func (e Env) produce(ctx context.Context, records []*kgo.Record) (rate, error) {
	topic := unique("bench-raw")
	remove, err := e.topic(ctx, topic, replayPartitions, nil)
	if err != nil {
		return rate{}, err
	}
	defer remove()
	client, err := kgo.NewClient(kgo.SeedBrokers(e.Kafka), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		return rate{}, err
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Value: []byte("warm")}).FirstErr(); err != nil {
		return rate{}, err
	}
	var failed atomic.Pointer[error]
	began := time.Now()
	for _, r := range records {
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return rate{}, err
	}
	if err := failed.Load(); err != nil {
		return rate{}, *err
	}
	return rate{len(records), time.Since(began)}, nil
}
