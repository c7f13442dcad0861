package outbox_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/outbox"
)

// A payment and its event commit together. The account's row is locked before
// Add, so that the events of an account go out in the order of its payments.
func ExampleAdd() {
	pay := func(ctx context.Context, pool *pgxpool.Pool, account, payment string, cents int64) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE account SET balance = balance - $2 WHERE id = $1`, account, cents); err != nil {
				return err
			}
			return outbox.Add(ctx, tx, outbox.Message{
				EventID: "payment-success-" + payment, Target: "payment.succeeded", AggregateKey: account,
				Value: []byte(`{"payment":"` + payment + `"}`),
			})
		})
	}
	_ = pay
}

// A relay runs beside the service, in as many replicas as it has.
func ExampleRelay() {
	relay := func(ctx context.Context, pool *pgxpool.Pool) error {
		box, err := outbox.Postgres(pool, outbox.DefaultTable)
		if err != nil {
			return err
		}
		to, err := outbox.NewKafka(outbox.KafkaOptions{Client: []kgo.Opt{kgo.SeedBrokers("kafka-1:9092")}})
		if err != nil {
			return err
		}
		defer to.Close()
		r, err := outbox.NewRelay(box, to, outbox.Options{})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	_ = relay
}
