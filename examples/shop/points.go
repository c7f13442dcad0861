package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/kafka"
	"oncemore/consumer/pgstore"
)

const (
	topic = "order.paid"
	group = "points-consumer-group"
)

const sqlSchema = `
create table if not exists user_points (order_id text primary key, points bigint not null)`

// migrate creates the shop's table and, in the same database, the table of
// consume records: both change in one transaction.
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if err := pgstore.Migrate(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, sqlSchema+";"+sqlStrategies); err != nil {
		return fmt.Errorf("create the shop's tables: %w", err)
	}
	return nil
}

// newConsumer puts store, handler and broker together.
func newConsumer(cfg consumer.Config[pgstore.Tx], brokers kgo.Opt) (consumer.Runner, error) {
	return kafka.New(cfg, kafka.Options{
		Topics:       []string{topic},
		Client:       []kgo.Opt{brokers},
		CreateTopics: true, // order.paid.DLT and <group>.replay
	})
}

func config(pool *pgxpool.Pool, log *slog.Logger) consumer.Config[pgstore.Tx] {
	return consumer.Config[pgstore.Tx]{
		Group:   group,
		Store:   pgstore.New(pool, pgstore.Options{Logger: log}),
		Handler: addPoints,
		EventID: consumer.EventIDSource{Header: "event-id", JSON: "$.eventId"},
		Retry:   consumer.RetryPolicy{Attempts: 3, Initial: time.Second},
		Logger:  log,
	}
}

// payment is the event. The producer made the event id; a second delivery, or a
// replay after a week, carries the same one.
type payment struct {
	EventID  string `json:"eventId"`
	OrderID  string `json:"orderId"`
	MemberID int64  `json:"memberId"`
	Points   int64  `json:"points"`
}

const sqlAddPoints = `
insert into user_points (order_id, points) values ($1, $2)
on conflict (order_id) do update set points = user_points.points + excluded.points`

// addPoints is the handler: it is called once per event, and what it writes
// through tx commits together with the consume record or not at all.
func addPoints(_ context.Context, tx pgstore.Tx, ev consumer.Event) error {
	p, err := paymentOf(ev)
	if err != nil {
		return err
	}
	tx.Queue(sqlAddPoints, p.OrderID, p.Points) // sent with the other events of the batch
	return nil
}
