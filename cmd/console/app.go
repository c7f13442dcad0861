package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"oncemore/compensate"
	"oncemore/consumer"
	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/dlq/payload"
	"oncemore/internal/alert"
	"oncemore/internal/config"
	"oncemore/internal/fleet"
	"oncemore/internal/outboxes"
	"oncemore/internal/schedule"
	"oncemore/migrations"
)

// app is the console, wired from a config: every service of the domain, and the
// connections they work on. What runs is chosen by role.
type app struct {
	conf  *config.Config
	log   *slog.Logger
	clock func() time.Time

	pool     *pgxpool.Pool // the console's own database
	business *connections
	alerts   *alert.Engine
	filters  *filters
	clusters map[string]*dlq.Cluster
	dialects *dialect.Set

	registries map[string]*payload.Registry // by cluster

	letters   *dlq.Letters
	faults    *dlq.Faults
	judge     *dlq.Judge
	origins   *dlq.Origins
	overview  *dlq.Overviews
	replays   *dlq.Replays
	revisions *dlq.Revisions
	scheduler *schedule.Scheduler // what starts by itself, in role jobs
	fleet     *fleet.Fleet
	outboxes  *outboxes.Outboxes
	drainers  []dlq.Drain       // of role drain
	members   []consumer.Runner // of role consume
	groups    dlq.GroupBook     // what is known of consumer groups

	bulks     *dlq.Bulks
	searches  *dlq.Searches
	retention *dlq.Retention

	reconcile     reconciliation
	compensations *compensate.Compensations

	judgeStale time.Duration // verdicts older than this are read again
}

// openApp wires the console. Nothing is asked of a broker or a business
// database yet; the console's own has to answer and has to be migrated.
func openApp(ctx context.Context, conf *config.Config, log *slog.Logger) (*app, error) {
	a := &app{conf: conf, log: log, clock: time.Now, business: newConnections(conf.Connections), filters: newFilters(log), judgeStale: judgeStale}
	err := a.open(ctx)
	if err == nil {
		a.alerts, err = a.newAlerts()
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

func (a *app) open(ctx context.Context) (err error) {
	if a.pool, err = openConsole(ctx, a.conf); err != nil {
		return err
	}
	if err := needMigrated(ctx, a.pool); err != nil {
		return err
	}
	if a.dialects, err = loadDialects(a.conf); err != nil {
		return err
	}
	if a.registries, err = openRegistries(a.conf.Clusters); err != nil {
		return err
	}
	if a.clusters, err = openClusters(a.conf); err != nil {
		return err
	}
	groups, err := a.groupBook(ctx)
	if err != nil {
		return err
	}
	a.groups = groups
	if err := a.openOutboxes(ctx); err != nil {
		return err
	}
	a.letters, a.faults = dlq.NewLetters(a.pool), dlq.NewFaults(a.pool)
	if err := a.openLetters(); err != nil {
		return err
	}
	a.fleet = fleet.New(a.pool, fleet.Options{
		Declared: declared(groups, a.conf), Brokers: a.admins(), Origins: a.originTopics, Logger: a.log, Now: a.clock,
	})
	a.judge = dlq.NewJudge(a.pool, a.clusters, groups, a.clock)
	a.origins = dlq.NewOrigins(a.pool, a.judge.Topology())
	a.overview = dlq.NewOverview(a.pool, a.judge.Topology(), a.clock)
	a.replays, err = dlq.NewReplays(a.pool, a.clusters, a.judge, a.origins, dlq.ReplayOptions{
		ApprovalSize: a.conf.Approval.ReplaySize, ApprovalFor: a.conf.Approval.ValidFor, ReplayCap: a.conf.Replays.Cap, Dialects: a.dialects, Clock: a.clock, Log: a.log,
	})
	if err != nil {
		return err
	}
	a.revisions = dlq.NewRevisions(a.pool, a.judge, a.origins, a.dialects, a.registries)
	a.scheduler = schedule.New(a.pool, a.log, a.clock)
	if err := a.openReconciliation(ctx); err != nil {
		return err
	}
	return a.openCompensations(ctx)
}

// close ends what open made, as far as it came.
func (a *app) close() {
	for _, c := range a.clusters {
		c.Close()
	}
	a.business.close()
	a.filters.close()
	if a.pool != nil {
		a.pool.Close()
	}
}

// openConsole connects to the console's own database and asks it something.
func openConsole(ctx context.Context, conf *config.Config) (*pgxpool.Pool, error) {
	url, err := conf.Database.Value()
	if err != nil {
		return nil, err
	}
	settings, err := poolSettings(url)
	if err != nil {
		return nil, fmt.Errorf("the console's database: %w", err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("the console's database: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("the console's database does not answer: %w", err)
	}
	return pool, nil
}

// poolConns is how many connections a process keeps at most, unless the address
// says so: its locks and its listening hold some of them all the time, and pages
// should not wait behind a search.
const poolConns = 16

func poolSettings(url string) (*pgxpool.Config, error) {
	settings, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(url, "pool_max_conns") {
		settings.MaxConns = poolConns
	}
	settings.AfterConnect = prepareConn
	return settings, nil
}

// prepareConn sends letter ids as bytes instead of text. Without JIT: with millions
// of letters PostgreSQL expects much of statements that stop after a page, and
// compiles them for longer than they run.
func prepareConn(ctx context.Context, conn *pgx.Conn) error {
	pgxuuid.Register(conn.TypeMap())
	_, err := conn.Exec(ctx, "SET jit = off")
	return err
}

func needMigrated(ctx context.Context, pool *pgxpool.Pool) error {
	n, err := migrations.Pending(ctx, pool)
	if err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("the console's database lacks %d migrations: run console migrate first", n)
	}
	return nil
}

func loadDialects(conf *config.Config) (*dialect.Set, error) {
	var own []string
	if conf.Dialects != "" {
		own = append(own, conf.Dialects)
	}
	set, err := dialect.Load(own...)
	if err != nil {
		return nil, fmt.Errorf("dialects: %w", err)
	}
	return set, nil
}
