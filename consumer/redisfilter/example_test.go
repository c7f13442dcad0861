package redisfilter_test

import (
	"context"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/consumer/redisfilter"
)

// A filter spares the database the duplicates that Redis knows of. Without Redis
// the consumer goes on, only slower.
func ExampleOpen() {
	config := func(pool *pgxpool.Pool) (consumer.Config[pgstore.Tx], *redisfilter.Filter) {
		filter, err := redisfilter.Open("redis://redis-1:6379/0", redisfilter.Options{TTL: 7 * 24 * time.Hour})
		if err != nil {
			log.Fatal(err)
		}
		return consumer.Config[pgstore.Tx]{
			Group:   "points-consumer-group",
			Store:   pgstore.New(pool, pgstore.Options{}),
			EventID: consumer.EventIDSource{JSON: "$.eventId"},
			Filter:  filter,
			Handler: func(context.Context, pgstore.Tx, consumer.Event) error { return nil },
		}, filter // to be closed after the consumers have stopped
	}
	_ = config
}
