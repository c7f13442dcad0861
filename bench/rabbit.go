package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/consumer/rabbit"
)

const (
	rabbitMessages = 50_000
	rabbitPrefetch = 2 * consumeBatch
	rabbitGoal     = 0.6
)

// Rabbit measures a group on one quorum queue: records, effects and
// acknowledgements. The limit is a client's own loop with the same prefetch and the
// same statements, which claims and writes a batch in one round trip and
// acknowledges it with one frame.
func Rabbit(ctx context.Context, e Env) error {
	if e.Rabbit == "" {
		return errors.New("rabbit: no address of a RabbitMQ was given")
	}
	for _, w := range ways {
		err := e.ratio("rabbit_"+w.name, rabbitGoal,
			func() (rate, error) { return e.rabbitRound(ctx, w, e.rabbitMember) },
			func() (rate, error) { return e.rabbitRound(ctx, w, e.rabbitLoop) })
		if err != nil {
			return err
		}
	}
	return nil
}

// rabbitRound fills a queue of its own and has somebody empty it.
func (e Env) rabbitRound(ctx context.Context, w way, empty func(context.Context, *pgxpool.Pool, string, way) (rate, error)) (rate, error) {
	pool, drop, err := e.shop(ctx)
	if err != nil {
		return rate{}, err
	}
	defer drop()
	queue := unique("bench.rabbit")
	remove, err := e.fillQueue(ctx, queue)
	if err != nil {
		return rate{}, err
	}
	defer remove()
	return empty(ctx, pool, queue, w)
}

// fillQueue publishes all messages, confirmed.
func (e Env) fillQueue(ctx context.Context, queue string) (remove func(), _ error) {
	conn, err := amqp.Dial(e.Rabbit)
	if err != nil {
		return nil, errors.New("rabbit: the broker does not answer") // the error may quote the password
	}
	remove = func() {
		if ch, err := conn.Channel(); err == nil {
			for _, name := range []string{queue, queue + ".dlq"} {
				_, _ = ch.QueueDelete(name, false, false, false)
			}
		}
		conn.Close()
	}
	if err := publishAll(ctx, conn, queue); err != nil {
		remove()
		return nil, fmt.Errorf("fill queue %s: %w", queue, err)
	}
	return remove, nil
}

func publishAll(ctx context.Context, conn *amqp.Connection, queue string) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		return err
	}
	if err := ch.Confirm(false); err != nil {
		return err
	}
	var last *amqp.DeferredConfirmation
	for _, r := range orders(rabbitMessages) {
		last, err = ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, amqp.Publishing{
			Body: r.Value, DeliveryMode: amqp.Persistent, MessageId: string(r.Headers[0].Value), Headers: amqp.Table{"user": string(r.Key)},
		})
		if err != nil {
			return err
		}
	}
	if ok, err := last.WaitContext(ctx); err != nil || !ok {
		return fmt.Errorf("last message confirmed: %t: %w", ok, err)
	}
	return nil
}

// rabbitMember is a consumer of the library.
func (e Env) rabbitMember(ctx context.Context, pool *pgxpool.Pool, queue string, w way) (rate, error) {
	cfg := consumer.Config[pgstore.Tx]{
		Group: unique("bench"), Store: pgstore.New(pool, pgstore.Options{}), BatchSize: consumeBatch,
		EventID: consumer.EventIDSource{MessageID: true}, Logger: slog.New(slog.DiscardHandler),
	}
	w.set(&cfg)
	cfg = byHeader(cfg)
	member, err := rabbit.New(cfg, rabbit.Options{Queue: queue, URLs: []string{e.Rabbit}, Prefetch: rabbitPrefetch, DeclareQueues: true})
	if err != nil {
		return rate{}, err
	}
	return timeMember(ctx, member, rabbitMessages)
}

// byHeader gives the handlers of ways the key that RabbitMQ does not have.
func byHeader(cfg consumer.Config[pgstore.Tx]) consumer.Config[pgstore.Tx] {
	keyed := func(ev consumer.Event) consumer.Event {
		ev.Key, _ = ev.Header("user")
		return ev
	}
	if one := cfg.Handler; one != nil {
		cfg.Handler = func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error { return one(ctx, tx, keyed(ev)) }
	}
	if keys := cfg.Keys; keys != nil {
		cfg.Keys = func(ev consumer.Event) ([]string, error) { return keys(keyed(ev)) }
	}
	if all := cfg.BatchHandler; all != nil {
		cfg.BatchHandler = func(ctx context.Context, tx pgstore.Tx, events []consumer.Event) error {
			for i := range events {
				events[i] = keyed(events[i])
			}
			return all(ctx, tx, events)
		}
	}
	return cfg
}

// rabbitLoop is the client's own loop.
func (e Env) rabbitLoop(ctx context.Context, pool *pgxpool.Pool, queue string, w way) (rate, error) {
	conn, err := amqp.Dial(e.Rabbit)
	if err != nil {
		return rate{}, errors.New("rabbit: the broker does not answer")
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return rate{}, err
	}
	if err := ch.Qos(rabbitPrefetch, 0, false); err != nil {
		return rate{}, err
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		return rate{}, err
	}
	first := 0
	var began time.Time
	for done := 0; done < rabbitMessages; {
		n, err := loopBatch(ctx, pool, deliveries, min(consumeBatch, rabbitMessages-done), w)
		if err != nil {
			return rate{}, err
		}
		if done += n; first == 0 {
			first, began = done, time.Now()
		}
	}
	return rate{rabbitMessages - first, time.Since(began)}, nil
}

// loopBatch claims, writes and acknowledges the next n messages.
func loopBatch(ctx context.Context, pool *pgxpool.Pool, deliveries <-chan amqp.Delivery, n int, w way) (int, error) {
	events, users := make([]string, n), make([]string, n)
	var last amqp.Delivery
	for i := range n {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return 0, errors.New("the broker ended the channel")
			}
			events[i], last = d.MessageId, d
			users[i], _ = d.Headers["user"].(string)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(sqlClaimSet, events)
	w.limit(batch, users)
	if err := pool.SendBatch(ctx, batch).Close(); err != nil {
		return 0, err
	}
	return n, last.Ack(true)
}
