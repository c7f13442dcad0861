package mysqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/consumertest"
	"oncemore/consumer/mysqlstore"
)

// Points for paid orders: record and points commit together. The broker here is in
// memory; a service has consumer/kafka or consumer/rabbit in its place.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	address, err := mysqlstore.ParseURL(os.Getenv("DATABASE_URL")) // mysql://user:password@host:port/database
	if err != nil {
		log.Fatal(err)
	}
	db, err := mysqlstore.OpenPool(address, mysqlstore.PoolOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := mysqlstore.Migrate(ctx, db); err != nil { // the table mq_consume_record, beside the business tables
		log.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `create table user_points (order_id varchar(64) primary key, points int not null)`); err != nil {
		log.Fatal(err)
	}
	store, err := mysqlstore.Open(address, mysqlstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	broker := consumertest.NewBroker(1)
	for range 2 {
		broker.Publish(consumertest.JSON("order.paid", `{"eventId":"payment-success-10001","orderId":"10001"}`))
	}
	points, err := consumertest.NewConsumer(broker, consumer.Config[mysqlstore.Tx]{
		Group:   "points-consumer-group",
		Store:   store,
		EventID: consumer.EventIDSource{JSON: "$.eventId"},
		Handler: func(ctx context.Context, tx mysqlstore.Tx, ev consumer.Event) error {
			_, err := tx.ExecContext(ctx, `insert into user_points values (json_unquote(json_extract(?, '$.orderId')), 100)
				on duplicate key update points = points + 100`, string(ev.Value))
			return err // never insert ignore: it cuts values off silently
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
	if err := db.QueryRowContext(ctx, `select sum(points) from user_points`).Scan(&total); err != nil {
		log.Fatal(err)
	}
	fmt.Println(total, "points for two deliveries,", points.Status().Duplicates, "duplicate")
}
