package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/outbox"
)

const (
	outboxRows       = 100_000
	outboxKeys       = 2_000
	outboxPartitions = 4
	outboxGoal       = 10_000 // per second
	outboxRatioGoal  = 0.1
)

// Outbox measures how fast one relay empties an outbox into Kafka: each row
// read, published, confirmed and marked, the rows of a key one after the other.
// It stands beside a producer that sends the same records as fast as it can, and
// has nothing to read, to mark or to wait for but the last confirmation.
func Outbox(ctx context.Context, w io.Writer, pgURL, kafkaAddr string) error {
	e := Env{Postgres: pgURL, Kafka: kafkaAddr, Out: w}
	return e.Outbox(ctx)
}

// Outbox is the function Outbox with the settings of e.
func (e Env) Outbox(ctx context.Context) error {
	rounds := e.Rounds
	if rounds == 0 {
		rounds = 3
	}
	var relayed, raw, ratios []float64
	for range rounds {
		ours, err := e.relay(ctx)
		if err != nil {
			return fmt.Errorf("outbox: %w", err)
		}
		limit, err := e.rawProducer(ctx)
		if err != nil {
			return fmt.Errorf("outbox, the raw producer: %w", err)
		}
		relayed, raw = append(relayed, ours.perSecond()), append(raw, limit.perSecond())
		ratios = append(ratios, ours.perSecond()/limit.perSecond())
	}
	_, err := fmt.Fprintf(e.Out, "outbox: %.0f/s relayed, raw producer %.0f/s (medians of %d)\nRATIO outbox_per_second %.0f goal >= %d\nRATIO outbox_vs_raw_producer %.2f goal >= %g\n",
		median(relayed), median(raw), rounds, median(relayed), outboxGoal, median(ratios), outboxRatioGoal)
	return err
}

func (e Env) relay(ctx context.Context) (rate, error) {
	pool, drop, err := e.database(ctx)
	if err != nil {
		return rate{}, err
	}
	defer drop()
	topic := unique("bench-outbox")
	remove, err := e.topic(ctx, topic, outboxPartitions, nil)
	if err != nil {
		return rate{}, err
	}
	defer remove()
	if err := fillOutbox(ctx, pool, topic); err != nil {
		return rate{}, err
	}
	to, err := outbox.NewKafka(outbox.KafkaOptions{Client: []kgo.Opt{kgo.SeedBrokers(e.Kafka)}})
	if err != nil {
		return rate{}, err
	}
	defer to.Close()
	box, err := outbox.Postgres(pool, outbox.DefaultTable)
	if err != nil {
		return rate{}, err
	}
	relay, err := outbox.NewRelay(box, to, outbox.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return rate{}, err
	}
	return timeRelay(ctx, relay)
}

// fillOutbox adds the rows as services do, some per transaction.
func fillOutbox(ctx context.Context, pool *pgxpool.Pool, topic string) error {
	if err := outbox.DefaultTable.Migrate(ctx, pool); err != nil {
		return err
	}
	all := orders(outboxRows)
	for from := 0; from < outboxRows; from += 500 {
		batch := make([]outbox.Message, 0, 500)
		for i, r := range all[from : from+500] {
			batch = append(batch, outbox.Message{
				EventID: eventID(from + i), Target: topic, Value: r.Value, AggregateKey: strconv.Itoa((from + i) % outboxKeys),
			})
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		if err := outbox.Add(ctx, tx, batch...); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// timeRelay measures from the first marked rows to the last.
func timeRelay(ctx context.Context, relay *outbox.Relay) (rate, error) {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(running) }()
	defer func() { stop(); <-ended }()
	first := int64(0)
	if err := until(ctx, func() (bool, error) { first = relay.Status().Sent; return first > 0, nil }); err != nil {
		return rate{}, err
	}
	began := time.Now()
	if err := until(ctx, func() (bool, error) { return relay.Status().Sent >= outboxRows, nil }); err != nil {
		return rate{}, err
	}
	return rate{int(outboxRows - first), time.Since(began)}, nil
}

func (e Env) rawProducer(ctx context.Context) (rate, error) {
	records := orders(outboxRows)
	for i, r := range records {
		r.Key = []byte(strconv.Itoa(i % outboxKeys))
	}
	return e.produce(ctx, records)
}
