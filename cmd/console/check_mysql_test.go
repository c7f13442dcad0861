package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"oncemore/internal/check"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const checkMySQLConfig = `
environment: test
database: {url_file: %[1]q}
clusters:
  shop: {kafka: {brokers: [%[2]q]}}
  pay: {rabbit: {url_file: %[3]q, management_url_file: %[4]q}}
connections: {shop: {kind: mysql, url_file: %[5]q, retention: {archive: monthly}}}
redis: {cache: {url_file: %[6]q, prefix: %[7]q}}
consumers:
  - {group: good, cluster: shop, topics: [order.paid], connection: shop, filter: cache, event_id: {json: $.eventId}, effect: {sql: "insert into grants (order_id) values (:orderId)"}}
  - {group: bad, cluster: shop, topics: [order.paid], connection: shop, event_id: {json: $.eventId}, effect: {sql: "insert into nowhere values (:orderId)"}}
  - {group: queue, cluster: pay, queue: %[7]q, redelivery_horizon: 14d, connection: shop, event_id: {message_id: true}, strategy: unique_key, effect: {sql: "insert into notification_log values (:event_id, 'EMAIL')", unique_key: uk_event_channel}}
`

// findingsOf runs check and returns the severity of what it found, by code and subject.
func findingsOf(t *testing.T, file string, exit int) map[string]check.Severity {
	t.Helper()
	var all []check.Finding
	if err := json.Unmarshal([]byte(runs(t, exit, "check", "--json", "--config", file)), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]check.Severity{}
	for _, f := range all {
		found[f.Code+" "+f.Subject] = f.Severity
	}
	return found
}

// Check says of a MySQL connection what it says of a PostgreSQL one: what is
// missing first, and after migrate --target only the statement that is wrong.
func TestCheckOfAMySQLConnection(t *testing.T) {
	t.Parallel()
	shop, server := newMySQLShop(t), testkit.Rabbit(t)
	file := filepath.Join(t.TempDir(), "console.yaml")
	text := fmt.Sprintf(checkMySQLConfig, secretFile(t, pgtest.URL(t)), testkit.FakeKafkaAddr(t), secretFile(t, server.URL), secretFile(t, server.Management),
		secretFile(t, shop.url), secretFile(t, testkit.Redis(t)), testkit.Name("check"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := func(found map[string]check.Severity, severities map[string]check.Severity) {
		t.Helper()
		for what, severity := range severities {
			if got, ok := found[what]; !ok || got != severity {
				t.Errorf("%s is %v (found: %t), want %v", what, got, ok, severity)
			}
		}
	}
	want(findingsOf(t, file, 1), map[string]check.Severity{
		"connection.reach connection/shop": check.Passed, "consume_record.table connection/shop": check.Passed,
		"retention.keeper connection/shop": check.Critical, // no archive yet
		"consumer.statement consumer/good": check.Passed, "consumer.statement consumer/bad": check.Critical, "consumer.statement consumer/queue": check.Passed,
		"redis.reach redis/cache": check.Passed, "cluster.queues cluster/pay": check.Passed,
	})
	runs(t, 0, "migrate", "--config", file, "--target", "shop")
	want(findingsOf(t, file, 1), map[string]check.Severity{"retention.keeper connection/shop": check.Passed, "consumer.statement consumer/bad": check.Critical})
}
