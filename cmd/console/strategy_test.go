package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer/pgstore"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const strategyConfig = `
environment: test
database: {url_file: %[1]q}
clusters: {shop: {kafka: {brokers: [%[2]q]}}}
connections: {shop: {kind: postgres, url_file: %[3]q}}
groups:
  notify: {evidence: {connection: shop, table: notification_log, consumer_group: none, consumed_at: created_at, complete_since: 2026-01-01}}
consumers:
  - group: notify
    {{same}}
    strategy: unique_key
    effect: {sql: "insert into notification_log (event_id, member_id, channel) values (:event_id, :userId, 'EMAIL') on conflict (event_id, channel) do nothing"}
  - group: task
    {{same}}
    strategy: state
    effect: # its anomaly goes through a retry topic
      sql: update payment_task set status = 'PROCESSED' where order_id = :orderId and status = 'PENDING'
      verify: select status = 'PROCESSED' from payment_task where order_id = :orderId
  - group: grant
    {{same}}
    strategy: lock
    lock_keys: {user: ":userId"}
    effect: {sql: "insert into grants values (:userId, :orderId)", verify: "select exists (select from grants where order_id = :orderId)"}
  - group: points
    {{same}}
    strategy: version
    effect:
      sql: update user_points set points = points + 100, version = version + 1, last_order = :orderId where user_id = :userId and version = :version
      verify: select last_order = :orderId, version from user_points where user_id = :userId
`

const strategyTables = `
create table notification_log (id bigint generated always as identity primary key, event_id varchar(64) not null, member_id bigint not null,
	channel varchar(16) not null, created_at timestamptz not null default now(), unique (event_id, channel));
create table payment_task (order_id bigint primary key, status text not null);
create table grants (user_id bigint not null, order_id bigint not null);
create table user_points (user_id bigint primary key, points int not null, version int not null default 0, last_order bigint);
insert into payment_task values (1, 'PENDING'), (2, 'CANCELLED');
insert into user_points values (7, 0)`

// Each strategy from the config file: two deliveries, one effect, no consume
// record. The anomaly of one becomes a letter. Only declared evidence is evidence.
func TestStrategiesFromTheConfigFile(t *testing.T) {
	t.Parallel()
	addr, shopURL := testkit.FakeKafkaAddr(t), pgtest.Empty(t)
	topic := testkit.Topic(t, addr, "order.paid", 2)
	shop := pgtest.Open(t, shopURL)
	if _, err := shop.Exec(t.Context(), strategyTables); err != nil {
		t.Fatal(err)
	}
	same := fmt.Sprintf("cluster: shop\n    topics: [%s]\n    connection: shop\n    event_id: {json: $.eventId}\n    retry: {mode: non_blocking, attempts: 1, initial: 50ms, max: 50ms}", topic)
	conf, err := config.Parse("test.yaml", []byte(strings.ReplaceAll(fmt.Sprintf(strategyConfig,
		secretFile(t, pgtest.URL(t)), addr, secretFile(t, shopURL)), "{{same}}", same)))
	if err != nil {
		t.Fatal(err)
	}
	serveQuietly(t, conf)
	client := testkit.Client(t, addr)
	// Not 1 again after 2: a row that keeps only its last order no longer tells, and
	// version would rightly not call it a duplicate.
	for _, order := range []int{1, 1, 2} {
		value := fmt.Appendf(nil, `{"eventId":"payment-success-%d","orderId":%d,"userId":7}`, order, order)
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("7"), Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	is := func(sql string) func() bool {
		return func() bool {
			var ok bool
			return shop.QueryRow(t.Context(), "select "+sql).Scan(&ok) == nil && ok
		}
	}
	for _, sql := range []string{
		"(select count(*) = 2 from notification_log)", "(select count(*) = 1 from payment_task where status = 'PROCESSED')",
		"(select count(*) = 2 from grants)", "(select version = 2 and points = 200 from user_points)",
	} {
		testkit.Eventually(t, 30*time.Second, is(sql), "%s", sql)
	}
	letters := testkit.Client(t, addr, kgo.ConsumeTopics(topic+".DLT"))
	letter := letters.PollRecords(t.Context(), 1).Records()
	if len(letter) != 1 || !strings.Contains(string(letter[0].Value), "payment-success-2") {
		t.Fatalf("letters %v", letter)
	}
	waited := testkit.Client(t, addr, kgo.ConsumeTopics(topic+"-retry-50"))
	if r := waited.PollRecords(t.Context(), 1).Records(); len(r) != 1 || string(r[0].Value) != string(letter[0].Value) {
		t.Errorf("it did not go through the retry topic: %v", r)
	}
	if is("to_regclass('" + pgstore.Table + "') is not null")() {
		t.Error("a table of consume records was made")
	}
}

func TestOnlyKeptOrDeclaredEvidenceIsEvidence(t *testing.T) {
	t.Parallel()
	same := "cluster: shop\n    topics: [order.paid]\n    connection: shop\n    event_id: {json: $.eventId}"
	text := strings.ReplaceAll(fmt.Sprintf(strategyConfig, secretFile(t, pgtest.URL(t)), "127.0.0.1:1", secretFile(t, pgtest.Empty(t))), "{{same}}", same)
	text += "  - group: record\n    " + same + "\n    effect: {sql: select 1}\n"
	conf, err := config.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	a, err := openApp(t.Context(), conf, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	book, err := a.groupBook(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for group, table := range map[string]string{"notify": "notification_log", "task": "", "grant": "", "points": "", "record": pgstore.Table} {
		e := book.Find("shop", group).Evidence
		if (e == nil) != (table == "") || e != nil && e.Table != table {
			t.Errorf("%s: evidence %+v, want %q", group, e, table)
		}
		if e != nil && group == "notify" && e.ConsumerGroup != "" {
			t.Errorf("%s asks for a column %q that its table has not", group, e.ConsumerGroup)
		}
	}
}
