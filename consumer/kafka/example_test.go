package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
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
