package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/kafka"
	"oncemore/consumer/pgstore"
)

// A service that gives points for paid orders, once for each event, however
// often it is delivered.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	points, err := kafka.New(consumer.Config[pgstore.Tx]{
		Group:   "points-consumer-group",
		Store:   pgstore.New(pool, pgstore.Options{}),
		EventID: consumer.EventIDSource{Header: "event-id", JSON: "$.eventId"},
		Handler: func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
			var order struct {
				OrderID string `json:"orderId"`
				Points  int    `json:"points"`
			}
			if err := json.Unmarshal(ev.Value, &order); err != nil {
				return consumer.Permanent(err) // no retry mends it: straight to the dead letter
			}
			if order.Points < 0 {
				return consumer.Permanent(errors.New("negative points"))
			}
			tx.Queue(`INSERT INTO user_points (order_id, points) VALUES ($1, $2)
				ON CONFLICT (order_id) DO UPDATE SET points = user_points.points + excluded.points`,
				order.OrderID, order.Points)
			return nil // record and points commit together, then the offset moves
		},
	}, kafka.Options{
		Topics: []string{"order.paid"},
		Client: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:9092")},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := points.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// A group on a broker in process: three deliveries, one effect. Records are in
// memory here; a service keeps them where its effect is.
func ExampleNew() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "order.paid"))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	brokers := kgo.SeedBrokers(cluster.ListenAddrs()...)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	publish(ctx, brokers, `{"eventId":"payment-success-10001"}`, `{"eventId":"payment-success-10001"}`, `{"eventId":"payment-success-10002"}`)

	points, err := kafka.New(consumer.Config[int]{
		Group:   "points-consumer-group",
		Store:   consumertest.NewMemory(0),
		EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Logger:  slog.New(slog.DiscardHandler),
		Handler: func(_ context.Context, _ int, ev consumer.Event) error {
			fmt.Println("100 points for", ev.ID)
			if ev.ID == "payment-success-10002" {
				stop() // enough for an example: this transaction still commits
			}
			return nil
		},
	}, kafka.Options{Topics: []string{"order.paid"}, Client: []kgo.Opt{brokers}, CreateTopics: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := points.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(points.Status().Duplicates, "duplicate")
	// Output:
	// 100 points for payment-success-10001
	// 100 points for payment-success-10002
	// 1 duplicate
}

func publish(ctx context.Context, brokers kgo.Opt, values ...string) {
	client, err := kgo.NewClient(brokers, kgo.DefaultProduceTopic("order.paid"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, value := range values {
		if err := client.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			log.Fatal(err)
		}
	}
}
