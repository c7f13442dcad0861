package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
	"oncemore/consumer/effect"
	"oncemore/consumer/kafka"
	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/pgstore"
	"oncemore/consumer/rabbit"
	"oncemore/internal/access"
	"oncemore/internal/config"
	"oncemore/internal/fleet"
)

// runner is one member of a consumer's group.
type runner struct {
	conf config.Consumer
	consumer.Runner
}

// consumers builds the members that this process runs for the config's consumers.
func (a *app) consumers(ctx context.Context) ([]runner, error) {
	var all []runner
	for _, c := range a.conf.Consumers {
		made, err := a.consumer(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Pos, err)
		}
		all = append(all, made...)
	}
	return all, nil
}

func (a *app) consumer(ctx context.Context, c config.Consumer) ([]runner, error) {
	if a.business.isMySQL(c.Connection) {
		store, err := a.mysqlRecordStore(c.Connection)
		if err != nil {
			return nil, err
		}
		return members(a, c, store, mysqlEffect)
	}
	pool, err := a.business.writer(ctx, c.Connection)
	if err != nil {
		return nil, err
	}
	store, err := a.recordStore(pool, c.Connection)
	if err != nil {
		return nil, err
	}
	return members(a, c, store, postgresEffect)
}

// members are those of one consumer, on a store whose transactions are T.
func members[T any](a *app, c config.Consumer, store consumer.Store[T], sqlEffect func(config.Consumer) (effect.Effect[T], error)) ([]runner, error) {
	does, err := effectOf(a, c, sqlEffect)
	if err != nil {
		return nil, err
	}
	cfg, err := consumerConfig(a, c, store, does)
	if err != nil {
		return nil, err
	}
	member, err := memberOf[T](a, c)
	if err != nil {
		return nil, err
	}
	var all []runner
	for range c.Concurrency {
		made, err := member(cfg)
		if err != nil {
			return nil, err
		}
		all = append(all, runner{c, made})
	}
	return all, nil
}

// memberOf is how to make a member of the consumer's group, by its broker.
func memberOf[T any](a *app, c config.Consumer) (func(consumer.Config[T]) (consumer.Runner, error), error) {
	cluster := a.conf.Cluster(c.Cluster)
	if cluster.Rabbit != nil {
		opts, err := rabbitConsumer(c, cluster.Rabbit)
		return func(cfg consumer.Config[T]) (consumer.Runner, error) { return rabbit.New(cfg, opts) }, err
	}
	client, err := kafkaOptions(cluster.Kafka)
	opts := kafkaConsumer(c, client)
	return func(cfg consumer.Config[T]) (consumer.Runner, error) { return kafka.New(cfg, opts) }, err
}

func consumerConfig[T any](a *app, c config.Consumer, store consumer.Store[T], does effect.Effect[T]) (cfg consumer.Config[T], err error) {
	cfg = consumer.Config[T]{
		Group: c.Group, Strategy: consumer.Strategy(c.Strategy), Store: store, Handler: does.Handler(), BatchSize: does.BatchSize(),
		EventID: consumer.EventIDSource{Header: c.EventID.Header, MessageID: c.EventID.MessageID, JSON: c.EventID.JSON},
		Retry:   retryPolicy(c.Retry), Logger: a.log, Now: a.clock,
	}
	if c.LockKeys != nil {
		if cfg.Keys, err = effect.NewKeys(c.LockKeys); err != nil {
			return cfg, err
		}
	}
	if c.Filter != "" {
		cfg.Filter, err = a.filters.of(*a.conf.RedisOf(c.Filter))
	}
	return cfg, err
}

func kafkaConsumer(c config.Consumer, client []kgo.Opt) kafka.Options {
	opts := kafka.Options{Topics: c.Topics, Client: client, DeadLetterTopic: c.DeadLetter, CreateTopics: true,
		SessionTimeout: c.SessionTimeout, RebalanceTimeout: c.RebalanceTimeout}
	if c.Retry.Mode == "non_blocking" {
		opts.RetryTopics = &kafka.RetryTopics{}
	}
	return opts
}

func rabbitConsumer(c config.Consumer, r *config.Rabbit) (rabbit.Options, error) {
	opts := rabbit.Options{Queue: c.Queue, DeadLetterQueue: c.DeadLetter, DeclareQueues: true, RetryQueues: c.Retry.Mode == "non_blocking"}
	url, err := r.URL.Value()
	if err != nil {
		return opts, err
	}
	opts.URLs = []string{url}
	if r.ManagementURL.Set() {
		opts.ManagementURL, err = r.ManagementURL.Value()
	}
	return opts, err
}

// retryPolicy says none as a negative number: zero is the library's default.
func retryPolicy(r config.Retry) consumer.RetryPolicy {
	p := consumer.RetryPolicy{Attempts: r.Attempts, Initial: r.Initial, Multiplier: r.Multiplier, Max: r.Max,
		Only: r.Only, Exclude: r.Exclude}
	if r.Attempts == 0 {
		p.Attempts = -1
	}
	return p
}

func effectOf[T any](a *app, c config.Consumer, sqlEffect func(config.Consumer) (effect.Effect[T], error)) (effect.Effect[T], error) {
	if c.HTTP == nil {
		return sqlEffect(c)
	}
	call, err := effect.NewHTTP(effect.HTTPConfig{
		Name: c.Group, Method: c.HTTP.Method, Base: a.conf.URLs[c.HTTP.Base], Path: c.HTTP.Path, Headers: c.HTTP.Headers,
		Body: c.HTTP.Body, Key: effect.KeyForm(c.HTTP.IdempotencyKey), Accept202: c.HTTP.Accept202, Timeout: c.HTTP.Timeout,
	}, effect.HTTPOptions{Logger: a.log, Now: a.clock})
	if err != nil {
		return nil, err
	}
	return effect.On[T](call), nil
}

// statement is an SQL effect of either kind, on a database whose pools are P.
type statement[T, P any] interface {
	effect.Effect[T]
	Prepare(context.Context, P) error
}

func postgresStatement(c config.Consumer) (statement[pgstore.Tx, *pgxpool.Pool], error) {
	if consumer.Strategy(c.Strategy).Records() {
		return effect.NewSQL(c.SQL, c.ExpectRows)
	}
	return effect.NewGuarded(guardConfig(c))
}

func mysqlStatement(c config.Consumer) (statement[mysqlstore.Tx, *sql.DB], error) {
	if consumer.Strategy(c.Strategy).Records() {
		return effect.NewMySQL(c.SQL, c.ExpectRows)
	}
	return effect.NewGuardedMySQL(guardConfig(c))
}

func guardConfig(c config.Consumer) effect.GuardConfig {
	return effect.GuardConfig{Strategy: consumer.Strategy(c.Strategy), SQL: c.SQL, Verify: c.Verify, ExpectRows: c.ExpectRows, Key: c.UniqueKey}
}

func postgresEffect(c config.Consumer) (effect.Effect[pgstore.Tx], error) {
	return postgresStatement(c)
}
func mysqlEffect(c config.Consumer) (effect.Effect[mysqlstore.Tx], error) { return mysqlStatement(c) }

// pause stops or resumes the consumers of a group, in all replicas.
func (a *app) pause(ctx context.Context, actor access.Actor, group string, paused bool) error {
	if paused {
		return a.fleet.Pause(ctx, actor, group)
	}
	return a.fleet.Resume(ctx, actor, group)
}

// paused reports whether every consumer of the group has stopped on request.
func (a *app) paused(ctx context.Context, group string) (bool, error) {
	g, err := a.fleet.Group(ctx, group)
	return g.State == fleet.Paused, err
}
