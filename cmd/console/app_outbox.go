package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/outbox"
	"oncemore/internal/config"
	"oncemore/internal/outboxes"
)

// openOutboxes takes the outboxes of the config: one box to look at, by the
// reader's credential, and one to relay and to retry, by the writer's.
func (a *app) openOutboxes(ctx context.Context) error {
	var all []outboxes.Outbox
	for _, o := range a.conf.Outbox {
		made, err := a.openOutbox(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Pos, err)
		}
		all = append(all, made)
	}
	a.outboxes = outboxes.New(a.pool, all, a.log)
	return nil
}

func (a *app) openOutbox(ctx context.Context, o config.Outbox) (outboxes.Outbox, error) {
	out := outboxes.Outbox{Connection: o.Connection, Cluster: o.Cluster}
	if kind := a.conf.Connection(o.Connection).Kind; kind != "postgres" {
		return out, fmt.Errorf("the console relays outboxes in PostgreSQL only, and connection %s is %s: run outbox.Relay in a service", o.Connection, kind)
	}
	reader, err := a.business.reader(ctx, o.Connection)
	if err != nil {
		return out, err
	}
	writer, err := a.outboxWriter(ctx, o)
	if err != nil {
		return out, err
	}
	if out.Read, err = outbox.Postgres(reader, outbox.Table(o.Table)); err != nil {
		return out, err
	}
	out.Write, err = outbox.Postgres(writer, outbox.Table(o.Table))
	return out, err
}

func (a *app) outboxWriter(ctx context.Context, o config.Outbox) (*pgxpool.Pool, error) {
	if !o.Writer.Set() {
		return a.business.writer(ctx, o.Connection)
	}
	return a.business.open(ctx, o.Connection+" outbox "+o.Table, o.Writer, func(p *pgxpool.Config) { p.MaxConns = 4 })
}

// startRelays runs one relay per outbox. Those of all replicas share its keys.
func (a *app) startRelays(start starter) error {
	for i, o := range a.conf.Outbox {
		to, err := a.outboxPublisher(o)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Pos, err)
		}
		relay, err := outbox.NewRelay(a.outboxes.All()[i].Write, to, outbox.Options{Attempts: o.Attempts, Keep: o.Keep, Logger: a.log, Now: a.clock})
		if err != nil {
			to.Close()
			return fmt.Errorf("%s: %w", o.Pos, err)
		}
		start("outbox relay of "+o.Connection, func(ctx context.Context) error {
			defer to.Close()
			return relay.Run(ctx)
		})
	}
	return nil
}

func (a *app) outboxPublisher(o config.Outbox) (outbox.Publisher, error) {
	cluster := a.conf.Cluster(o.Cluster)
	if cluster.Rabbit != nil {
		url, err := cluster.Rabbit.URL.Value()
		if err != nil {
			return nil, err
		}
		return outbox.NewRabbit(outbox.RabbitOptions{URLs: []string{url}})
	}
	client, err := kafkaOptions(cluster.Kafka)
	if err != nil {
		return nil, err
	}
	return outbox.NewKafka(outbox.KafkaOptions{Client: client})
}
