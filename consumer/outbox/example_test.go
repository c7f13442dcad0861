package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/outbox"
)

// A payment and its event commit together, or neither does; a relay sends what
// was committed. Here it prints; a service has NewKafka or NewRabbit in its place.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := outbox.DefaultTable.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, `create table account (id text primary key, balance int not null check (balance >= 0));
		insert into account values ('acc-1', 250)`); err != nil {
		log.Fatal(err)
	}
	for _, payment := range []string{"10001", "10002", "10003"} {
		if err := pay(ctx, pool, "acc-1", payment, 100); err != nil {
			fmt.Println("payment", payment, "was refused, and so was its event")
		}
	}

	box, err := outbox.Postgres(pool, outbox.DefaultTable)
	if err != nil {
		log.Fatal(err)
	}
	relay, err := outbox.NewRelay(box, printer{}, outbox.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(running) }()
	for relay.Status().Sent < 2 && ctx.Err() == nil {
		<-time.After(5 * time.Millisecond)
	}
	end()
	if err := errors.Join(ctx.Err(), <-ended); err != nil {
		log.Fatal(err)
	}
}

// pay changes the account's row before Add, so that the events of an account go
// out in the order of its payments.
func pay(ctx context.Context, pool *pgxpool.Pool, account, payment string, amount int) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `update account set balance = balance - $2 where id = $1`, account, amount); err != nil {
			return err
		}
		return outbox.Add(ctx, tx, outbox.Message{
			EventID: "payment-success-" + payment, Target: "payment.succeeded", AggregateKey: account,
			Value: fmt.Appendf(nil, `{"payment":%q}`, payment),
		})
	})
}

// printer is a Publisher.
type printer struct{}

func (printer) Publish(_ context.Context, r outbox.Row, done func(error)) {
	fmt.Println(r.Target, r.EventID, string(r.Value))
	done(nil)
}

func (printer) Close() {}

// A relay runs beside the service, in as many replicas as it has.
func ExampleNewRelay() {
	run := func(ctx context.Context, pool *pgxpool.Pool) error {
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
	_ = run
}
