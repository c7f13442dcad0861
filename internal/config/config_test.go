package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"oncemore/internal/config"
)

// full is a config that says everything this version can do.
const full = `environment: shop
listen: 127.0.0.1:9090
database: {url_env: CONSOLE_DATABASE_URL}
clusters:
  shop: {kafka: {brokers: [kafka-1:9092], tls: {server_name: kafka}, sasl: {mechanism: PLAIN, user_env: U, password_file: /run/p}}}
connections:
  shop: {kind: postgres, url_env: SHOP, writer_url_env: SHOP_WRITER}
sources:
  - {cluster: shop, pattern: "*.DLT", event_id: {header: event-id, json: $.eventId}}
groups:
  points: {evidence: {connection: shop, table: t, complete_since: 2026-09-01, retention: 90d}, effect: local, order: key, topics: [order.paid]}
  sms: {effect: external, idempotency_window: 1d12h}
consumers:
  - {group: points, cluster: shop, topics: [order.paid], connection: shop, event_id: {json: $.eventId}, effect: {sql: select 1}, retry: {attempts: 0, max: 90s}}
  - {group: sms, cluster: shop, topics: [order.paid], connection: shop, event_id: {json: $.eventId}, effect: {http: {base: api, path: /send, timeout: 2s, headers: {X-Order: ":orderId"}, body: {order: ":orderId", n: 1}}}}
urls: {api: "http://api.internal:8080/"}
approval: {replay_size: 5}
retention: {letters: 30d, consume_records: 90d}
secure: true
trusted_proxies: [10.0.0.0/8]
`

func TestParseReadsEveryKey(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("console.yaml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:9090" || c.Environment != "shop" || c.Approval.ReplaySize != 5 || !c.Web.Secure {
		t.Errorf("top level: %+v", c)
	}
	k := c.Cluster("shop").Kafka
	if k.Brokers[0] != "kafka-1:9092" || k.TLS.ServerName != "kafka" || k.SASL.Password.File != "/run/p" {
		t.Errorf("cluster: %+v", k)
	}
	if conn := c.Connection("shop"); conn.URL.Env != "SHOP" || conn.Writer.Env != "SHOP_WRITER" {
		t.Errorf("connection: %+v", conn)
	}
	e := c.Groups[0].Evidence
	if e.Retention != 90*24*time.Hour || e.EventID != "event_id" || !e.CompleteSince.Equal(time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("evidence: %+v", e)
	}
	if c.Groups[1].Window != 36*time.Hour {
		t.Errorf("window: %s", c.Groups[1].Window)
	}
	points, sms := c.Consumer("points"), c.Consumer("sms")
	if points.Retry.Attempts != 0 || points.Retry.Max != 90*time.Second || points.Retry.Initial != time.Second || points.Strategy != "consume_record" {
		t.Errorf("retry: %+v", points.Retry)
	}
	if body, ok := sms.HTTP.Body.(map[string]any); !ok || body["order"] != ":orderId" || body["n"] != 1 || sms.HTTP.Headers["X-Order"] != ":orderId" {
		t.Errorf("http body: %#v", sms.HTTP.Body)
	}
	if sms.HTTP.Method != "POST" || sms.HTTP.Timeout != 2*time.Second || c.URLs["api"] != "http://api.internal:8080" {
		t.Errorf("http: %+v", sms.HTTP)
	}
}

func TestStrategiesOfTheBusinessTables(t *testing.T) {
	t.Parallel()
	text := strings.Replace(full, "effect: {sql: select 1}", "strategy: lock, lock_keys: {user: \":userId\", account: [\":from\", \":to\"]}, effect: {sql: select 1, verify: select 2}", 1)
	text = strings.Replace(text, "table: t,", "table: notification_log, consumer_group: none, consumed_at: created_at,", 1)
	text = strings.Replace(text, "max: 90s", "max: 90s, only: [a, b], exclude: [c]", 1)
	c, err := config.Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got := c.Consumers[0]
	if got.Strategy != "lock" || got.Verify != "select 2" || len(got.LockKeys) != 2 || strings.Join(got.LockKeys["account"], " ") != ":from :to" || got.LockKeys["user"][0] != ":userId" {
		t.Errorf("%+v", got)
	}
	if len(got.Retry.Only) != 2 || got.Retry.Exclude[0] != "c" {
		t.Errorf("%+v", got.Retry)
	}
	if e := c.Groups[0].Evidence; e.ConsumerGroup != "" || e.ConsumedAt != "created_at" || e.EventID != "event_id" {
		t.Errorf("%+v", e)
	}
}

func TestMembershipOfAConsumer(t *testing.T) {
	t.Parallel()
	with := func(keys string) string {
		return strings.Replace(full, "effect: {sql: select 1}", keys+", effect: {sql: select 1}", 1)
	}
	c, err := config.Parse("c.yaml", []byte(with("session_timeout: 45s, rebalance_timeout: 1m")))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Consumers[0]; got.SessionTimeout != 45*time.Second || got.RebalanceTimeout != time.Minute {
		t.Errorf("session %s, rebalance %s", got.SessionTimeout, got.RebalanceTimeout)
	}
	for _, keys := range []string{"session_timeout: 1s", "rebalance_timeout: 31m", "session_timeout: soon"} {
		if _, err := config.Parse("c.yaml", []byte(with(keys))); err == nil || !strings.Contains(err.Error(), strings.Split(keys, ":")[0]) {
			t.Errorf("%s: %v", keys, err)
		}
	}
}

func TestWriterDefaultsToTheOneAddress(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(strings.Replace(full, ", writer_url_env: SHOP_WRITER", "", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Connection("shop").Writer.Env; got != "SHOP" {
		t.Errorf("writer %q", got)
	}
}

// replace is one mistake in the full config, and what has to be said about it.
var mistakes = map[string]struct{ old, new, want string }{
	"unknown key":          {"environment: shop", "enviroment: shop", `c.yaml:1: enviroment: unknown key: is environment meant?`},
	"unknown deep key":     {"order: key", "ordering: key", `c.yaml:11: groups.points.ordering: unknown key`},
	"missing key":          {"environment: shop\n", "", `environment: is missing`},
	"missing deep key":     {"connection: shop, table: t,", "connection: shop,", `c.yaml:11: groups.points.evidence.table: is missing`},
	"wrong type":           {"replay_size: 5", "replay_size: many", `c.yaml:17: approval.replay_size: has to be a whole number, not "many"`},
	"text for a list":      {"trusted_proxies: [10.0.0.0/8]", "trusted_proxies: 10.0.0.0/8", `trusted_proxies: has to be a list, not "10.0.0.0/8"`},
	"list for a mapping":   {"urls: {api: \"http://api.internal:8080/\"}", "urls: [api]", `urls: has to be a mapping, not a list`},
	"twice":                {"secure: true", "secure: true\nsecure: false", `secure: is given twice`},
	"a column twice":       {"{connection: shop, table: t", "{event_id: id, consumed_at: id, connection: shop, table: t", `c.yaml:11: groups.points.evidence: event_id, consumer_group and consumed_at are columns of their own`},
	"a second document":    {"secure: true", "---\nsecure: true", `a second document begins here`},
	"bad duration":         {"letters: 30d", "letters: 30 days", `retention.letters: has to be a duration such as 10s, 24h or 90d, not "30 days"`},
	"negative duration":    {"letters: 30d", "letters: -3h", `retention.letters: has to be a duration`},
	"bad date":             {"2026-09-01", "yesterday", `groups.points.evidence.complete_since: has to be a date`},
	"secret in the file":   {"{url_env: CONSOLE_DATABASE_URL}", "{url: postgres://x}", `database.url: secrets are not written here`},
	"two secrets":          {"{url_env: CONSOLE_DATABASE_URL}", "{url_env: A, url_file: b}", `give url_env or url_file, not both`},
	"no secret":            {"{url_env: CONSOLE_DATABASE_URL}", "{}", `c.yaml:3: database: needs url_env or url_file`},
	"no such cluster":      {"group: points, cluster: shop", "group: points, cluster: shpo", `c.yaml:14: consumers[0]: there is no cluster "shpo"`},
	"no such connection":   {"{connection: shop, table: t", "{connection: ledger, table: t", `there is no connection "ledger"`},
	"two effects":          {"effect: {sql: select 1}", "effect: {sql: select 1, http: {base: api}}", `consumers[0].effect: has to have either sql or http`},
	"no effect":            {"effect: {sql: select 1}", "effect: {}", `consumers[0].effect: has to have either sql or http`},
	"long timeout":         {"timeout: 2s", "timeout: 11s", `consumers[1].effect.http.timeout: has to be more than 0 and at most 10s`},
	"unknown base":         {"base: api", "base: ap", `effect.http.base: there is no "ap" under urls`},
	"same group twice":     {"group: sms, cluster", "group: points, cluster", `group points stands at line 14 as well`},
	"max below initial":    {"attempts: 0, max: 90s", "initial: 5s, max: 1s", `consumers[0].retry: max (1s) is less than initial (5s)`},
	"call without record":  {"cluster: shop, topics: [order.paid], connection: shop, event_id: {json: $.eventId}, effect: {http", "strategy: state, cluster: shop, topics: [order.paid], connection: shop, event_id: {json: $.eventId}, effect: {http", `c.yaml:15: consumers[1]: strategy state is for effect.sql`},
	"state without verify": {"effect: {sql: select 1}", "strategy: state, effect: {sql: select 1}", `c.yaml:14: consumers[0]: strategy state needs effect.verify`},
	"verify without state": {"effect: {sql: select 1}", "strategy: unique_key, effect: {sql: select 1, verify: select 2}", `effect.verify is for the strategies state, lock and version`},
	"lock without keys":    {"effect: {sql: select 1}", "strategy: lock, effect: {sql: select 1, verify: select 2}", `c.yaml:14: consumers[0]: strategy lock needs lock_keys`},
	"no keys":              {"effect: {sql: select 1}", "lock_keys: {}, effect: {sql: select 1}", `consumers[0].lock_keys: names nothing to lock`},
	"empty exclude":        {"max: 90s", "max: 90s, exclude: []", `consumers[0].retry.exclude: is an empty list`},
	"bad strategy":         {"effect: {sql: select 1}", "strategy: hope, effect: {sql: select 1}", `strategy: has to be one of consume_record`},
	"window without need":  {"effect: external, idempotency_window", "effect: local, idempotency_window", `idempotency_window is only for effect: external`},
	"password in base url": {"http://api.internal:8080/", "http://u:p@api.internal:8080/", `urls.api: has to be a base address`},
	"bad listen":           {"listen: 127.0.0.1:9090", "listen: here", `c.yaml:2: listen: has to be host:port`},
	"empty event id":       {"event_id: {json: $.eventId}, effect: {sql", "event_id: {}, effect: {sql", `consumers[0].event_id: needs header, json or`},
	"queue on Kafka":       {"group: points, cluster: shop, topics: [order.paid]", "group: points, cluster: shop, queue: order.paid", `queue is for RabbitMQ, and cluster shop is Kafka`},
	"horizon on Kafka":     {"group: points, cluster: shop,", "group: points, cluster: shop, redelivery_horizon: 14d,", `redelivery_horizon is for RabbitMQ`},
	"no horizon":           {"group: points, cluster: shop,", "group: points, cluster: shop, redelivery_horizon: 0s,", `consumers[0].redelivery_horizon: has to be more than 0`},
	"queue and topics":     {"group: points, cluster: shop,", "group: points, cluster: shop, queue: q,", `consumers[0]: has to have either topics, of Kafka, or queue, of RabbitMQ`},
	"property on Kafka":    {"event_id: {json: $.eventId}, effect: {sql", "event_id: {message_id: true}, effect: {sql", `event_id.message_id is for RabbitMQ`},
	"no broker kind":       {"shop: {kafka:", "shop: {kafca:", `clusters.shop.kafca: unknown key: is kafka meant?`},
	"null":                 {"environment: shop", "environment:", `environment: has to be text, not nothing`},
	"merge key":            {"secure: true", "<<: {secure: true}", `<<: unknown key`},
}

func TestParseNamesFileLineAndKey(t *testing.T) {
	t.Parallel()
	for name, m := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(full, m.old) {
				t.Fatalf("the test's own text lacks %q", m.old)
			}
			_, err := config.Parse("c.yaml", []byte(strings.Replace(full, m.old, m.new, 1)))
			if err == nil || !strings.Contains(err.Error(), m.want) {
				t.Errorf("error %v\nwant   %s", err, m.want)
			}
		})
	}
}

func TestParseReportsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := config.Parse("c.yaml", []byte("environmnt: a\nlisten: 3\n"))
	if err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("want four lines: %v", err)
	}
}

func TestParseSurvivesAnyBytes(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "\x00", "[", "- a", "a: *x", "&a a: *a", "null", "42", "{}", strings.Repeat("[", 2000)} {
		if _, err := config.Parse("c.yaml", []byte(in)); err == nil {
			t.Errorf("%.20q is accepted", in)
		}
	}
}

func TestConsumerOfAQueue(t *testing.T) {
	t.Parallel()
	const text = `
environment: shop
database: {url_env: CONSOLE_DATABASE_URL}
clusters: {pay: {rabbit: {url_env: RABBIT_URL}}}
connections: {shop: {kind: postgres, url_env: SHOP_DATABASE_URL}}
consumers:
  - {group: points, cluster: pay, queue: "order paid/points", redelivery_horizon: 14d, connection: shop, event_id: {message_id: true}, effect: {sql: select 1}, retry: {mode: non_blocking}}
`
	c, err := config.Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Consumers[0]; got.Queue != "order paid/points" || got.Horizon != 14*24*time.Hour || !got.EventID.MessageID || got.Retry.Mode != "non_blocking" {
		t.Errorf("%+v", got)
	}
	_, err = config.Parse("c.yaml", []byte(strings.Replace(text, `queue: "order paid/points", redelivery_horizon: 14d`, "topics: [order.paid]", 1)))
	if err == nil || !strings.Contains(err.Error(), "topics are for Kafka, and cluster pay is RabbitMQ") {
		t.Errorf("topics on RabbitMQ: %v", err)
	}
}

func TestSecretValueNamesWhatIsMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, err := (config.Secret{File: file}).Value(); err != nil || v != "s3cret" {
		t.Errorf("from file: %q, %v", v, err)
	}
	t.Setenv("ONCEMORE_TEST_SECRET", "x")
	if v, err := (config.Secret{Env: "ONCEMORE_TEST_SECRET"}).Value(); err != nil || v != "x" {
		t.Errorf("from environment: %q, %v", v, err)
	}
	_, err := config.Secret{Pos: config.Pos{File: "c.yaml", Line: 3, Key: "database.url_env"}, Env: "ONCEMORE_NOT_SET"}.Value()
	if err == nil || !strings.Contains(err.Error(), "c.yaml:3: database.url_env: the environment variable ONCEMORE_NOT_SET is not set") {
		t.Errorf("missing: %v", err)
	}
}
