// Command shop is a small service that gives points for paid orders, each order
// once. It shows how to embed the consumer library.
//
//	docker compose up -d --wait postgres kafka && go run ./examples/shop serve
//
//	shop serve       consumes order.paid until it is interrupted
//	shop pay ORDER   publishes a payment, as the order service would; twice is harmless
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	brokers := kgo.SeedBrokers(strings.Split(env("KAFKA_BROKERS", "127.0.0.1:19092"), ",")...)
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve(ctx, env("SHOP_DATABASE_URL", "postgres://postgres:postgres@127.0.0.1:15432/console?sslmode=disable"), brokers)
	case len(args) == 2 && args[0] == "pay":
		return pay(ctx, brokers, args[1])
	}
	return errors.New("usage: shop serve | shop pay ORDER")
}

func serve(ctx context.Context, database string, brokers kgo.Opt) error {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer pool.Close()
	if err := errors.Join(migrate(ctx, pool), createTopic(ctx, brokers)); err != nil {
		return err
	}
	return runAll(ctx, pool, brokers, slog.Default())
}

// runAll runs the three groups of order.paid, each with its own strategy, until
// ctx ends.
func runAll(ctx context.Context, pool *pgxpool.Pool, brokers kgo.Opt, log *slog.Logger) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, cfg := range []consumer.Config[pgstore.Tx]{config(pool, log), notifyConfig(pool, log), taskConfig(pool, log)} {
		c, err := newConsumer(cfg, brokers)
		if err != nil {
			return err
		}
		g.Go(func() error { return c.Run(ctx) })
	}
	return g.Wait()
}

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
