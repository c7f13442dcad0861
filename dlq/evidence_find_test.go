package dlq

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// A column that holds something else than groups, and a name that no row has, make
// every event look as if it had no record.
func TestStrangersInTheGroupColumn(t *testing.T) {
	t.Parallel()
	pool, db := shop(t), mariaShop(t)
	for kind, e := range map[string]Evidence{"postgres": {Pool: pool}, "mysql": {MySQL: db}} {
		e.Table, e.EventID, e.ConsumerGroup = "mq_consume_record", "event_id", "consumer_group"
		swapped, misspelt := e, e
		swapped.EventID, swapped.ConsumerGroup, misspelt.GroupValue = "consumer_group", "event_id", "point"
		if got := swapped.Strangers(t.Context(), "points"); got != nil {
			t.Errorf("%s, empty: %v", kind, got)
		}
		const records = "INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES ('e-0', 'points', now()), ('e-1', 'stock', now()), ('e-2', 'points', now()), ('e-3', 'points', now()), ('e-4', 'points', now()), ('e-5', 'points', now())"
		if e.MySQL != nil {
			runMySQL(t, db, records)
		} else {
			run(t, pool, records)
		}
		if got := swapped.Strangers(t.Context(), "points"); !slices.Equal(got, []string{"e-0", "e-1", "e-2", "e-3", "e-4"}) {
			t.Errorf("%s, swapped: %v", kind, got)
		}
		if got := misspelt.Strangers(t.Context(), "points"); !slices.Equal(got, []string{"points", "stock"}) {
			t.Errorf("%s, misspelt: %v", kind, got)
		}
		if got := e.Strangers(t.Context(), "stock"); got != nil {
			t.Errorf("%s, as it should be: %v", kind, got)
		}
	}
}

func TestFindEvidenceInPostgres(t *testing.T) {
	t.Parallel()
	pool := shop(t)
	for _, sql := range []string{
		"INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES ('e-1', 'points', '2026-09-01 10:00+00'), ('e-2', 'stock', now())",
		"CREATE TABLE inbox (message_id uuid PRIMARY KEY, processed_at timestamptz)", "INSERT INTO inbox VALUES (gen_random_uuid(), now())",
		"CREATE TABLE processed_events (event_id text, handler text)", // no unique key
		"CREATE TABLE outbox_message (id bigint, event_id text PRIMARY KEY)", "CREATE TABLE orders (order_id bigint PRIMARY KEY, request_id int)",
		"CREATE TABLE event_claim (event_id text, group_id int, PRIMARY KEY (event_id, group_id))",
		`CREATE SCHEMA "Odd"`, `CREATE TABLE "Odd"."Dedup" ("Event Id" text, event_id text UNIQUE)`,
	} {
		run(t, pool, sql)
	}
	found, err := FindEvidence(t.Context(), Evidence{Connection: "shop", Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	for _, p := range found {
		tables = append(tables, p.Table)
	}
	if !slices.Equal(tables, []string{"mq_consume_record", "inbox", "Odd.Dedup", "processed_events"}) {
		t.Fatalf("found %v", tables)
	}
	p := found[0]
	if p.EventID != "event_id" || p.ConsumerGroup != "consumer_group" || p.ConsumedAt != "consumed_at" || !p.Unique || !slices.Equal(p.Groups, []string{"points", "stock"}) ||
		p.Oldest == nil || p.Oldest.Format(time.DateOnly) != "2026-09-01" || p.Sample == "" || !p.Answer.Found || !p.Answer.Exact {
		t.Errorf("%+v", p)
	}
	if inbox := found[1]; inbox.ConsumerGroup != "" || !inbox.Answer.Found || inbox.ConsumedAt != "processed_at" {
		t.Errorf("%+v", inbox)
	}
	if empty := found[3]; empty.Unique || empty.Sample != "" || empty.Answer.Found {
		t.Errorf("%+v", empty)
	}
	text := p.YAML(time.Now())
	for _, part := range []string{"  points:\n", "  stock:\n", "connection: shop", "table: mq_consume_record", "complete_since: 2026-09-02"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

func TestFindEvidenceInMySQL(t *testing.T) {
	t.Parallel()
	db := mariaShop(t)
	for _, query := range []string{
		"INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES ('e-1', 'points', '2026-09-01 10:00'), ('E-2', 'stock', '2026-09-02')",
		"CREATE TABLE t_msg_idempotent (msg_id VARCHAR(64), gmt_create DATETIME, PRIMARY KEY (msg_id))", "INSERT INTO t_msg_idempotent VALUES ('x', NOW())",
		"CREATE TABLE prefixed (event_id VARCHAR(99), UNIQUE KEY part (event_id(10)))", "CREATE TABLE orders (id BIGINT PRIMARY KEY, message_id VARCHAR(9))",
	} {
		runMySQL(t, db, query)
	}
	found, err := FindEvidence(t.Context(), Evidence{Connection: "ledger", MySQL: db})
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	p := found[0]
	if p.Table != "mq_consume_record" || !p.Unique || !slices.Equal(p.Groups, []string{"points", "stock"}) || p.Oldest == nil || p.Oldest.Format(time.DateOnly) != "2026-09-01" || !p.Answer.Found || !p.Answer.Exact {
		t.Errorf("%+v", p)
	}
	if p := found[1]; p.Table != "t_msg_idempotent" || p.EventID != "msg_id" || p.ConsumedAt != "gmt_create" || !p.Answer.Found {
		t.Errorf("%+v", p)
	}
}

func TestYAMLQuotesWhatItHasTo(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{"points": "points", "a.b-c_1": "a.b-c_1", "Event Id": `"Event Id"`, "yes": `"yes"`, `q"\`: `"q\"\\"`, "7up": `"7up"`, "": `""`} {
		if got := yamlText(s); got != want {
			t.Errorf("%q reads %s, want %s", s, got, want)
		}
	}
}
