package main

import (
	"context"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"oncemore/dlq"
	"oncemore/web"
)

// How often the loops over letters look.
const (
	tokensEvery    = 2 * time.Second
	retentionEvery = time.Hour
)

// openLetters makes what searches, sorts out and drops letters.
func (a *app) openLetters() (err error) {
	a.searches = dlq.NewSearches(a.pool)
	a.retention = dlq.NewRetention(a.pool, a.conf.Retention.Letters, a.log)
	a.bulks, err = dlq.NewBulks(a.pool, dlq.BulkOptions{Log: a.log})
	return err
}

func (a *app) startLetters(start starter) {
	start("commands on letters", a.runBulks)
	start("search index", func(ctx context.Context) error { dlq.RunTokens(ctx, a.pool, a.log, tokensEvery); return nil })
	start("retention of letters", func(ctx context.Context) error { a.retention.Run(ctx, retentionEvery); return nil })
}

// runBulks works the steps of commands on many letters. A step is fenced by its
// command's epoch.
func (a *app) runBulks(ctx context.Context) error {
	workers := river.NewWorkers()
	a.bulks.AddWorkers(workers)
	client, err := river.NewClient(riverpgxv5.New(a.pool), &river.Config{
		Queues:               map[string]river.QueueConfig{dlq.BulkQueue: {MaxWorkers: 2}},
		Workers:              workers,
		Logger:               riverLog(a.log, a.clock),
		ErrorHandler:         jobErrors{a.log},
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

// links are the configured ones as the pages take them.
func (a *app) links() []web.Link {
	var links []web.Link
	for _, l := range a.conf.Links {
		links = append(links, web.Link{Name: l.Name, URL: l.URL})
	}
	return links
}
