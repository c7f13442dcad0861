package main

import (
	"context"
	"time"

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
	start("search index", func(ctx context.Context) error { dlq.RunTokens(ctx, a.pool, a.log, tokensEvery); return nil })
	start("retention of letters", func(ctx context.Context) error { a.retention.Run(ctx, retentionEvery); return nil })
}

// links are the configured ones as the pages take them.
func (a *app) links() []web.Link {
	var links []web.Link
	for _, l := range a.conf.Links {
		links = append(links, web.Link{Name: l.Name, URL: l.URL})
	}
	return links
}
