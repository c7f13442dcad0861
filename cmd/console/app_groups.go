package main

import (
	"context"
	"slices"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/pgstore"
	"oncemore/dlq"
	"oncemore/internal/config"
	"oncemore/internal/fleet"
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
// consume records that it writes itself. With a strategy that writes none it is
// unprotected, unless the config declares the business table as evidence.
func (a *app) ownGroup(ctx context.Context, c config.Consumer) (dlq.Group, error) {
	g := dlq.Group{Name: c.Group, Cluster: c.Cluster, Topics: c.Topics, Ours: true, Effect: dlq.EffectLocal}
	if c.Queue != "" {
		g.Topics = []string{c.Queue}
	}
	if c.HTTP != nil {
		g.Effect = dlq.EffectExternal
	}
	if consumer.Strategy(c.Strategy).Records() {
		var err error
		g.Evidence, err = a.business.evidence(ctx, config.Evidence{
			Connection: c.Connection, Table: pgstore.Table, EventID: "event_id", ConsumerGroup: "consumer_group",
			ConsumedAt: "consumed_at", Retention: recordRetention(a.conf, c.Connection),
		})
		if err != nil {
			return g, err
		}
	}
	if declared := a.conf.Group(c.Group); declared != nil {
		if err := a.declare(ctx, &g, *declared); err != nil {
			return g, err
		}
	}
	if g.Evidence != nil && g.Evidence.CompleteSince.IsZero() {
		g.Evidence.CompleteSince = a.oldestRecord(ctx, g.Evidence, c.Group)
	}
	return g, nil
}

// oldestRecord is since when the group's records are complete, as far as they
// show it themselves: of older events a missing record proves nothing. A
// database that does not answer now, or an empty table, means: from now on.
func (a *app) oldestRecord(ctx context.Context, e *dlq.Evidence, group string) time.Time {
	asking, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var oldest *time.Time
	var err error
	if e.MySQL != nil {
		oldest, err = mysqlstore.SinceArchived(asking, e.MySQL, group)
	} else {
		oldest, err = pgstore.SinceArchived(asking, e.Pool, group)
	}
	if err != nil {
		a.log.WarnContext(ctx, "age of the consume records unknown: older letters count as expired until the next start; groups.<group>.evidence.complete_since says it",
			"consumer_group", group, "error", err)
	}
	if oldest == nil {
		return a.clock()
	}
	return *oldest
}

func (a *app) declare(ctx context.Context, g *dlq.Group, conf config.Group) error {
	if conf.Effect != "" {
		g.Effect = dlq.Effect(conf.Effect)
	}
	if len(conf.Topics) > 0 {
		g.Topics = conf.Topics
	}
	for _, queue := range conf.Queues {
		if !slices.Contains(g.Topics, queue) {
			g.Topics = append(g.Topics, queue)
		}
	}
	g.Window, g.Target = conf.Window, conf.Target
	g.OrderSet, g.OrderKey = conf.Order != "", conf.Order == "key"
	if conf.Evidence == nil {
		return nil
	}
	e, err := a.business.evidence(ctx, *conf.Evidence)
	g.Evidence = e
	return err
}

// declared is what the Consumers page knows beforehand.
func declared(book dlq.GroupBook, conf *config.Config) []fleet.Declared {
	var all []fleet.Declared
	for _, g := range book {
		d := fleet.Declared{Name: g.Name, Cluster: g.Cluster, Topics: g.Topics, Ours: g.Ours}
		if c := conf.Group(g.Name); c != nil && len(c.Queues) > 0 {
			d.Topics = c.Topics // queues are no topics
		}
		if own := conf.Consumer(g.Name); own != nil {
			d.Strategy = own.Strategy
			if own.Queue != "" {
				d.Topics = nil
			}
		}
		if g.Evidence != nil && !g.Evidence.CompleteSince.IsZero() {
			d.EvidenceSince = &g.Evidence.CompleteSince
		}
		all = append(all, d)
	}
	return all
}

// originTopics are the topics whose readers the Consumers page shows, even those
// that the config does not name.
func (a *app) originTopics(ctx context.Context) ([]fleet.Topic, error) {
	origins, err := a.faults.OriginTopics(ctx)
	topics := make([]fleet.Topic, len(origins))
	for i, o := range origins {
		topics[i] = fleet.Topic{Cluster: o.Cluster, Name: o.Name}
	}
	return topics, err
}
