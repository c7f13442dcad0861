// Package redisfilter remembers consumed events in Redis, to spare the database
// the look-ups of duplicates. It is a consumer.Filter: a cache in front of a
// store, never a store.
//
// Redis holds only ids whose records are committed, and is told them after the
// commit. So a lost, evicted or expired key, FLUSHALL, and a Redis that is down
// cost speed: the database is asked, and its unique key decides. SET NX before
// the effect, as it is often seen, would take an event for consumed whose
// transaction then fails.
//
// Its limits, which the operator has to know:
//
//   - A hit is believed without asking the database. When the business database is
//     restored to an earlier point, or records are deleted so that events take
//     effect again, flush Redis or change the prefix first.
//   - One prefix belongs to one business database. Two of them, such as production
//     and its copy for tests, must not share keys.
//   - The time to live bounds memory and says nothing of correctness. About 150
//     bytes per event: a day of a million events is 150 MB.
package redisfilter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"oncemore/consumer"
)

// Options tune a Filter. The zero value is the default.
type Options struct {
	// TTL is how long an id is remembered, in whole seconds; 0 is 24 h.
	TTL time.Duration
	// Timeout bounds a look-up and a write, each one round trip for a batch; 0
	// is 50 ms. What takes longer is not worth it.
	Timeout time.Duration
	// CoolDown is how long Redis is left alone after a failure, doubling up to
	// 32 times that while it stays down; 0 is 1 s. Meanwhile the filter costs nothing.
	CoolDown time.Duration
	// Prefix of the keys; "" is mq:consume.
	Prefix string
	Logger *slog.Logger // nil: slog.Default()
}

func (o Options) withDefaults() Options {
	if o.TTL == 0 {
		o.TTL = 24 * time.Hour
	}
	o.TTL = max(o.TTL.Truncate(time.Second), time.Second)
	if o.Timeout == 0 {
		o.Timeout = 50 * time.Millisecond
	}
	if o.CoolDown == 0 {
		o.CoolDown = time.Second
	}
	if o.Prefix == "" {
		o.Prefix = "mq:consume"
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Filter is a consumer.Filter on one Redis, a Sentinel group or a cluster. It is
// safe for any number of consumers.
type Filter struct {
	o      Options
	client redis.UniversalClient
	up     atomic.Bool
	down   chan struct{} // told when up has become false
	end    context.CancelFunc
	ended  sync.WaitGroup
}

var _ consumer.Filter = (*Filter)(nil)

// Open makes a filter on the Redis at a URL: redis://user:password@host:port/db,
// rediss:// for TLS. It has no options: what decides how long a command may take
// is the filter's. Errors never hold the password.
func Open(address string, o Options) (*Filter, error) {
	r, err := readAddress(address)
	if err != nil {
		return nil, err
	}
	return New(redis.UniversalOptions{Addrs: []string{r.Addr}, DB: r.DB, Username: r.Username, Password: r.Password, TLSConfig: r.TLSConfig}, o), nil
}

func readAddress(address string) (*redis.Options, error) {
	r, err := redis.ParseURL(address)
	var parsing *url.Error
	switch {
	case errors.As(err, &parsing):
		return nil, errors.New("redisfilter: the address is no URL, or its password is not percent-encoded")
	case err != nil:
		return nil, fmt.Errorf("redisfilter: %w", err)
	case strings.Contains(address, "?"):
		return nil, errors.New("redisfilter: the address has to be redis://user:password@host:port/db, without options")
	}
	return r, nil
}

// Check asks the Redis at a URL whether it answers and takes keys of the prefix.
// A filter itself says no more than Up.
func Check(ctx context.Context, address, prefix string) error {
	r, err := readAddress(address)
	if err != nil {
		return err
	}
	r.MaxRetries, r.DialTimeout, r.ContextTimeoutEnabled = -1, probeTimeout, true
	r.DisableIdentity, r.MaintNotificationsConfig = true, &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(r)
	defer client.Close()
	if err := client.SetNX(ctx, prefix+":check", consumed, time.Second).Err(); err != nil {
		return fmt.Errorf("redisfilter: %w", err)
	}
	return nil
}

// New makes a filter. It connects in the background, and again after each
// failure; until then it knows nothing. Of r it overrides what decides how long
// a command may take. Close it when its consumers have stopped.
func New(r redis.UniversalOptions, o Options) *Filter {
	r.ContextTimeoutEnabled = true
	r.MaxRetries = -1
	r.DialerRetries = 1
	r.DialTimeout = probeTimeout
	r.PipelinePoolSize = -1
	r.DisableIdentity = true
	r.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	ctx, end := context.WithCancel(context.Background())
	f := &Filter{o: o.withDefaults(), client: redis.NewUniversalClient(&r), down: make(chan struct{}, 1), end: end}
	f.ended.Go(func() { f.watch(ctx) })
	return f
}

// Close ends the connections.
func (f *Filter) Close() error {
	f.end()
	err := f.client.Close()
	f.ended.Wait()
	return err
}

// Up reports whether Redis is being asked: it answered last time.
func (f *Filter) Up() bool { return f.up.Load() }

// errDown is returned while Redis is left alone.
var errDown = errors.New("redisfilter: redis is down")

// Seen looks up all ids in one round trip. GETs in a pipeline, where MGET would
// do, also work on a cluster.
func (f *Filter) Seen(ctx context.Context, group string, ids []string) ([]bool, error) {
	if !f.Up() {
		return nil, errDown
	}
	ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	answers, err := f.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range ids {
			p.Get(ctx, f.key(group, id))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		f.failed(err)
		return nil, fmt.Errorf("look up %d events of %s: %w", len(ids), group, err)
	}
	seen := make([]bool, len(ids))
	for i, answer := range answers {
		value, err := answer.(*redis.StringCmd).Result()
		seen[i] = err == nil && value == consumed
	}
	return seen, nil
}

// consumed is the value of every key.
const consumed = "1"

// Committed remembers the ids in one round trip. A key that is there keeps its
// time to live. Failing costs speed only, so nobody is told.
func (f *Filter) Committed(ctx context.Context, group string, ids []string) {
	if !f.Up() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	_, err := f.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range ids {
			p.SetNX(ctx, f.key(group, id), consumed, f.o.TTL)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		f.failed(fmt.Errorf("remember %d events of %s: %w", len(ids), group, err))
	}
}

// key is mq:consume:<group>:<event id>. A colon in the group is escaped: group a
// with id b:c and group a:b with id c are two events.
func (f *Filter) key(group, id string) string {
	return f.o.Prefix + ":" + escape.Replace(group) + ":" + id
}

var escape = strings.NewReplacer("%", "%25", ":", "%3A")
