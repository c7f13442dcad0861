package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// The business tables of two groups that need no consume record: what they
// write tells by itself whether the event has taken effect.
const sqlStrategies = `
create table if not exists notification_log (
	id         bigint generated always as identity primary key,
	event_id   varchar(64) not null,
	member_id  bigint not null,
	channel    varchar(16) not null,
	created_at timestamptz not null default now(),
	constraint uk_event_channel unique (event_id, channel)
);
create table if not exists payment_task (order_id text primary key, status text not null)`

// notifyConfig rests on the table's own unique key, of two columns.
func notifyConfig(pool *pgxpool.Pool, log *slog.Logger) consumer.Config[pgstore.Tx] {
	cfg := config(pool, log)
	cfg.Group, cfg.Strategy, cfg.Handler = "notification-consumer-group", consumer.ByUniqueKey, notify
	return cfg
}

const sqlNotify = `
insert into notification_log (event_id, member_id, channel) values ($1, $2, 'EMAIL')
on conflict (event_id, channel) do nothing`

// notify logs what is to be sent. Zero rows mean that it was logged before.
func notify(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	p, err := paymentOf(ev)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, sqlNotify, ev.ID, p.MemberID)
	if err != nil {
		return fmt.Errorf("log notification: %w", err)
	}
	consumer.Inserted(ctx, tag.RowsAffected())
	return nil
}

// taskConfig rests on the state that a task is in.
func taskConfig(pool *pgxpool.Pool, log *slog.Logger) consumer.Config[pgstore.Tx] {
	cfg := config(pool, log)
	cfg.Group, cfg.Strategy, cfg.Handler = "task-consumer-group", consumer.ByState, process
	return cfg
}

const (
	sqlProcess = `update payment_task set status = 'PROCESSED' where order_id = $1 and status = 'PENDING'`
	sqlVerify  = `select exists (select from payment_task where order_id = $1 and status = 'PROCESSED')`
)

// process moves the task on. Zero rows are a duplicate only if the task is
// processed; else they are an anomaly: retried, then a dead letter.
func process(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	p, err := paymentOf(ev)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, sqlProcess, p.OrderID)
	if err != nil {
		return fmt.Errorf("process task of %s: %w", p.OrderID, err)
	}
	_, err = consumer.Transitioned(ctx, tag.RowsAffected(), func() (processed bool, err error) {
		err = tx.QueryRow(ctx, sqlVerify, p.OrderID).Scan(&processed)
		return processed, err
	})
	return err
}

func paymentOf(ev consumer.Event) (payment, error) {
	var p payment
	if err := json.Unmarshal(ev.Value, &p); err != nil {
		return p, consumer.Permanent(fmt.Errorf("payment: %w", err)) // no retry will mend it
	}
	if p.OrderID == "" {
		return p, consumer.Permanent(errors.New("payment has no orderId"))
	}
	return p, nil
}
