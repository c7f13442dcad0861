package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/pgstore"
	"oncemore/internal/config"
	"oncemore/internal/fleet"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const redisConfig = `
environment: test
database: {url_file: %[1]q}
clusters: {shop: {kafka: {brokers: [%[2]q]}}}
connections: {shop: {kind: postgres, url_file: %[3]q}}
redis: {cache: {url_file: %[4]q, prefix: %[5]q, timeout: 5s}}
consumers:
  - {group: points, cluster: shop, topics: [%[6]s], connection: shop, filter: cache, event_id: {json: $.eventId}, effect: {sql: "insert into granted values (:eventId)"}}
`

// Duplicates that Redis knows are told from those that the database has to
// recognise: after the first delivery, and after Redis has forgotten it.
func TestRedisFilterFromTheConfigFile(t *testing.T) {
	t.Parallel()
	addr, shopURL, redisURL, prefix := testkit.FakeKafkaAddr(t), pgtest.Empty(t), testkit.Redis(t), testkit.Name("test")
	topic := testkit.Topic(t, addr, "order.paid", 1)
	shop := pgtest.Open(t, shopURL)
	if err := pgstore.Migrate(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	if _, err := shop.Exec(t.Context(), `create table granted (event_id text)`); err != nil {
		t.Fatal(err)
	}
	conf, err := config.Parse("test.yaml", fmt.Appendf(nil, redisConfig, secretFile(t, pgtest.URL(t)), addr, secretFile(t, shopURL),
		secretFile(t, redisURL), prefix, topic))
	if err != nil {
		t.Fatal(err)
	}
	a, err := openApp(t.Context(), conf, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.serve(ctx, roles{Consume: true}, nil, extras{}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
		a.close()
	})
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	cache := redis.NewClient(options)
	t.Cleanup(func() { cache.Close() })
	key := prefix + ":points:ev-1"
	client := testkit.Client(t, addr)
	deliver := func() {
		t.Helper()
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(`{"eventId":"ev-1"}`)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	counts := func(consumed, duplicates, filtered int64) {
		t.Helper()
		var g fleet.Group
		testkit.Eventually(t, time.Minute, func() bool {
			g, err = a.fleet.Group(t.Context(), "points")
			return err == nil && g.Consumed != nil && *g.Consumed == consumed && *g.Duplicates == duplicates
		}, "%d consumed, %d duplicates", consumed, duplicates)
		if *g.Filtered != filtered {
			t.Errorf("%d duplicates known by Redis of %d, want %d", *g.Filtered, duplicates, filtered)
		}
	}

	filter, err := a.filters.of(conf.Redis[0])
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, filter.(interface{ Up() bool }).Up, "the filter is connected")
	deliver()
	counts(1, 0, 0)
	testkit.Eventually(t, time.Minute, func() bool { return cache.Exists(t.Context(), key).Val() == 1 }, "the committed id is remembered")
	deliver()
	counts(1, 1, 1)
	if err := cache.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	deliver()
	counts(1, 2, 1)
}
