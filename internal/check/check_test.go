package check_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"oncemore/consumer/effect"
	"oncemore/consumer/pgstore"
	"oncemore/internal/check"
	"oncemore/internal/testkit"
	"oncemore/migrations"
	"oncemore/migrations/pgtest"
)

const day = 24 * time.Hour

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func run(t *testing.T, in check.Input) []check.Finding {
	t.Helper()
	return check.Run(t.Context(), in, func() time.Time { return noon })
}

// variants lists what was answered, as <code>.<variant> of the message.
func variants(findings []check.Finding) []string {
	out := make([]string, len(findings))
	for i, f := range findings {
		out[i] = strings.TrimSuffix(strings.TrimPrefix(f.Sentence.Key, "check."), ".sentence")
	}
	return out
}

// expect wants exactly these variants beside the passed ones.
func expect(t *testing.T, findings []check.Finding, want ...string) {
	t.Helper()
	var got []string
	for i, v := range variants(findings) {
		if findings[i].Severity != check.Passed {
			got = append(got, v)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
		for _, f := range findings {
			t.Log(f, f.Evidence)
		}
	}
	for _, f := range findings {
		if text := f.Sentence.En + f.Meaning.En + f.Mend.En; strings.ContainsAny(text, "{}") {
			t.Errorf("a name is not filled in: %s", text)
		}
		if f.Severity != check.Passed && f.Mend.En == "" {
			t.Errorf("%s does not say how to mend it", f.Sentence.En)
		}
	}
}

// one returns the finding of that variant.
func one(t *testing.T, findings []check.Finding, variant string) check.Finding {
	t.Helper()
	i := slices.Index(variants(findings), variant)
	if i < 0 {
		t.Fatalf("no %s in %v", variant, variants(findings))
	}
	return findings[i]
}

// reader connects as a user who may only select.
func reader(t *testing.T, addr string) *pgxpool.Pool {
	t.Helper()
	admin := pgtest.Open(t, addr)
	role := strings.ReplaceAll(testkit.Name("reader"), "-", "_")
	for _, sql := range []string{"create role " + role, "grant usage on schema public to " + role, "grant select on all tables in schema public to " + role} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by " + role, "drop role " + role} {
			if _, err := admin.Exec(context.Background(), sql); err != nil {
				t.Errorf("%s: %v", sql, err)
			}
		}
	})
	u, err := url.Parse(addr)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("role", role)
	u.RawQuery = query.Encode()
	return pgtest.Open(t, u.String())
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// topic makes one with a configuration.
func topic(t *testing.T, admin *kadm.Client, name string, partitions int32, replicas int16, config map[string]string) {
	t.Helper()
	values := map[string]*string{}
	for k, v := range config {
		values[k] = &v
	}
	if _, err := admin.CreateTopic(t.Context(), partitions, replicas, values, name); err != nil {
		t.Fatalf("create topic %s: %v", name, err)
	}
}

var sound = map[string]string{"min.insync.replicas": "2", "retention.ms": fmt.Sprint(7 * 24 * 3600 * 1000)}

func fake(t *testing.T) *kadm.Client {
	t.Helper()
	return kadm.NewClient(testkit.Client(t, testkit.FakeKafkaAddr(t, kfake.NumBrokers(3))))
}

func matches(pattern string) func(string) bool {
	return func(name string) bool { ok, _ := path.Match(pattern, name); return ok }
}

const statement = "insert into user_points (order_id, points) values (:orderId, :points)"

// soundInput is a config that nothing is wrong with.
func soundInput(t *testing.T) check.Input {
	t.Helper()
	addr := pgtest.Empty(t)
	business := pgtest.Open(t, addr)
	if err := pgstore.Migrate(t.Context(), business); err != nil {
		t.Fatal(err)
	}
	exec(t, business, "create table user_points (order_id bigint primary key, points numeric not null)")
	admin := fake(t)
	for _, name := range []string{"order.paid", "order.paid.DLT", "points.replay"} {
		topic(t, admin, name, 3, 3, sound)
	}
	points, err := effect.NewSQL(statement, nil)
	if err != nil {
		t.Fatal(err)
	}
	return check.Input{
		Console: pgtest.New(t), Pending: migrations.Pending,
		Connections: []check.Connection{{Name: "shop", Pool: reader(t, addr), Writer: true, WritePool: business}},
		Clusters:    []check.Cluster{{Name: "kafka", Admin: admin}},
		Sources:     []check.Source{{Cluster: "kafka", Pattern: "*.DLT", Match: matches("*.DLT"), Header: "event-id"}},
		Consumers: []check.Consumer{{
			Group: "points", Cluster: "kafka", Topics: []string{"order.paid"}, Connection: "shop", JSON: "$.eventId",
			MaxRetry: 17 * time.Second, Prepare: points.Prepare, HTTPBase: "http://points.internal", HTTPKey: "event",
		}},
		Evidence: []check.Evidence{{
			Group: "points", Connection: "shop", Cluster: "kafka", Topics: []string{"order.paid"}, Table: pgstore.Table,
			EventID: "event_id", ConsumerGroup: "consumer_group", ConsumedAt: "consumed_at", Retention: 60 * day,
		}},
		ReplayWindow: 30 * day,
	}
}

func TestSoundConfigPasses(t *testing.T) {
	t.Parallel()
	findings := run(t, soundInput(t))
	expect(t, findings)
	if !check.AllPassed(findings) || check.Worst(findings) != check.Passed {
		t.Error("not all passed")
	}
	for _, f := range findings {
		if !f.CheckedAt.Equal(noon) || f.Area == "" || f.Subject == "" {
			t.Errorf("incomplete: %+v", f)
		}
	}
}

func TestRetentionIsShownLineByLine(t *testing.T) {
	t.Parallel()
	in := soundInput(t)
	f := one(t, run(t, in), "retention.promise.ok")
	want := []string{
		"broker retention of the topics: 7 d", "longest retry: 17s", "redelivery by hand, from the dead-letter topic: 7 d",
		"recovery: 7 d", "replay window, as long as letters are kept: 30 d", "margin: 3 d", "needed: 55 d", "kept: 60 d",
	}
	if !slices.Equal(f.Evidence, want) {
		t.Errorf("evidence\n%s, want\n%s", strings.Join(f.Evidence, "\n"), strings.Join(want, "\n"))
	}

	in.Evidence[0].Retention = 54 * day
	f = one(t, run(t, in), "retention.promise.short")
	if f.Severity != check.Warning || f.Sentence.En != "Consume records of points are kept 54 d, 55 d are needed." {
		t.Errorf("%s: %s", f.Severity, f.Sentence.En)
	}
	in.Recovery, in.Margin = day, day
	one(t, run(t, in), "retention.promise.ok")
	in.Evidence[0].Retention = 0
	one(t, run(t, in), "retention.promise.never")
}

// Broker retention −1, a compacted topic and letters kept for ever mean never drop.
func TestRetentionWithoutEnd(t *testing.T) {
	t.Parallel()
	endless := map[string]map[string]string{
		"minus one": {"retention.ms": "-1"},
		"compacted": {"cleanup.policy": "compact"},
	}
	for name, config := range endless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := soundInput(t)
			topic(t, in.Clusters[0].Admin, "order.kept", 3, 3, config)
			in.Evidence[0].Retention = 3650 * day
			in.Consumers[0].Topics = []string{"order.paid", "order.kept"}
			f := one(t, run(t, in), "retention.promise.endless")
			if !slices.Contains(f.Evidence, "broker retention of the topics: endless") {
				t.Errorf("evidence %v", f.Evidence)
			}
		})
	}
	t.Run("letters for ever", func(t *testing.T) {
		t.Parallel()
		in := soundInput(t)
		in.ReplayWindow = 0
		one(t, run(t, in), "retention.promise.endless")
	})
}

func TestConsumeRecordFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		sql  string
		want []string
	}{
		"missing":      {"drop table mq_consume_record", []string{"consume_record.table.missing"}},
		"no key":       {"alter table mq_consume_record drop constraint uk_event_consumer", []string{"consume_record.unique.missing"}},
		"wider key":    {"alter table mq_consume_record drop constraint uk_event_consumer, add unique (event_id, consumer_group, consumed_at)", []string{"consume_record.unique.missing"}},
		"narrower key": {"alter table mq_consume_record drop constraint uk_event_consumer, add unique (event_id)", []string{"consume_record.unique.missing"}},
		"partial key": {`alter table mq_consume_record drop constraint uk_event_consumer;
			create unique index on mq_consume_record (event_id, consumer_group) where id > 7`, []string{"consume_record.unique.missing"}},
		"key on an expression": {`alter table mq_consume_record drop constraint uk_event_consumer;
			create unique index on mq_consume_record (lower(event_id), consumer_group)`, []string{"consume_record.unique.missing"}},
		"deferred key": {`alter table mq_consume_record drop constraint uk_event_consumer,
			add unique (event_id, consumer_group) deferrable initially deferred`, []string{"consume_record.unique.missing"}},
		"key the other way round": {"alter table mq_consume_record drop constraint uk_event_consumer, add unique (consumer_group, event_id)", nil},
		"key with a passenger":    {"alter table mq_consume_record drop constraint uk_event_consumer, add unique (event_id, consumer_group) include (consumed_at)", nil},
		"short":                   {"alter table mq_consume_record alter event_id type varchar(64)", []string{"consume_record.length.short"}},
		"text":                    {"alter table mq_consume_record alter event_id type text collate \"C\"", nil},
		"loose": {`create collation loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
			alter table mq_consume_record alter event_id type varchar(255) collate loose`, []string{"consume_record.collation.loose"}},
		"column gone": {"alter table mq_consume_record rename event_id to id2", []string{"consume_record.columns.missing"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Open(t, pgtest.Empty(t))
			if err := pgstore.Migrate(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			exec(t, pool, c.sql)
			findings := run(t, check.Input{Console: pgtest.New(t), Pending: migrations.Pending,
				Connections: []check.Connection{{Name: "shop", Pool: pool, Writer: true}}})
			expect(t, findings, c.want...)
			if c.want == nil {
				one(t, findings, "consume_record.table.ok")
			}
		})
	}
}

func TestEvidenceFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		sql    string // run as the owner, before the reader connects
		change func(*check.Input)
		want   []string
	}{
		"table missing":     {"", func(in *check.Input) { in.Evidence[0].Table = "nowhere" }, []string{"evidence.table.missing"}},
		"schema-qualified":  {"create schema s; create table s.t as select * from mq_consume_record; create index on s.t (event_id)", func(in *check.Input) { in.Evidence[0].Table = "s.t" }, []string{"evidence.readonly.writes"}},
		"column missing":    {"", func(in *check.Input) { in.Evidence[0].ConsumedAt = "at" }, []string{"evidence.columns.missing"}},
		"no index":          {"alter table mq_consume_record drop constraint uk_event_consumer", nil, []string{"evidence.index.missing"}},
		"index by group":    {"alter table mq_consume_record drop constraint uk_event_consumer; create index on mq_consume_record (consumer_group)", nil, []string{"evidence.index.missing"}},
		"index group first": {"alter table mq_consume_record drop constraint uk_event_consumer; create index on mq_consume_record (consumer_group, event_id)", nil, nil},
		"other group's":     {"", func(in *check.Input) { in.Evidence[0].Connection = "nobody" }, []string{"evidence.table.unknown"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := pgtest.Empty(t)
			owner := pgtest.Open(t, addr)
			if err := pgstore.Migrate(t.Context(), owner); err != nil {
				t.Fatal(err)
			}
			if c.sql != "" {
				exec(t, owner, c.sql)
			}
			in := check.Input{Console: pgtest.New(t), Pending: migrations.Pending,
				Evidence: []check.Evidence{{Group: "points", Connection: "shop", Table: pgstore.Table, EventID: "event_id", ConsumerGroup: "consumer_group", ConsumedAt: "consumed_at"}}}
			pool := owner
			if !slices.Contains(c.want, "evidence.readonly.writes") {
				pool = reader(t, addr)
			}
			in.Connections = []check.Connection{{Name: "shop", Pool: pool}}
			if c.change != nil {
				c.change(&in)
			}
			expect(t, run(t, in), c.want...)
		})
	}
}

func TestEvidenceThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	addr := pgtest.Empty(t)
	owner := pgtest.Open(t, addr)
	pool := reader(t, addr) // before the table is there, so nothing was granted on it
	if err := pgstore.Migrate(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	in := check.Input{Console: pgtest.New(t), Pending: migrations.Pending, Connections: []check.Connection{{Name: "shop", Pool: pool}},
		Evidence: []check.Evidence{{Group: "points", Connection: "shop", Table: pgstore.Table, EventID: "event_id", ConsumerGroup: "consumer_group"}}}
	expect(t, run(t, in), "evidence.select.denied")
}

func TestConsumerFaults(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(t *testing.T, in *check.Input)
		want   []string
	}{
		"topic missing": {func(_ *testing.T, in *check.Input) { in.Consumers[0].Topics = []string{"order.paid", "order.gone"} },
			[]string{"consumer.topic.missing", "consumer.dead_letter.missing"}},
		"replay topic not there yet": {func(_ *testing.T, in *check.Input) { in.Consumers[0].Group = "fresh" },
			[]string{"consumer.replay.missing"}},
		"replay topic too small": {func(t *testing.T, in *check.Input) {
			topic(t, in.Clusters[0].Admin, "small.replay", 1, 3, sound)
			in.Consumers[0].Group = "small"
		}, []string{"consumer.replay.partitions"}},
		"topics differ": {func(t *testing.T, in *check.Input) {
			topic(t, in.Clusters[0].Admin, "order.big", 6, 3, sound)
			topic(t, in.Clusters[0].Admin, "order.big.DLT", 6, 3, sound)
			in.Consumers[0].Topics = []string{"order.paid", "order.big"}
		}, []string{"consumer.replay.differ"}},
		"dead letters that nobody drains": {func(_ *testing.T, in *check.Input) { in.Consumers[0].DeadLetter = "order.graveyard" },
			[]string{"consumer.dead_letter.undrained"}},
		"position as event id": {func(_ *testing.T, in *check.Input) { in.Consumers[0].JSON = "$.offset" }, []string{"consumer.event_id.bad"}},
		"no event id":          {func(_ *testing.T, in *check.Input) { in.Consumers[0].JSON = "" }, []string{"consumer.event_id.bad"}},
		"statement":            {func(t *testing.T, in *check.Input) { exec(t, in.Connections[0].WritePool, "drop table user_points") }, []string{"consumer.statement.bad"}},
		"equal keys": {func(_ *testing.T, in *check.Input) {
			second := in.Consumers[0]
			second.Group, second.HTTPBase = "points2", "http://POINTS.internal/"
			in.Consumers = append(in.Consumers, second)
		}, []string{"consumer.http_key.equal", "consumer.replay.missing"}},
		"keys of their own": {func(_ *testing.T, in *check.Input) {
			second := in.Consumers[0]
			second.Group, second.HTTPKey = "points2", "effect"
			in.Consumers = append(in.Consumers, second)
		}, []string{"consumer.replay.missing"}},
		"source matches nothing": {func(_ *testing.T, in *check.Input) {
			in.Sources = append(in.Sources, check.Source{Cluster: "kafka", Pattern: "x*", Match: matches("x*")})
		}, []string{"source.match.none"}},
		"source with position as id":   {func(_ *testing.T, in *check.Input) { in.Sources[0].Header = "record-offset" }, []string{"source.event_id.bad"}},
		"one replica":                  {func(t *testing.T, in *check.Input) { weaken(t, in, 1, "2") }, []string{"topic.acks.weak", "consumer.replay.missing", "consumer.dead_letter.missing"}},
		"one in sync is enough":        {func(t *testing.T, in *check.Input) { weaken(t, in, 3, "1") }, []string{"topic.acks.weak", "consumer.replay.missing", "consumer.dead_letter.missing"}},
		"database of the console gone": {func(_ *testing.T, in *check.Input) { in.Console.Close() }, []string{"console.database.down", "console.migrations.unknown", "console.months.unknown"}},
		"not migrated": {func(t *testing.T, in *check.Input) { in.Console = pgtest.Open(t, pgtest.Empty(t)) },
			[]string{"console.migrations.pending", "console.months.unknown"}},
		"no month": {func(t *testing.T, in *check.Input) {
			exec(t, in.Console, "do $$ begin execute 'drop table dead_letter_body_' || to_char(now() at time zone 'UTC' + interval '1 month', 'YYYYMM'); end $$")
		}, []string{"console.months.missing"}},
		"a month is kept": {func(_ *testing.T, in *check.Input) {
			in.Kept = func(context.Context, *pgxpool.Pool) ([]string, error) { return []string{"2026-05 (12)"}, nil }
		}, []string{"console.kept.open"}},
		"kept months are not known": {func(_ *testing.T, in *check.Input) {
			in.Kept = func(context.Context, *pgxpool.Pool) ([]string, error) { return nil, errors.New("broke") }
		}, []string{"console.kept.unknown"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := soundInput(t)
			c.change(t, &in)
			expect(t, run(t, in), c.want...)
		})
	}
}

func weaken(t *testing.T, in *check.Input, replicas int16, insync string) {
	t.Helper()
	topic(t, in.Clusters[0].Admin, "order.weak", 3, replicas, map[string]string{"min.insync.replicas": insync, "retention.ms": "1000"})
	weak := in.Consumers[0]
	weak.Group, weak.Topics, weak.HTTPBase = "weak", []string{"order.weak"}, ""
	in.Consumers = append(in.Consumers, weak)
}

// What cannot be looked at is never passed.
func TestNothingReachable(t *testing.T) {
	t.Parallel()
	in := soundInput(t)
	in.Connections[0].Pool.Close()
	in.Connections[0].WritePool, in.Connections[0].WriteErr = nil, errors.New("environment variable SHOP_DATABASE_URL is not set")
	in.Clusters[0].Admin = kadm.NewClient(testkit.Client(t, fmt.Sprintf("127.0.0.1:%d", testkit.FreePort(t))))
	findings := run(t, in)
	expect(t, findings,
		"connection.reach.down", "connection.reach.down", "consume_record.table.unknown", "cluster.reach.down", "evidence.table.unknown",
		"consumer.statement.down", "consumer.topic.unknown", "source.match.unknown", "topic.acks.unknown", "retention.promise.unknown")
	if check.AllPassed(findings) {
		t.Error("all passed")
	}
	in.Clusters[0].Admin = nil
	in.Pending = func(context.Context, *pgxpool.Pool) (int, error) { return 0, errors.New("broke") }
	expect(t, run(t, in),
		"connection.reach.down", "connection.reach.down", "consume_record.table.unknown", "cluster.reach.down", "evidence.table.unknown",
		"consumer.statement.down", "consumer.topic.unknown", "source.match.unknown", "topic.acks.unknown", "retention.promise.unknown",
		"console.migrations.unknown", "console.months.unknown")
}

// A real broker, where configurations come from its own defaults.
func TestRealKafka(t *testing.T) {
	t.Parallel()
	addr := testkit.Kafka(t)
	admin := kadm.NewClient(testkit.Client(t, addr))
	name := testkit.Topic(t, addr, "order.paid", 2)
	dead := name + ".DLT"
	testkit.MakeTopic(t, addr, dead, 2)
	group := testkit.Name("points")
	testkit.MakeTopic(t, addr, group+".replay", 2)
	in := soundInput(t)
	in.Clusters[0].Admin = admin
	in.Consumers[0].Group, in.Consumers[0].Topics = group, []string{name}
	in.Evidence[0].Group, in.Evidence[0].Topics = group, []string{name}
	findings := run(t, in)
	expect(t, findings, "topic.acks.weak") // the test broker is alone
	if f := one(t, findings, "topic.acks.weak"); len(f.Evidence) != 3 || !strings.HasSuffix(f.Evidence[0], "replication 1, min.insync.replicas 1") {
		t.Errorf("evidence %v", f.Evidence)
	}
	f := one(t, findings, "retention.promise.ok")
	if f.Evidence[0] != "broker retention of the topics: 7 d" {
		t.Errorf("evidence %v", f.Evidence)
	}
}

func TestStoreKnowsSinceWhen(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	store := check.NewStore(pool)
	if got, err := store.Findings(t.Context()); err != nil || len(got) != 0 {
		t.Fatalf("before the first run: %v, %v", got, err)
	}
	at := noon
	save := func(in check.Input) []check.Finding {
		t.Helper()
		if err := store.Save(t.Context(), check.Run(t.Context(), in, func() time.Time { return at })); err != nil {
			t.Fatal(err)
		}
		findings, err := store.Findings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return findings
	}
	in := check.Input{Console: pool, Pending: migrations.Pending}
	save(in)
	at = at.Add(time.Hour)
	f := one(t, save(in), "console.migrations.ok")
	if !f.Since.Equal(noon) || !f.CheckedAt.Equal(at) || f.Severity != check.Passed {
		t.Errorf("unchanged: since %s, checked %s, %s", f.Since, f.CheckedAt, f.Severity)
	}
	at = at.Add(time.Hour)
	in.Pending = func(context.Context, *pgxpool.Pool) (int, error) { return 3, nil }
	f = one(t, save(in), "console.migrations.pending")
	if !f.Since.Equal(at) || f.Severity != check.Critical || f.Sentence.Args["n"] != "3" || f.Area != "console" {
		t.Errorf("changed: %+v", f)
	}
	at = at.Add(-30 * time.Minute)
	in.Pending = migrations.Pending
	one(t, save(in), "console.migrations.pending") // an older run does not overwrite
	at = at.Add(time.Hour)
	in.Connections = []check.Connection{{Name: "shop", Err: errors.New("quoted \x00 and \xff")}}
	findings := save(in)
	if f := one(t, findings, "connection.reach.down"); findings[0].Code != f.Code || f.Evidence[0] != "quoted � and �" {
		t.Errorf("worst is not first, or evidence %q", f.Evidence)
	}
	at = at.Add(time.Hour)
	in.Connections = nil
	if got := variants(save(in)); slices.Contains(got, "connection.reach.down") {
		t.Errorf("a finding about something that is gone stays: %v", got)
	}
}
