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

// work works River's queues, each by so many steps at once, until ctx ends. A
// step is fenced by the epoch of what it works at, so one that is rescued while
// it still runs changes nothing.
func work(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, clock func() time.Time, queues map[string]river.QueueConfig, workers *river.Workers) error {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:               queues,
		Workers:              workers,
		Logger:               riverLog(log, clock),
		ErrorHandler:         jobErrors{log},
		RescueStuckJobsAfter: 2 * time.Minute,
		FetchPollInterval:    200 * time.Millisecond,
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
