package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// queue is one of River's, and who does its steps, so many at once.
type queue struct {
	name   string
	atOnce int
	steps  interface{ AddWorkers(*river.Workers) }
}

// work works queues until ctx ends. A step is fenced by the epoch of what it
// works at, so one that is rescued while it still runs changes nothing.
func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, clock func() time.Time, all ...queue) error {
	workers, queues := river.NewWorkers(), map[string]river.QueueConfig{}
	for _, q := range all {
		q.steps.AddWorkers(workers)
		queues[q.name] = river.QueueConfig{MaxWorkers: q.atOnce}
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:               queues,
		Workers:              workers,
		Logger:               riverLog(log, clock),
		ErrorHandler:         jobErrors{log},
		RescueStuckJobsAfter: 2 * time.Minute,
		FetchPollInterval:    200 * time.Millisecond,
		FetchCooldown:        20 * time.Millisecond, // a queue of short jobs takes its workers' number each time
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout-5*time.Second)
	defer cancel()
	if err := client.StopAndCancel(stopping); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}
