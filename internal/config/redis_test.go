package config_test

import (
	"strings"
	"testing"
	"time"

	"oncemore/internal/config"
)

const withRedis = `environment: shop
database: {url_env: CONSOLE_DATABASE_URL}
clusters: {shop: {kafka: {brokers: [kafka-1:9092]}}}
connections:
  shop: {kind: postgres, url_env: SHOP}
  ledger: {kind: mysql, url_env: LEDGER}
redis:
  cache: {url_env: REDIS_URL, ttl: 12h, timeout: 20ms, prefix: shop:consume}
consumers:
  - {group: points, cluster: shop, topics: [order.paid], connection: shop, filter: cache, event_id: {json: $.eventId}, effect: {sql: select 1}}
  - {group: ledger, cluster: shop, topics: [order.paid], connection: ledger, strategy: unique_key, event_id: {json: $.eventId}, effect: {sql: insert into t values (1), unique_key: PRIMARY}}
`

func TestRedisOfAConsumer(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(withRedis))
	if err != nil {
		t.Fatal(err)
	}
	r := c.RedisOf(c.Consumer("points").Filter)
	if r == nil || r.URL.Env != "REDIS_URL" || r.TTL != 12*time.Hour || r.Timeout != 20*time.Millisecond || r.Prefix != "shop:consume" {
		t.Errorf("%+v", r)
	}
	if l := c.Consumer("ledger"); l.Filter != "" || l.UniqueKey != "PRIMARY" {
		t.Errorf("%+v", l)
	}
	if c, err = config.Parse("c.yaml", []byte(strings.Replace(withRedis, ", ttl: 12h, timeout: 20ms, prefix: shop:consume", "", 1))); err != nil {
		t.Fatal(err)
	}
	if r := c.RedisOf("cache"); r.TTL != 24*time.Hour || r.Timeout != 50*time.Millisecond || r.Prefix != "mq:consume" {
		t.Errorf("defaults: %+v", r)
	}
}

func TestRedisAndKeyMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct{ old, new, want string }{
		"no such redis":        {"filter: cache", "filter: cash", `c.yaml:10: consumers[0]: filter: there is no "cash" under redis`},
		"short ttl":            {"ttl: 12h", "ttl: 10ms", "c.yaml:8: redis.cache.ttl: has to be at least 1s"},
		"long timeout":         {"timeout: 20ms", "timeout: 1m", "redis.cache.timeout: has to be more than 0"},
		"prefix with a space":  {"shop:consume", `"shop consume"`, "redis.cache.prefix: has to be"},
		"no address":           {"url_env: REDIS_URL, ", "", "redis.cache: needs url_env or url_file"},
		"one cache of two":     {"connection: ledger,", "connection: ledger, filter: cache,", "filter cache has the keys of consumer points, which is on another connection"},
		"key in postgres":      {"connection: shop, filter: cache, event_id: {json: $.eventId}, effect: {sql: select 1}", "connection: shop, strategy: unique_key, event_id: {json: $.eventId}, effect: {sql: select 1, unique_key: k}", "effect.unique_key is for MySQL"},
		"key not named":        {", unique_key: PRIMARY", "", "strategy unique_key needs effect.unique_key"},
		"key of another":       {"strategy: unique_key,", "", "effect.unique_key is for strategy unique_key"},
		"address of the wrong": {"url_env: REDIS_URL", "url: redis://x", "secrets are not written here"},
	} {
		if !strings.Contains(withRedis, m.old) {
			t.Fatalf("%s: no %q in the file", name, m.old)
		}
		_, err := config.Parse("c.yaml", []byte(strings.Replace(withRedis, m.old, m.new, 1)))
		if err == nil || !strings.Contains(err.Error(), m.want) {
			t.Errorf("%s: %v, want %q", name, err, m.want)
		}
	}
}
