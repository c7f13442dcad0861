package main

import (
	"context"

	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/internal/config"
)

// groupBook is what is known of consumer groups: those of our own consumers by
// themselves, and what the config declares, which wins.
func (a *app) groupBook(ctx context.Context) (dlq.GroupBook, error) {
	var book dlq.GroupBook
	for _, c := range a.conf.Consumers {
		g, err := a.ownGroup(ctx, c)
		if err != nil {
			return nil, err
		}
		book = append(book, g)
	}
	for _, g := range a.conf.Groups {
		if a.conf.Consumer(g.Name) != nil {
			continue // declared on top of what is known: ownGroup took it in
		}
		declared := dlq.Group{Name: g.Name, Cluster: g.Cluster}
		if err := a.declare(ctx, &declared, g); err != nil {
			return nil, err
		}
		book = append(book, declared)
	}
	return book, nil
}

// ownGroup is the group of a consumer from the config file. Its evidence is the
// consume records that it writes itself.
func (a *app) ownGroup(ctx context.Context, c config.Consumer) (dlq.Group, error) {
	g := dlq.Group{Name: c.Group, Cluster: c.Cluster, Topics: c.Topics, Ours: true, Effect: dlq.EffectLocal}
	if c.HTTP != nil {
		g.Effect = dlq.EffectExternal
	}
	pool, err := a.business.reader(ctx, c.Connection)
	if err != nil {
		return g, err
	}
	g.Evidence = &dlq.Evidence{
		Connection: c.Connection, Pool: pool, Table: pgstore.Table, EventID: "event_id", ConsumerGroup: "consumer_group",
		ConsumedAt: "consumed_at", Retention: a.conf.Retention.ConsumeRecords,
	}
	for _, declared := range a.conf.Groups {
		if declared.Name == c.Group {
			return g, a.declare(ctx, &g, declared)
		}
	}
	return g, nil
}

func (a *app) declare(ctx context.Context, g *dlq.Group, conf config.Group) error {
	if conf.Effect != "" {
		g.Effect = dlq.Effect(conf.Effect)
	}
	if len(conf.Topics) > 0 {
		g.Topics = conf.Topics
	}
	g.Window, g.Target = conf.Window, conf.Target
	g.OrderSet, g.OrderKey = conf.Order != "", conf.Order == "key"
	if conf.Evidence == nil {
		return nil
	}
	e := conf.Evidence
	pool, err := a.business.reader(ctx, e.Connection)
	if err != nil {
		return err
	}
	g.Evidence = &dlq.Evidence{
		Connection: e.Connection, Pool: pool, Table: e.Table, EventID: e.EventID, ConsumerGroup: e.ConsumerGroup,
		ConsumedAt: e.ConsumedAt, CompleteSince: e.CompleteSince, Retention: e.Retention,
	}
	return nil
}
