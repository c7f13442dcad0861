package mysqlstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/redisfilter"
	"oncemore/internal/testkit"
)

// BenchmarkWorker measures one partition: fresh events with one statement each,
// and duplicates with and without the filter in Redis.
func BenchmarkWorker(b *testing.B) {
	cfg := testkit.MySQL(b)
	store, err := mysqlstore.Open(cfg, mysqlstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	admin := mustOpen(b, cfg.FormatDSN())
	if err := mysqlstore.Migrate(b.Context(), admin); err != nil {
		b.Fatal(err)
	}
	if _, err := admin.Exec(sqlCounters); err != nil {
		b.Fatal(err)
	}
	filter, err := redisfilter.Open(testkit.Redis(b), redisfilter.Options{Prefix: testkit.Name("bench"), TTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer filter.Close()
	testkit.Eventually(b, 5*time.Second, filter.Up, "the filter connects")
	group := 0
	for _, c := range []struct {
		name   string
		filter consumer.Filter
		twice  bool
	}{{"fresh", nil, false}, {"fresh, filtered", filter, false}, {"duplicates", nil, true}, {"duplicates, filtered", filter, true}} {
		b.Run(c.name, func(b *testing.B) {
			group++
			worker := benchWorker(b, store, c.filter, fmt.Sprint(group))
			deliveries := benchDeliveries(b.N, group)
			for pass := range 2 {
				if pass == 1 && !c.twice {
					break
				}
				b.ResetTimer()
				if err := worker.Process(b.Context(), nil, deliveries); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func benchWorker(b *testing.B, store *mysqlstore.Store, filter consumer.Filter, group string) *consumer.Worker[mysqlstore.Tx] {
	b.Helper()
	cfg, err := consumer.Config[mysqlstore.Tx]{
		Group: group, Store: store, Filter: filter, EventID: consumer.EventIDSource{JSON: "id"}, Logger: slog.New(slog.DiscardHandler),
		Handler: func(ctx context.Context, tx mysqlstore.Tx, ev consumer.Event) error {
			_, err := tx.ExecContext(ctx, sqlAdd, ev.ID, 1)
			return err
		},
	}.Complete()
	if err != nil {
		b.Fatal(err)
	}
	return consumer.NewWorker(cfg, &partition{}, &consumer.Meter{}, &consumer.Gate{})
}

func benchDeliveries(n, round int) []consumer.Delivery {
	all := make([]consumer.Delivery, n)
	for i := range all {
		ev := consumer.Event{Value: fmt.Appendf(nil, `{"id":"payment-success-%d-%d"}`, round, i)}
		all[i] = consumer.NewDelivery(ev, consumer.EventIDSource{JSON: "id"})
	}
	return all
}
