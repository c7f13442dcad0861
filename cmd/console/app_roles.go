package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"oncemore/compensate"
	"oncemore/consumer/metrics"
	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/internal/alert"
	"oncemore/internal/config"
	"oncemore/internal/fleet"
	"oncemore/reconcile"
	"oncemore/web"
)

// stopTimeout bounds an orderly stop; then the process ends as it is.
const stopTimeout = 15 * time.Second

// roles say which parts a process runs.
type roles struct{ Web, Drain, Consume, Jobs bool }

// allRoles is one process that does everything.
var allRoles = roles{true, true, true, true}

// extras are what the demo adds to the wiring.
type extras struct {
	try   web.Try                     // nil: not the demo
	ready func(context.Context) error // nil: nothing more

	setup web.Setup // nil: the config is not to be written
}

// serve runs the roles until ctx ends, then waits for all of them, at most
// stopTimeout. ln is for role web, nil without it.
func (a *app) serve(ctx context.Context, r roles, ln net.Listener, more extras) error {
	g, running := errgroup.WithContext(ctx)
	start := func(what string, do func(context.Context) error) {
		g.Go(func() error {
			if err := do(running); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	if r.Consume {
		if err := a.startConsumers(running, start); err != nil {
			return err
		}
		if err := a.startRelays(start); err != nil {
			return err
		}
	}
	if r.Drain {
		a.startDrains(start)
	}
	if r.Jobs {
		a.startJobs(running, start)
	}
	if r.Web {
		start("web", func(ctx context.Context) error { return a.serveWeb(ctx, ln, more) })
	}
	return waitBounded(running, g)
}

// waitBounded waits for the group, but no longer than stopTimeout once it stops.
func waitBounded(running context.Context, g *errgroup.Group) error {
	done := make(chan error, 1)
	go func() { done <- g.Wait() }()
	select {
	case err := <-done:
		return err
	case <-running.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(stopTimeout):
		return fmt.Errorf("not everything stopped within %s: what was under way is delivered again", stopTimeout)
	}
}

type starter func(what string, do func(context.Context) error)

func (a *app) startConsumers(ctx context.Context, start starter) error {
	members, err := a.consumers(ctx)
	if err != nil {
		return err
	}
	reporter := fleet.NewReporter(a.pool, a.log)
	for _, m := range members {
		reporter.Add(m, m.conf.Cluster, m.conf.Strategy)
		a.members = append(a.members, m)
	}
	if err := reporter.Tick(ctx); err != nil { // a paused group stays paused from the first record on
		a.log.WarnContext(ctx, "consumers start without knowing whether they are paused", "error", err)
	}
	for _, m := range members {
		start("consumer "+m.conf.Group, func(ctx context.Context) error { a.consume(ctx, m, reporter); return nil })
	}
	start("consumer reports", reporter.Run)
	return nil
}

// consume runs one member. What no waiting mends ends that group only: it is
// shown as failed, and the rest goes on.
func (a *app) consume(ctx context.Context, m runner, reporter *fleet.Reporter) {
	if err := m.Run(ctx); err != nil {
		a.log.ErrorContext(ctx, "consumer ended", "consumer_group", m.conf.Group, "error", err)
		reporter.Failed(m.conf.Group, err)
	}
}

// startDrains runs one drain per cluster that has sources.
func (a *app) startDrains(start starter) {
	for name, cluster := range a.clusters {
		sources := a.drainSources(name)
		if len(sources) == 0 {
			continue
		}
		drainer := dlq.NewDrain(dlq.DrainerConfig{
			Pool: a.pool, Cluster: cluster, Sources: sources, Dialects: a.dialects, Log: a.log, Clock: a.clock, Groups: a.groups,
		})
		a.drainers = append(a.drainers, drainer)
		start("drain of "+name, drainer.Run)
	}
}

// drainSources are the sources of one cluster.
func (a *app) drainSources(cluster string) (sources []dlq.DrainSource) {
	for _, s := range a.conf.Sources {
		if s.Cluster == cluster {
			sources = append(sources, drainSource(s))
		}
	}
	return sources
}

// drained says how far the drains of this process are.
func (a *app) drained() (all []dlq.SourceStatus) {
	for _, d := range a.drainers {
		all = append(all, d.Status()...)
	}
	return all
}

func drainSource(s config.Source) dlq.DrainSource {
	return dlq.DrainSource{Pattern: s.Pattern, Copy: s.Copy, Configured: dialect.Configured{
		EventIDHeader: s.EventID.Header, EventIDProperty: propertyOf(s.EventID), EventIDJSON: s.EventID.JSON, Group: s.Group,
		Origin: s.Origin, Transports: s.Transports,
	}}
}

// propertyOf is the AMQP property that holds the event id.
func propertyOf(e config.EventID) string {
	if e.MessageID {
		return "message_id"
	}
	return ""
}

// How often the loops of role jobs look.
const (
	foldEvery  = time.Second
	monthEvery = time.Hour
	judgeStale = time.Minute
)

func (a *app) startJobs(ctx context.Context, start starter) {
	start("steps", func(ctx context.Context) error {
		return work(ctx, a.pool, a.log, a.clock, queue{dlq.ReplayQueue, 8, a.replays}, queue{dlq.BulkQueue, 2, a.bulks},
			queue{reconcile.Queue, 4, a.reconcile.runs}, queue{compensate.Queue, 32, a.compensations}, queue{alert.Queue, 4, a.alerts})
	})
	start("replays looked after", func(ctx context.Context) error { a.replays.Run(ctx); return nil })
	a.replays.Schedule(a.scheduler)
	start("schedule", a.scheduler.Run)
	start("fold", func(ctx context.Context) error { dlq.RunFold(ctx, a.pool, a.log, foldEvery); return nil })
	start("judge", func(ctx context.Context) error { a.judge.RunJudge(ctx, a.log, a.judgeStale); return nil })
	start("months", a.runMonths)
	start("outbox commands", a.outboxes.Run)
	start("checks", a.runChecks)
	start("alerts", a.alerts.Run)
	a.startRetention(start)
	a.startLetters(start)
}

// runMonths makes the coming months' partitions before they are needed.
func (a *app) runMonths(ctx context.Context) error {
	tick := time.NewTicker(monthEvery)
	defer tick.Stop()
	for {
		if err := dlq.EnsureMonths(ctx, a.pool); err != nil && ctx.Err() == nil {
			a.log.ErrorContext(ctx, "partitions of coming months not made", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (a *app) serveWeb(ctx context.Context, ln net.Listener, more extras) error {
	server := web.New(a.webDeps(more))
	defer server.Close()
	return server.Serve(ctx, ln)
}

func (a *app) webDeps(more extras) web.Deps {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(metrics.Consumers(0, a.members...))
	var names []string
	for _, c := range a.conf.Clusters {
		names = append(names, c.Name)
	}
	var proxies []netip.Prefix
	for _, p := range a.conf.Web.TrustedProxies {
		proxies = append(proxies, netip.MustParsePrefix(p)) // the config was checked
	}
	return web.Deps{
		Pool: a.pool, Letters: a.letters, Faults: a.faults, Judge: a.judge, Origins: a.origins, Replays: a.replays, Revisions: a.revisions,
		Reconcile:     web.Reconciliation{Jobs: a.reconcile.jobs, Runs: a.reconcile.runs, Breaks: a.reconcile.breaks},
		Compensations: a.compensations,
		Overview:      a.overview, Fleet: a.fleet, Drained: a.drained, Outboxes: a.outboxes,
		Bulks: a.bulks, Searches: a.searches, Retention: a.retention, Links: a.links(),
		Dialects: a.dialects, Registries: a.registries,
		Environment: a.conf.Environment, Clusters: names, Version: versionText(),
		Secure: a.conf.Web.Secure, TrustedProxies: proxies,
		Logger: a.log, Clock: a.clock, Registry: registry, Ready: more.ready, Try: more.try, Setup: more.setup,
		Alerts: a.alerts, RunChecks: a.checkNow, Groups: a.groups, Connections: a.connectionNames(), FindEvidence: a.findEvidence,
	}
}
