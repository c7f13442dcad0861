package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/compensate"
	"oncemore/consumer"
	"oncemore/consumer/rabbit"
	"oncemore/consumer/redisfilter"
	"oncemore/dlq"
	"oncemore/internal/check"
	"oncemore/internal/config"
	"oncemore/migrations"
)

type checkCmd struct {
	configFlag
	JSON bool `help:"Print the findings as JSON."`
	All  bool `help:"Print what passed, too."`
}

// The exit statuses of check besides 0.
const (
	exitCritical exitCode = 1
	exitWarning  exitCode = 2 // or something could not be looked at
)

// Run prints what is wrong and what to do. It exits 1 when something critical
// is, 2 for warnings and for what could not be looked at.
func (c checkCmd) Run(e *edge) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	if _, err := loadDialects(conf); err != nil {
		return err
	}
	if err := readActions(conf); err != nil {
		return err
	}
	findings := checkConfig(e.ctx, conf)
	if err := c.print(e.out, findings); err != nil {
		return err
	}
	switch worst := check.Worst(findings); {
	case worst == check.Critical:
		return exitCritical
	case !check.AllPassed(findings):
		return exitWarning
	}
	return nil
}

// readActions reads the actions of the config's folder, and says what is wrong
// with them.
func readActions(conf *config.Config) error {
	if conf.ReconcileDir == "" {
		return nil
	}
	actions, _, err := compensate.ReadDir(conf.ReconcileFolder())
	return errors.Join(err, checkActions(conf, actions))
}

func (c checkCmd) print(out io.Writer, findings []check.Finding) error {
	if c.JSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(findings)
	}
	passed := 0
	for _, f := range findings {
		if f.Severity == check.Passed {
			passed++
			if !c.All {
				continue
			}
		}
		printFinding(out, f)
	}
	_, err := fmt.Fprintf(out, "%d checks, %d passed\n", len(findings), passed)
	return err
}

func printFinding(out io.Writer, f check.Finding) {
	fmt.Fprintln(out, f)
	for _, line := range f.Evidence {
		fmt.Fprintln(out, "    seen:", line)
	}
	if f.Meaning.En != "" {
		fmt.Fprintln(out, "    means:", f.Meaning.En)
	}
	if f.Mend.En != "" {
		fmt.Fprintln(out, "    do:", f.Mend.En)
	}
}

// checkConfig looks at everything that the config names. What cannot be opened
// is a finding, so that one broken part does not hide the others.
func checkConfig(ctx context.Context, conf *config.Config) []check.Finding {
	business := newConnections(conf.Connections)
	defer business.close()
	in := check.Input{Pending: migrations.Pending, Kept: dlq.KeptMonths, URLs: conf.URLs, ReplayWindow: conf.Retention.Letters}
	if pool, err := consolePool(ctx, conf); err == nil {
		defer pool.Close()
		in.Console = pool
	}
	clusters, closeClusters := checkClusters(conf)
	defer closeClusters()
	in.Clusters = clusters
	in.Connections = checkConnections(ctx, conf, business)
	in.Redis = checkRedis(conf)
	in.Sources = checkSources(conf)
	in.Consumers = checkConsumers(conf)
	in.Evidence = checkEvidence(ctx, conf, business)
	return check.Run(ctx, in, time.Now)
}

// consolePool is lazy: whether the database answers is what the check asks.
func consolePool(ctx context.Context, conf *config.Config) (*pgxpool.Pool, error) {
	url, err := conf.Database.Value()
	if err != nil {
		return nil, err
	}
	return pgxpool.New(ctx, url)
}

func checkClusters(conf *config.Config) (all []check.Cluster, closeAll func()) {
	var closing []func()
	for _, c := range conf.Clusters {
		seen, done := checkCluster(c)
		all, closing = append(all, seen), append(closing, done)
	}
	return all, func() {
		for _, done := range closing {
			done()
		}
	}
}

func checkCluster(c config.Cluster) (seen check.Cluster, done func()) {
	seen, done = check.Cluster{Name: c.Name, Rabbit: c.Rabbit != nil}, func() {}
	if c.Rabbit != nil {
		if seen.Queues, seen.Err = queuesOf(c.Rabbit); seen.Queues != nil {
			done = seen.Queues.Close
		}
		return seen, done
	}
	made, err := openCluster(c, nil)
	if seen.Err = err; err == nil {
		seen.Admin, done = made.Admin, made.Close
	}
	return seen, done
}

// queuesOf is a look at a broker's queues; nil where that is not configured.
func queuesOf(r *config.Rabbit) (*rabbit.Management, error) {
	url, err := r.URL.Value()
	if err != nil || !r.ManagementURL.Set() {
		return nil, err
	}
	management, err := r.ManagementURL.Value()
	if err != nil {
		return nil, err
	}
	return rabbit.NewManagement(management, nil, url)
}

func checkConnections(ctx context.Context, conf *config.Config, business *connections) []check.Connection {
	writers, records := map[string]bool{}, map[string]bool{}
	for _, c := range conf.Consumers {
		writers[c.Connection] = true
		records[c.Connection] = records[c.Connection] || consumer.Strategy(c.Strategy).Records()
	}
	var all []check.Connection
	for _, c := range conf.Connections {
		r := conf.RecordsOf(c.Name)
		seen := check.Connection{Name: c.Name, Writer: writers[c.Name], Unrecorded: writers[c.Name] && !records[c.Name], Drops: !r.Forever, Archive: r.Archive}
		if business.isMySQL(c.Name) {
			seen.MySQL, seen.Err = business.mysqlReader(c.Name)
		} else {
			seen.Pool, seen.Err = business.reader(ctx, c.Name)
		}
		if seen.Writer && business.isMySQL(c.Name) {
			seen.WriteMySQL, seen.WriteErr = business.mysqlWriter(c.Name)
		} else if seen.Writer {
			seen.WritePool, seen.WriteErr = business.writer(ctx, c.Name)
		}
		if seen.Repairs = c.Repairs.Set(); seen.Repairs {
			target, err := repairTarget(ctx, business, c)
			seen.RepairPool, seen.RepairMySQL, seen.RepairErr = target.Postgres, target.MySQL, err
		}
		all = append(all, seen)
	}
	return all
}

func checkRedis(conf *config.Config) []check.Redis {
	var all []check.Redis
	for _, r := range conf.Redis {
		all = append(all, check.Redis{Name: r.Name, Ask: func(ctx context.Context) error {
			url, err := r.URL.Value()
			if err != nil {
				return err
			}
			return redisfilter.Check(ctx, url, r.Prefix)
		}})
	}
	return all
}

func checkSources(conf *config.Config) []check.Source {
	var all []check.Source
	for _, s := range conf.Sources {
		all = append(all, check.Source{Cluster: s.Cluster, Pattern: s.Pattern, Match: drainSource(s).Matches, Copy: s.Copy, Header: s.EventID.Header, JSON: s.EventID.JSON})
	}
	return all
}

func checkConsumers(conf *config.Config) []check.Consumer {
	var all []check.Consumer
	for _, c := range conf.Consumers {
		seen := check.Consumer{
			Group: c.Group, Cluster: c.Cluster, Topics: c.Topics, Queue: c.Queue, Horizon: c.Horizon, Connection: c.Connection, Header: c.EventID.Header, MessageID: c.EventID.MessageID, JSON: c.EventID.JSON,
			DeadLetter: c.DeadLetter, MaxRetry: longestRetry(c.Retry), Retention: checkRetention(conf, c),
		}
		if c.HTTP != nil {
			seen.HTTPBase, seen.HTTPKey = conf.URLs[c.HTTP.Base], c.HTTP.IdempotencyKey
		} else if conn := conf.Connection(c.Connection); conn != nil && conn.Kind == "mysql" {
			seen.PrepareMySQL = func(ctx context.Context, db *sql.DB) error { return prepareSQL(ctx, db, c, mysqlStatement) }
		} else {
			seen.Prepare = func(ctx context.Context, pool *pgxpool.Pool) error {
				return prepareSQL(ctx, pool, c, postgresStatement)
			}
		}
		all = append(all, seen)
	}
	return all
}

func prepareSQL[T, P any](ctx context.Context, pool P, c config.Consumer, read func(config.Consumer) (statement[T, P], error)) error {
	made, err := read(c)
	if err != nil {
		return err
	}
	return made.Prepare(ctx, pool)
}

// longestRetry is the sum of all pauses of a policy.
func longestRetry(r config.Retry) (sum time.Duration) {
	pause := float64(r.Initial)
	for range r.Attempts {
		sum += time.Duration(min(pause, float64(r.Max)))
		pause *= r.Multiplier
	}
	return sum
}

func checkEvidence(ctx context.Context, conf *config.Config, business *connections) []check.Evidence {
	var all []check.Evidence
	for _, g := range conf.Groups {
		if e := g.Evidence; e != nil {
			all = append(all, check.Evidence{
				Group: g.Name, Connection: e.Connection, Cluster: g.Cluster, Topics: g.Topics, Table: e.Table, EventID: e.EventID,
				ConsumerGroup: e.ConsumerGroup, ConsumedAt: e.ConsumedAt, Retention: e.Retention, Try: tryEvidence(ctx, business, g),
				Strangers: strangersIn(ctx, business, g),
			})
		}
	}
	return all
}
