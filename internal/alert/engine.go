package alert

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// Queue is River's queue of deliveries.
const Queue = "alerts"

const (
	engineLock = 7_113_204_117 // one process at a time looks
	lookTime   = 15 * time.Second
	keepFor    = 90 * 24 * time.Hour // of alerts that are over, and of deliveries
)

// Options say who is told what, and when.
type Options struct {
	Rules    []Rule
	Channels []Channel

	Environment string // begins every message
	ConsoleURL  string // base of links; "": messages carry paths alone

	Every    time.Duration // between looks; default 15 s
	Throttle time.Duration // at most one message per channel within this; what comes meanwhile is grouped; default 5 min
	Repeat   time.Duration // after which an alert that nobody acknowledged is told again; default 4 h

	// Words gives the catalog's text in a language (en, zh-Hans).
	Words func(language, key string, args map[string]any) string
	// Retry is how long to wait before the next try; nil: 5 s doubled up to 10 min.
	Retry func(tries int) time.Duration

	Clock func() time.Time
	Log   *slog.Logger
}

// Engine looks, remembers and tells.
type Engine struct {
	pool *pgxpool.Pool
	opts Options
	jobs *river.Client[pgx.Tx] // inserts only
}

// New makes an engine on the console's database. Errors: a channel that is not
// complete.
func New(pool *pgxpool.Pool, o Options) (*Engine, error) {
	o.defaults()
	for _, c := range o.Channels {
		if err := c.check(); err != nil {
			return nil, err
		}
	}
	jobs, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: o.Log})
	if err != nil {
		return nil, fmt.Errorf("alert: %w", err)
	}
	return &Engine{pool: pool, opts: o, jobs: jobs}, nil
}

func (o *Options) defaults() {
	for d, value := range map[*time.Duration]time.Duration{&o.Every: 15 * time.Second, &o.Throttle: 5 * time.Minute, &o.Repeat: 4 * time.Hour} {
		if *d == 0 {
			*d = value
		}
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Retry == nil {
		o.Retry = func(tries int) time.Duration { return min(5*time.Second<<min(tries, 7), 10*time.Minute) }
	}
}

// Rules lists the rules that look, in the order of the config.
func (e *Engine) Rules() []Rule { return e.opts.Rules }

// Channels lists who is told. Their secrets stay inside.
func (e *Engine) Channels() []Channel { return e.opts.Channels }

// Run looks until ctx ends. Of several processes one does.
func (e *Engine) Run(ctx context.Context) error {
	failing := false
	for ctx.Err() == nil {
		err := e.runWhileLocked(ctx)
		if err != nil && !failing && ctx.Err() == nil { // once per outage
			e.opts.Log.WarnContext(ctx, "alerts not looked for", "error", err)
		}
		failing = err != nil
		pause(ctx, e.opts.Every)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// runWhileLocked looks as long as this process holds the lock, which ends with
// the connection.
func (e *Engine) runWhileLocked(ctx context.Context) error {
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to look: %w", err)
	}
	defer conn.Release()
	var mine bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", engineLock).Scan(&mine); err != nil || !mine {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", engineLock); err != nil {
			_ = conn.Conn().Close(ctx) // the lock goes with the connection
		}
	}()
	for ctx.Err() == nil {
		if err := conn.Ping(ctx); err != nil {
			return fmt.Errorf("hold the lock: %w", err)
		}
		if err := e.Tick(ctx); err != nil {
			return err
		}
		pause(ctx, e.opts.Every)
	}
	return nil
}

// Tick lets every rule look once and decides who is told. Two at a time, in one
// process or several, tell nothing twice.
func (e *Engine) Tick(ctx context.Context) error {
	now := e.opts.Clock()
	for _, rule := range e.opts.Rules {
		looking, cancel := context.WithTimeout(ctx, lookTime)
		found, err := rule.Look(looking)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := e.remember(ctx, rule, found, err, now); err != nil {
			return err
		}
	}
	if err := e.endOfOthers(ctx, now); err != nil {
		return err
	}
	for _, c := range e.opts.Channels {
		if err := e.tell(ctx, c, now); err != nil {
			return err
		}
	}
	return e.forget(ctx, now)
}
