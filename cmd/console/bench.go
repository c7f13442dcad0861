package main

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/bench"
	"oncemore/compensate"
	"oncemore/dlq"
)

type benchCmd struct {
	What             []string `arg:"" optional:"" help:"consume, rabbit, rabbit-replay, spring, memory, drain, outbox, letters, replay; all if absent that have what they need. reconcile and saga only by name." enum:"consume,rabbit,rabbit-replay,spring,memory,drain,outbox,replay,letters,reconcile,saga"`
	Letters          int      `help:"Rows that letters fills the tables with." default:"1000000"`
	Keep             string   `help:"Database of letters that stays, and that the next run finds filled." placeholder:"NAME"`
	Postgres         string   `help:"Server whose user may create databases." required:"" env:"ONCEMORE_POSTGRES_URL" placeholder:"URL"`
	Kafka            string   `help:"Broker." required:"" env:"ONCEMORE_KAFKA" placeholder:"HOST:PORT"`
	Rabbit           string   `help:"RabbitMQ; without it rabbit is not measured." env:"ONCEMORE_RABBITMQ4" placeholder:"URL"`
	RabbitManagement string   `help:"Management API of a RabbitMQ with the shovel plug-in, for rabbit-replay." env:"ONCEMORE_RABBITMQ4_MANAGEMENT" placeholder:"URL"`
	Spring           string   `help:"Jar of interop/spring-consumer; beside Spring nothing is measured without it." env:"ONCEMORE_INTEROP" placeholder:"FILE"`
	MySQL            string   `help:"MariaDB whose user may create databases and users, for reconcile." name:"mysql" env:"ONCEMORE_MYSQL_URL" placeholder:"URL"`
	Reladiff         string   `help:"Program of that name, beside which reconcile is measured; without it there are figures only." placeholder:"FILE"`
	Rows             int      `help:"Rows of each ledger that reconcile compares." default:"1000000"`
	LargeRows        int      `help:"Rows of ledgers with which reconcile measures time and memory alone." placeholder:"N"`
	Open             []int    `help:"Open sagas beside which sagas are measured." default:"100,1000,10000,100000"`
	Backlog          int      `help:"Records of 1 KB that memory is measured with." default:"300000"`
	Rounds           int      `help:"The median of so many counts." default:"3"`
}

// Run prints figures and one RATIO line per benchmark.
func (c benchCmd) Run(e *edge) error {
	env := bench.Env{Postgres: c.Postgres, Kafka: c.Kafka, Rabbit: c.Rabbit, Rounds: c.Rounds, Out: e.out}
	if c.wants("consume") {
		for _, partitions := range []int32{1, 4} {
			if err := bench.Consume(e.ctx, env, partitions); err != nil {
				return err
			}
		}
	}
	if slices.Contains(c.What, "rabbit") || c.wants("rabbit") && c.Rabbit != "" {
		if err := bench.Rabbit(e.ctx, env); err != nil {
			return err
		}
	}
	if slices.Contains(c.What, "rabbit-replay") || c.wants("rabbit-replay") && c.Rabbit != "" && c.RabbitManagement != "" {
		err := env.RabbitReplay(e.ctx, c.RabbitManagement, func(ctx context.Context, pool *pgxpool.Pool, replays *dlq.Replays) error {
			return work(ctx, pool, e.log, time.Now, queue{dlq.ReplayQueue, 8, replays})
		})
		if err != nil {
			return err
		}
	}
	if slices.Contains(c.What, "spring") || c.wants("spring") && c.Spring != "" {
		for _, partitions := range []int32{1, 4} {
			if err := env.Spring(e.ctx, c.Spring, partitions); err != nil {
				return err
			}
		}
	}
	if c.wants("memory") {
		if err := env.Memory(e.ctx, c.Backlog); err != nil {
			return err
		}
	}
	if c.wants("drain") {
		if err := bench.Drain(e.ctx, env); err != nil {
			return err
		}
	}
	if c.wants("outbox") {
		if err := env.Outbox(e.ctx); err != nil {
			return err
		}
	}
	if c.wants("letters") {
		if err := env.Letters(e.ctx, c.Letters, c.Keep, openSite(c.Kafka, e.log)); err != nil {
			return err
		}
	}
	if slices.Contains(c.What, "reconcile") {
		return env.Reconcile(e.ctx, bench.Reconciling{MySQL: c.MySQL, Tool: c.Reladiff, Rows: c.Rows, Large: c.LargeRows})
	}
	if slices.Contains(c.What, "saga") {
		return env.Saga(e.ctx, func(ctx context.Context, pool *pgxpool.Pool, all *compensate.Compensations) error {
			return work(ctx, pool, e.log, time.Now, queue{compensate.Queue, 32, all})
		}, c.Open)
	}
	if c.wants("replay") {
		return env.Replay(e.ctx, func(ctx context.Context, pool *pgxpool.Pool, replays *dlq.Replays) error {
			return work(ctx, pool, e.log, time.Now, queue{dlq.ReplayQueue, 8, replays})
		})
	}
	return nil
}

func (c benchCmd) wants(what string) bool { return len(c.What) == 0 || slices.Contains(c.What, what) }
