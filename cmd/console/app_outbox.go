package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/mysqlstore"
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
	var err error
	if a.business.isMySQL(o.Connection) {
		out.Read, out.Write, err = a.mysqlBoxes(o)
	} else {
		out.Read, out.Write, err = a.postgresBoxes(ctx, o)
	}
	return out, err
}

func (a *app) postgresBoxes(ctx context.Context, o config.Outbox) (read, write *outbox.Box, _ error) {
	reader, err := a.business.reader(ctx, o.Connection)
	if err != nil {
		return nil, nil, err
	}
	writer, err := a.outboxWriter(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if read, err = outbox.Postgres(reader, outbox.Table(o.Table)); err != nil {
		return nil, nil, err
	}
	write, err = outbox.Postgres(writer, outbox.Table(o.Table))
	return read, write, err
}

func (a *app) mysqlBoxes(o config.Outbox) (read, write *outbox.Box, _ error) {
	reader, err := a.business.mysqlReader(o.Connection)
	if err != nil {
		return nil, nil, err
	}
	writer, err := a.mysqlOutboxWriter(o)
	if err != nil {
		return nil, nil, err
	}
	if read, err = outbox.MySQLBox(reader, outbox.Table(o.Table)); err != nil {
		return nil, nil, err
	}
	write, err = outbox.MySQLBox(writer, outbox.Table(o.Table))
	return read, write, err
}

func (a *app) outboxWriter(ctx context.Context, o config.Outbox) (*pgxpool.Pool, error) {
	if !o.Writer.Set() {
		return a.business.writer(ctx, o.Connection)
	}
	return a.business.open(ctx, o.Connection+" outbox "+o.Table, o.Writer, func(p *pgxpool.Config) { p.MaxConns = 4 })
}

func (a *app) mysqlOutboxWriter(o config.Outbox) (*sql.DB, error) {
	if !o.Writer.Set() {
		return a.business.mysqlWriter(o.Connection)
	}
	return a.business.openMySQL(o.Connection+" outbox "+o.Table, o.Writer, mysqlstore.PoolOptions{MaxConns: 4})
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
