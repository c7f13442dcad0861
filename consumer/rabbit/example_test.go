package rabbit_test

import (
	"context"
	"log"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/consumer/rabbit"
)

// A service that gives points for paid orders, once for each event, however often
// it is delivered. RabbitMQ knows no consumer groups: the group names the duty in
// the records, the queue is where its messages come from.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	points, err := rabbit.New(consumer.Config[pgstore.Tx]{
		Group:   "points-consumer-group",
		Store:   pgstore.New(pool, pgstore.Options{}),
		EventID: consumer.EventIDSource{MessageID: true, JSON: "$.eventId"},
		Handler: func(_ context.Context, tx pgstore.Tx, ev consumer.Event) error {
			tx.Queue(`INSERT INTO user_points (order_id, points) VALUES ($1::jsonb->>'orderId', 100)
				ON CONFLICT (order_id) DO UPDATE SET points = user_points.points + excluded.points`, string(ev.Value))
			return nil // record and points commit together, then the message is acknowledged
		},
	}, rabbit.Options{
		Queue:         "order.paid.points",
		URLs:          []string{os.Getenv("RABBITMQ_URL")},
		DeclareQueues: true, // order.paid.points.dlq, as a quorum queue
		RetryQueues:   true, // those behind a failing message do not wait, and order is given up
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := points.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
