package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/pgstore"
	"oncemore/internal/check"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const archiveConfig = `
environment: test
database: {url_file: %[1]q}
clusters: {shop: {kafka: {brokers: [%[2]q]}}}
connections: {shop: {kind: %[5]s, url_file: %[3]q, retention: {consume_records: computed, archive: monthly, hot: 30d}}}
consumers:
  - {group: points, cluster: shop, topics: [%[4]s], connection: shop, event_id: {json: $.eventId}, effect: {sql: "insert into granted values (:eventId)"}}
`

// A table with data is converted by migrate --target, then everything comes again
// from the first offset: only what is new has an effect.
func TestArchiveFromTheConfigFile(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		shop := newPostgresShop(t)
		shop.exec(`INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at)
			SELECT 'ev-' || i, 'points', now() - make_interval(days => i) FROM generate_series(1, 60) i`)
		runArchive(t, shop)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		shop := newMySQLShop(t)
		for i := 1; i <= 60; i++ {
			shop.exec(fmt.Sprintf(`INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES ('ev-%[1]d', 'points', UTC_TIMESTAMP() - INTERVAL %[1]d DAY)`, i))
		}
		runArchive(t, shop)
	})
}

func runArchive(t *testing.T, shop matrixShop) {
	addr := testkit.FakeKafkaAddr(t)
	topic := testkit.Topic(t, addr, "order.paid", 2)
	shop.exec("create table granted (event_id varchar(64))")
	file := filepath.Join(t.TempDir(), "console.yaml")
	text := fmt.Sprintf(archiveConfig, secretFile(t, pgtest.URL(t)), addr, secretFile(t, shop.url), topic, shop.kind)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := runs(t, 0, "migrate", "--config", file, "--target", "shop"); !strings.Contains(out, "mq_consume_record_archive is in shop, 31 records were moved") {
		t.Errorf("migrate: %s", out)
	}
	if out := runs(t, 0, "migrate", "--config", file, "--target", "shop"); !strings.Contains(out, "0 records were moved") {
		t.Errorf("a second migrate: %s", out)
	}
	conf, err := config.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	client := testkit.Client(t, addr)
	for i := 1; i <= 61; i++ {
		value := fmt.Appendf(nil, `{"eventId":"ev-%d"}`, i)
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	serveQuietly(t, conf)
	testkit.Eventually(t, time.Minute, func() bool { return shop.number("select count(*) from granted") > 0 }, "the new event has its effect")
	testkit.Eventually(t, time.Minute, func() bool { return committedOffsets(t, client, "points") == 61 }, "all is acknowledged")
	if shop.number("select count(*) from granted") != 1 || shop.number("select count(*) from granted where event_id = 'ev-61'") != 1 {
		t.Error("an event that was consumed before has taken effect again")
	}
}

func committedOffsets(t *testing.T, client *kgo.Client, group string) (n int64) {
	t.Helper()
	offsets, err := kadm.NewClient(client).FetchOffsets(t.Context(), group)
	if err != nil {
		return -1
	}
	offsets.Each(func(o kadm.OffsetResponse) { n += max(o.At, 0) })
	return n
}

func TestWhatIsKeptIsNeverLessThanNeeded(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	known := check.Need{Group: "g", For: 55 * day, Known: true}
	endless := check.Need{Group: "g", For: check.Endless, Known: true}
	for name, c := range map[string]struct {
		records config.Records
		need    check.Need
		want    time.Duration
	}{
		"computed":          {config.Records{}, known, 55 * day},
		"longer":            {config.Records{Keep: 90 * day}, known, 90 * day},
		"too short":         {config.Records{Keep: 54 * day}, known, pgstore.Forever},
		"keep":              {config.Records{Forever: true}, known, pgstore.Forever},
		"endless":           {config.Records{}, endless, pgstore.Forever},
		"endless, but 90 d": {config.Records{Keep: 90 * day}, endless, pgstore.Forever},
		"not known":         {config.Records{}, check.Need{Group: "g"}, pgstore.Forever},
		"not known, 90 d":   {config.Records{Keep: 90 * day}, check.Need{Group: "g"}, pgstore.Forever},
	} {
		if got, why := decideKeep(c.records, c.need); got != c.want || why == "" {
			t.Errorf("%s: %s because %q, want %s", name, got, why, c.want)
		}
	}
}
