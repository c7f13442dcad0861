package config_test

import (
	"strings"
	"testing"
	"time"

	"oncemore/internal/config"
)

const outboxHead = `environment: shop
database: {url_env: CONSOLE_DATABASE_URL}
clusters: {shop: {kafka: {brokers: [kafka-1:9092]}}}
connections: {shop: {kind: postgres, url_env: SHOP}}
outbox:
`

func TestOutbox(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("console.yaml", []byte(outboxHead+`  - {connection: shop, cluster: shop}
  - {connection: shop, cluster: shop, table: outbox_mail, attempts: 3, keep: 1d, writer_url_env: MAIL}
`))
	if err != nil {
		t.Fatal(err)
	}
	if o := c.Outbox[0]; o.Table != "outbox_message" || o.Attempts != 10 || o.Keep != 72*time.Hour || o.Writer.Set() {
		t.Errorf("defaults: %+v", o)
	}
	if o := c.Outbox[1]; o.Table != "outbox_mail" || o.Attempts != 3 || o.Keep != 24*time.Hour || o.Writer.Env != "MAIL" {
		t.Errorf("all keys: %+v", o)
	}
}

func TestOutboxRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"  - {connection: nowhere, cluster: shop}\n":                                     `no connection "nowhere"`,
		"  - {connection: shop, cluster: nowhere}\n":                                     `no cluster "nowhere"`,
		"  - {connection: shop, cluster: shop, table: \"a.b\"}\n":                        "lower-case letters",
		"  - {connection: shop, cluster: shop, attempts: 0}\n":                           "attempts",
		"  - {connection: shop, cluster: shop}\n  - {connection: shop, cluster: shop}\n": "stands at line 6 as well",
		"  - {connection: shop}\n":                                                       "cluster",
	} {
		_, err := config.Parse("console.yaml", []byte(outboxHead+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
