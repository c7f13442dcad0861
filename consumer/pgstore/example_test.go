package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/pgstore"
)

// Points for paid orders: record and points commit together. The broker here is in
// memory; a service has consumer/kafka or consumer/rabbit in its place.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool); err != nil { // the table mq_consume_record, beside the business tables
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `create table user_points (order_id text primary key, points int not null)`); err != nil {
		log.Fatal(err)
	}

	broker := consumertest.NewBroker(1)
	for range 2 {
		broker.Publish(consumertest.JSON("order.paid", `{"eventId":"payment-success-10001","orderId":"10001"}`))
	}
	points, err := consumertest.NewConsumer(broker, consumer.Config[pgstore.Tx]{
		Group:   "points-consumer-group",
		Store:   pgstore.New(pool, pgstore.Options{}),
		EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: func(_ context.Context, tx pgstore.Tx, ev consumer.Event) error {
			tx.Queue(`insert into user_points values ($1::jsonb->>'orderId', 100)
				on conflict (order_id) do update set points = user_points.points + 100`, string(ev.Value))
			return nil
		},
	}, "order.paid")
	if err != nil {
		log.Fatal(err)
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- points.Run(running) }()
	err = broker.Wait(ctx)
	end()
	if err := errors.Join(err, <-ended); err != nil {
		log.Fatal(err)
	}

	var total int
	if err := pool.QueryRow(ctx, `select sum(points) from user_points`).Scan(&total); err != nil {
		log.Fatal(err)
	}
	fmt.Println(total, "points for two deliveries,", points.Status().Duplicates, "duplicate")
}
