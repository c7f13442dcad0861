package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/mysqlstore"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const soakMySQLConfig = `
environment: soak
database: {url_file: %[1]q}
clusters: {c: {kafka: {brokers: [%[2]q]}}}
connections: {shop: {kind: mysql, url_file: %[3]q}}
redis: {cache: {url_file: %[4]q, prefix: %[6]q}}
consumers:
  - group: %[6]s
    cluster: c
    topics: [%[5]q]
    connection: shop
    filter: cache
    event_id: {header: event-id}
    effect: {sql: "insert into user_points (order_id, points) values (:orderId, :points) on duplicate key update points = points + :points"}
    retry: {attempts: 2, initial: 100ms, multiplier: 1, max: 100ms}
    concurrency: 2
`

// mysqlSoak is a fleet on MariaDB with a Redis filter.
type mysqlSoak struct {
	*soak
	db    *sql.DB
	cache *redis.Client
}

// TestSoakMariaDBAndRedis flushes and stops Redis, stops MariaDB and kills
// processes while orders flow, most of them twice, and then counts: every effect
// once, no letter, and duplicates that Redis knew.
func TestSoakMariaDBAndRedis(t *testing.T) {
	testkit.Soak(t)
	s := setupMySQLSoak(t)
	s.fleet = append(s.fleet, s.process(), s.process())
	ctx, stop := context.WithTimeout(t.Context(), soakTime(t))
	defer stop()
	fire := make(chan struct{})
	go func() { defer close(fire); s.underFire(ctx) }()
	s.orders(ctx)
	<-fire
	s.settles()
	s.wantEffects()
}

func setupMySQLSoak(t *testing.T) *mysqlSoak {
	t.Helper()
	kafka, cfg, cacheURL := testkit.Kafka(t), testkit.MySQL(t), testkit.Redis(t)
	s := &mysqlSoak{soak: &soak{T: t, topic: testkit.Topic(t, kafka, "soak", soakPartitions), group: testkit.Name("soak")}}
	var err error
	if s.db, err = mysqlstore.OpenPool(cfg, mysqlstore.PoolOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.db.Close() })
	for _, text := range []string{mysqlstore.DDL, "create table user_points (order_id varchar(20) primary key, points bigint not null)"} {
		if _, err := s.db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	options, err := redis.ParseURL(cacheURL)
	if err != nil {
		t.Fatal(err)
	}
	s.cache = redis.NewClient(options)
	t.Cleanup(func() { s.cache.Close() })
	shopURL := (&url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: cfg.DBName}).String()
	text := fmt.Sprintf(soakMySQLConfig, secretFile(t, pgtest.URL(t)), kafka, secretFile(t, shopURL), secretFile(t, cacheURL), s.topic, s.group)
	s.file = filepath.Join(t.TempDir(), "console.yaml")
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.conf, err = config.Load(s.file); err != nil {
		t.Fatal(err)
	}
	s.client = testkit.Client(t, kafka, kgo.RecordDeliveryTimeout(2*time.Minute))
	if s.log, err = os.CreateTemp("", "oncemore-soak-*.log"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.keepLog)
	return s
}

// orders flow until ctx ends; each comes again later, when it was committed.
func (s *mysqlSoak) orders(ctx context.Context) {
	tick := time.NewTicker(soakRate)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.sent++
		s.deliver(s.sent)
		if again := s.sent - 200; again > 0 {
			s.deliver(again)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	if err := s.client.Flush(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func (s *mysqlSoak) deliver(n int) {
	id := strconv.Itoa(n)
	r := &kgo.Record{Topic: s.topic, Key: []byte(id), Value: fmt.Appendf(nil, `{"orderId":%q,"points":100}`, id),
		Headers: []kgo.RecordHeader{{Key: "event-id", Value: []byte("soak-" + id)}}}
	s.client.Produce(s.Context(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			s.Errorf("order %s was not taken: %v", id, err)
		}
	})
}

// underFire does something bad every few seconds until ctx ends.
func (s *mysqlSoak) underFire(ctx context.Context) {
	bad := []func(){s.flush, s.outage("REDIS"), s.outage("MYSQL"), func() { s.endOne(os.Kill) }}
	tick := time.NewTicker(6 * time.Second)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bad[n%len(bad)]()
	}
}

func (s *mysqlSoak) flush() {
	if err := s.cache.FlushAll(s.Context()).Err(); err != nil {
		s.Errorf("flush: %v", err)
	}
}

func (s *mysqlSoak) wantEffects() {
	s.Helper()
	var records, orders, most int
	const count = "select (select count(*) from mq_consume_record), count(*), coalesce(max(points), 0) from user_points"
	if err := s.db.QueryRowContext(s.Context(), count).Scan(&records, &orders, &most); err != nil {
		s.Fatal(err)
	}
	if records != s.sent || orders != s.sent || most != 100 {
		s.Errorf("%d records, %d orders with points, at most %d points; want %d, %d, 100", records, orders, most, s.sent, s.sent)
	}
	a, err := openApp(s.Context(), s.conf, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Fatal(err)
	}
	defer a.close()
	g, err := a.fleet.Group(s.Context(), s.group)
	if err != nil {
		s.Fatal(err)
	}
	if g.Filtered == nil || *g.Filtered == 0 || *g.Filtered >= *g.Duplicates || *g.DeadLettered != 0 {
		s.Errorf("of the duplicates Redis knew %v: %+v", g.Filtered, g)
	}
	s.Logf("%d orders: %d records, %d effects, %d duplicates, of which Redis knew %d", s.sent, records, orders, *g.Duplicates, *g.Filtered)
}
