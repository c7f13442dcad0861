package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/pgstore"
	"oncemore/internal/check"
	"oncemore/internal/config"
)

// recordStore keeps the consume records of a connection; with an archive, it
// looks there as well.
func (a *app) recordStore(pool *pgxpool.Pool, connection string) (consumer.Store[pgstore.Tx], error) {
	store := pgstore.New(pool, pgstore.Options{Logger: a.log})
	if !a.conf.RecordsOf(connection).Archive {
		return store, nil
	}
	return store.WithArchive(pgstore.ArchiveOptions{})
}

// mysqlRecordStore is recordStore in MySQL.
func (a *app) mysqlRecordStore(connection string) (consumer.Store[mysqlstore.Tx], error) {
	o := mysqlstore.Options{MaxConns: 16, Logger: a.log}
	if a.conf.RecordsOf(connection).Archive {
		o.Archive = &mysqlstore.ArchiveOptions{}
	}
	return a.business.mysqlStore(connection, o)
}

// recordRetention is how long a record is found again at least; 0: for ever.
func recordRetention(conf *config.Config, connection string) time.Duration {
	r := conf.RecordsOf(connection)
	if r.Forever || r.Keep > 0 {
		return r.Keep
	}
	return max(check.LeastNeed(conf.Retention.Letters), 0) // endless is negative
}

// startRetention starts a keeper for each database that our consumers keep
// records in.
func (a *app) startRetention(start starter) {
	for _, name := range recordConnections(a.conf) {
		start("consume records of "+name, func(ctx context.Context) error { a.keepRecords(ctx, name); return nil })
	}
}

// recordConnections are the connections with consumers that keep records.
func recordConnections(conf *config.Config) []string {
	names := map[string]bool{}
	for _, c := range conf.Consumers {
		if consumer.Strategy(c.Strategy).Records() {
			names[c.Connection] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// keepRecords runs until ctx ends. A process without the writer's credential
// leaves the records to one that has it.
func (a *app) keepRecords(ctx context.Context, connection string) {
	keeper, err := a.keeper(ctx, connection)
	if err != nil {
		a.log.WarnContext(ctx, "consume records are not swept by this process", "connection", connection, "error", err)
		return
	}
	keeper.Run(ctx)
}

// keeper is one of the connection's kind.
func (a *app) keeper(ctx context.Context, connection string) (interface{ Run(context.Context) }, error) {
	r, log, said := a.conf.RecordsOf(connection), a.log.With("connection", connection), map[string]string{}
	keep := func(ctx context.Context) (map[string]time.Duration, error) { return a.keep(ctx, connection, said) }
	if a.business.isMySQL(connection) {
		db, err := a.business.mysqlWriter(connection)
		if err != nil {
			return nil, err
		}
		return mysqlstore.NewKeeper(db, mysqlstore.KeeperOptions{Keep: keep, Archive: r.Archive, Hot: r.Hot, Logger: log})
	}
	pool, err := a.business.writer(ctx, connection)
	if err != nil {
		return nil, err
	}
	return pgstore.NewKeeper(pool, pgstore.KeeperOptions{Keep: keep, Archive: r.Archive, Hot: r.Hot, Logger: log})
}

// keep says how long the records of each group are kept. A group whose need is
// not known, or longer than what is configured, loses none.
func (a *app) keep(ctx context.Context, connection string, said map[string]string) (map[string]time.Duration, error) {
	keep := map[string]time.Duration{}
	in, done := a.needInput(connection)
	defer done()
	for _, need := range check.Needs(ctx, in) {
		kept, why := decideKeep(a.conf.RecordsOf(connection), need)
		keep[need.Group] = kept
		a.tellKeep(ctx, need, kept, why, said)
	}
	return keep, ctx.Err()
}

// decideKeep returns pgstore.Forever, with the reason, where nothing may be dropped.
func decideKeep(r config.Records, need check.Need) (kept time.Duration, why string) {
	switch {
	case r.Forever:
		return pgstore.Forever, "configured"
	case !need.Known:
		return pgstore.Forever, "a broker could not say how long it keeps messages"
	case need.For == check.Endless:
		return pgstore.Forever, "events may come back at any time"
	case r.Keep == 0:
		return need.For, "computed"
	case r.Keep < need.For:
		return pgstore.Forever, fmt.Sprintf("consume_records is %s, but %s are needed: nothing is dropped until one of them changes", r.Keep, need.For)
	}
	return r.Keep, "configured"
}

// tellKeep logs what is kept when it is known first, and when it changes.
func (a *app) tellKeep(ctx context.Context, need check.Need, kept time.Duration, why string, said map[string]string) {
	text := kept.String()
	if kept == pgstore.Forever {
		text = "for ever"
	}
	if said[need.Group] == text+why {
		return
	}
	said[need.Group] = text + why
	a.log.InfoContext(ctx, "consume records are kept", "consumer_group", need.Group, "for", text, "because", why, "sum", need.Lines)
}

// needInput is what the need of the connection's groups is computed from.
func (a *app) needInput(connection string) (in check.Input, done func()) {
	in.ReplayWindow = a.conf.Retention.Letters
	in.Clusters, done = checkClusters(a.conf)
	for i, c := range checkConsumers(a.conf) {
		if c.Connection == connection && consumer.Strategy(a.conf.Consumers[i].Strategy).Records() {
			in.Consumers = append(in.Consumers, c)
		}
	}
	return in, done
}

// checkRetention is a consumer's retention as the checks take it.
func checkRetention(conf *config.Config, c config.Consumer) time.Duration {
	r := conf.RecordsOf(c.Connection)
	switch {
	case r.Forever, !consumer.Strategy(c.Strategy).Records():
		return 0 // nobody drops any
	case r.Keep > 0:
		return r.Keep
	}
	return check.Computed
}
