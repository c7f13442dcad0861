package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
)

const (
	reportEvery  = 2 * time.Second
	sweepEvery   = time.Minute
	finishTime   = 12 * time.Second // for the consumers of a stopping process to end
	goodbyeTime  = 3 * time.Second  // for its last report
	maxLastError = 2000             // bytes
)

// Reporter writes what this process's consumers do, and makes them obey what
// operators want.
type Reporter struct {
	pool    *pgxpool.Pool
	log     *slog.Logger
	replica string
	host    string

	mu     sync.Mutex
	groups map[string]*reported
}

// reported is one group's consumers in this process.
type reported struct {
	runners           []consumer.Runner
	cluster, strategy string
	paused            bool // as last told
	failure           error
	failedAt          time.Time
}

// NewReporter makes a reporter for this process. logger nil is slog.Default().
func NewReporter(pool *pgxpool.Pool, logger *slog.Logger) *Reporter {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Reporter{
		pool: pool, log: cmp.Or(logger, slog.Default()), host: fmt.Sprintf("%s/%d", host, os.Getpid()),
		replica: uuid.NewString(), groups: map[string]*reported{},
	}
}

// Add takes a consumer into the reports; several of one group are its members
// in this process. Call it before Run.
func (r *Reporter) Add(runner consumer.Runner, cluster, strategy string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := runner.Status().Group
	if r.groups[name] == nil {
		r.groups[name] = &reported{cluster: cluster, strategy: strategy}
	}
	r.groups[name].runners = append(r.groups[name].runners, runner)
}

// Failed says that the group's consumer ended with an error. A later report
// shows it until the process ends.
func (r *Reporter) Failed(group string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.groups[group]; g != nil {
		g.failure, g.failedAt = err, time.Now()
	}
}

// Run reports every two seconds until ctx ends, and a last time after that. A
// database that is down is logged once and tried again.
func (r *Reporter) Run(ctx context.Context) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	var swept time.Time
	down := false
	for {
		err := r.Tick(ctx)
		if err == nil && time.Since(swept) >= sweepEvery {
			swept = time.Now()
			err = r.sweep(ctx)
		}
		down = r.note(ctx, err, down)
		select {
		case <-ctx.Done():
			return r.goodbye(ctx)
		case <-tick.C:
		}
	}
}

// note logs the change between reachable and not.
func (r *Reporter) note(ctx context.Context, err error, down bool) bool {
	switch {
	case err != nil && !down && ctx.Err() == nil:
		r.log.Warn("consumer status not reported", "error", err)
	case err == nil && down:
		r.log.Info("consumer status reported again")
	}
	return err != nil
}

// goodbye waits for the consumers to end, which finish what is under way, and
// reports their last numbers.
func (r *Reporter) goodbye(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	end := time.Now().Add(finishTime)
	for !r.stopped() && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, goodbyeTime)
	defer cancel()
	return r.report(ctx, true)
}

func (r *Reporter) stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.groups {
		for _, runner := range g.runners {
			if runner.Status().State != consumer.Stopped {
				return false
			}
		}
	}
	return true
}

// Tick reports once and obeys what operators want. Called before the consumers
// start, it keeps a paused group paused across a restart.
func (r *Reporter) Tick(ctx context.Context) error {
	return errors.Join(r.obey(ctx), r.report(ctx, false))
}

func (r *Reporter) obey(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows, _ := r.pool.Query(ctx, sqlPausedGroups, pgx.NamedArgs{"groups": slices.Collect(maps.Keys(r.groups))}) // its error comes with the rows
	paused, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read commands for consumers: %w", err)
	}
	for name, g := range r.groups {
		r.tell(name, g, slices.Contains(paused, name))
	}
	return nil
}

func (r *Reporter) tell(name string, g *reported, pause bool) {
	if pause == g.paused {
		return
	}
	g.paused = pause
	r.log.Info("consumer told by an operator", "group", name, "paused", pause)
	for _, runner := range g.runners {
		if pause {
			runner.Pause()
		} else {
			runner.Resume()
		}
	}
}

func (r *Reporter) report(ctx context.Context, last bool) error {
	batch := &pgx.Batch{}
	r.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(r.groups)) {
		batch.Queue(sqlReport, r.row(r.groups[name], last))
	}
	r.mu.Unlock()
	if err := r.pool.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("report consumers: %w", err)
	}
	return nil
}

func (r *Reporter) row(g *reported, last bool) pgx.NamedArgs {
	s := g.status()
	return pgx.NamedArgs{
		"replica": r.replica, "host": r.host, "group": s.Group, "cluster": g.cluster, "topics": s.Topics, "strategy": g.strategy,
		"state": g.state(last), "consumed": s.Consumed, "duplicates": s.Duplicates, "retried": s.Retried,
		"dead_lettered": s.DeadLettered, "filtered": s.Filtered, "discarded": s.Discarded, "transactions": s.Transactions,
		"fallbacks": s.Fallbacks, "contention": s.Contention, "stale_acks": s.StaleAcks, "reconnects": s.Reconnects,
		"partitions": len(s.Assigned), "last_error": storable(s.LastError),
		"last_error_at": nilIfZero(s.LastErrorAt), "started_at": s.Started,
	}
}

// status sums up the members: their latest error, their earliest start.
func (g *reported) status() consumer.Status {
	sum := consumer.Status{Topics: []string{}, Started: time.Now()}
	if g.failure != nil {
		sum.LastError, sum.LastErrorAt = g.failure.Error(), g.failedAt
	}
	for _, runner := range g.runners {
		s := runner.Status()
		sum.Group, sum.Topics = s.Group, append(sum.Topics, s.Topics...)
		count(&sum, s)
		sum.Assigned = append(sum.Assigned, s.Assigned...)
		if s.LastErrorAt.After(sum.LastErrorAt) {
			sum.LastError, sum.LastErrorAt = s.LastError, s.LastErrorAt
		}
		if !s.Started.IsZero() && s.Started.Before(sum.Started) {
			sum.Started = s.Started
		}
	}
	slices.Sort(sum.Topics)
	sum.Topics = slices.Compact(sum.Topics)
	return sum
}

// count adds a member's counters.
func count(sum *consumer.Status, s consumer.Status) {
	sum.Consumed += s.Consumed
	sum.Duplicates += s.Duplicates
	sum.Filtered += s.Filtered
	sum.Retried += s.Retried
	sum.DeadLettered += s.DeadLettered
	sum.Discarded += s.Discarded
	sum.Transactions += s.Transactions
	sum.Fallbacks += s.Fallbacks
	sum.Contention += s.Contention
	sum.StaleAcks += s.StaleAcks
	sum.Reconnects += s.Reconnects
}

// state is the worst of the members.
func (g *reported) state(last bool) State {
	switch {
	case g.failure != nil:
		return Failed
	case last:
		return Stopped
	}
	worst := Stopped
	for _, runner := range g.runners {
		worst = min(worst, stateOf(runner.Status().State))
	}
	return worst
}

func stateOf(s consumer.State) State {
	switch s {
	case consumer.Stopped:
		return Stopped
	case consumer.Paused:
		return Paused
	case consumer.Waiting:
		return Waiting
	default:
		return Running
	}
}

// storable is text that PostgreSQL takes: an error may quote a payload's zero
// bytes or half a character.
func storable(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "�")
	if len(s) > maxLastError {
		s = strings.ToValidUTF8(s[:maxLastError], "")
	}
	return s
}

func nilIfZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// sweep removes replicas that have been silent for a day, stopped ones after an
// hour, and keeps their counters.
func (r *Reporter) sweep(ctx context.Context) error {
	if _, err := r.pool.Exec(ctx, sqlSweep, pgx.NamedArgs{"stopped": Stopped}); err != nil {
		return fmt.Errorf("remove old consumer status: %w", err)
	}
	return nil
}
