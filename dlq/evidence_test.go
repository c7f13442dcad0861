package dlq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/migrations/pgtest"
)

// shop is a business database with consume records.
func shop(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := pgtest.Open(t, pgtest.Empty(t))
	run(t, pool, `CREATE TABLE mq_consume_record (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, event_id varchar(64) NOT NULL, consumer_group varchar(64) NOT NULL,
  consumed_at timestamptz NOT NULL DEFAULT now(), CONSTRAINT uk_event_consumer UNIQUE (event_id, consumer_group))`)
	return pool
}

func run(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func shopEvidence(pool *pgxpool.Pool) *Evidence {
	return &Evidence{Connection: "shop", Pool: pool, Table: "mq_consume_record",
		EventID: "event_id", ConsumerGroup: "consumer_group", ConsumedAt: "consumed_at"}
}

func askOne(t testing.TB, e *Evidence, event, group string) (record, bool, *Reason) {
	t.Helper()
	place := e.place()
	a := lookUp(t.Context(), map[evidencePlace]map[question]bool{place: {question{event, group}: true}}, time.Now)[place]
	r, ok := a.records[question{event, group}]
	return r, ok, a.failed
}

func TestEvidenceIsFoundByBytes(t *testing.T) {
	t.Parallel()
	pool := shop(t)
	run(t, pool, "INSERT INTO mq_consume_record (event_id, consumer_group) VALUES ('e-1', 'points')")
	e := shopEvidence(pool)
	r, ok, failed := askOne(t, e, "e-1", "points")
	if !ok || !r.exact || failed != nil || time.Since(*r.at) > time.Minute {
		t.Errorf("record %+v %v %v", r, ok, failed)
	}
	long := "e-1" + fmt.Sprintf("%0252d", 0) // 255 bytes, cut to 64 it would be another's
	for _, other := range [][2]string{{"E-1", "points"}, {"e-1", "stock"}, {"e-1 ", "points"}, {long, "points"}, {"'; DROP TABLE mq_consume_record; --", "points"}} {
		if r, ok, failed := askOne(t, e, other[0], other[1]); ok || failed != nil {
			t.Errorf("%q: found %+v, failed %v", other, r, failed)
		}
	}
}

func TestALongIDIsNotCutToTheColumn(t *testing.T) {
	t.Parallel()
	pool := shop(t)
	run(t, pool, "CREATE TABLE short (event_id varchar(5) PRIMARY KEY, grp char(12) NOT NULL, at timestamptz)")
	run(t, pool, "INSERT INTO short VALUES ('abcde', 'points')")
	e := &Evidence{Connection: "shop", Pool: pool, Table: "short", EventID: "event_id", ConsumerGroup: "grp", ConsumedAt: "at"}
	if _, ok, failed := askOne(t, e, "abcdefgh", "points"); ok || failed != nil {
		t.Errorf("a longer id: found %v, failed %v", ok, failed)
	}
	if r, ok, failed := askOne(t, e, "abcde", "points"); !ok || r.at != nil || failed != nil {
		t.Errorf("the id itself: %+v %v %v", r, ok, failed)
	}
}

func TestEvidenceOfOtherShapes(t *testing.T) {
	t.Parallel()
	pool := shop(t)
	id := uuid.New()
	run(t, pool, `CREATE SCHEMA "Odd"`)
	run(t, pool, `CREATE TABLE "Odd"."re""cords" ("Event Id" uuid PRIMARY KEY, at timestamp)`)
	run(t, pool, `INSERT INTO "Odd"."re""cords" VALUES ($1, now() AT TIME ZONE 'UTC')`, id)
	run(t, pool, `CREATE TABLE numbered (event_id bigint, consumer_group text)`)
	run(t, pool, `INSERT INTO numbered VALUES (10001, 'points')`)
	odd := &Evidence{Connection: "shop", Pool: pool, Table: `Odd.re"cords`, EventID: "Event Id", ConsumedAt: "at"}
	numbered := &Evidence{Connection: "shop", Pool: pool, Table: "numbered", EventID: "event_id", ConsumerGroup: "consumer_group"}
	for _, c := range []struct {
		e     *Evidence
		event string
		found bool
	}{
		{odd, id.String(), true}, {odd, "not a uuid", false}, {odd, uuid.NewString(), false},
		{numbered, "10001", true}, {numbered, "10002", false}, {numbered, "e-1", false}, {numbered, "99999999999999999999", false},
	} {
		r, ok, failed := askOne(t, c.e, c.event, "points")
		if ok != c.found || failed != nil || ok && !r.exact {
			t.Errorf("%s %q: %+v %v %v", c.e.Table, c.event, r, ok, failed)
		}
	}
}

func TestAnIDThatIsEqualOnlyByCollationCollides(t *testing.T) {
	t.Parallel()
	pool := shop(t)
	run(t, pool, `CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`)
	run(t, pool, `CREATE TABLE loose (event_id text COLLATE nocase PRIMARY KEY, consumer_group text)`)
	run(t, pool, `INSERT INTO loose VALUES ('EVT-1', 'points')`)
	e := &Evidence{Connection: "shop", Pool: pool, Table: "loose", EventID: "event_id", ConsumerGroup: "consumer_group"}
	r, ok, failed := askOne(t, e, "evt-1", "points")
	if failed != nil || !ok || r.exact || r.found != "EVT-1" {
		t.Errorf("%+v %v %v", r, ok, failed)
	}
}

func TestEvidenceThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	pool := shop(t)
	run(t, pool, `CREATE TABLE locked (event_id text, consumer_group text, consumed_at timestamptz)`)
	run(t, pool, `CREATE TABLE odd (event_id bytea, consumer_group text, consumed_at timestamptz)`)
	gone, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gone.Close)
	with := func(change func(*Evidence)) *Evidence {
		e := shopEvidence(pool)
		change(e)
		return e
	}
	for name, c := range map[string]struct {
		e   *Evidence
		key string
	}{
		"no table":    {with(func(e *Evidence) { e.Table = "nothing" }), "reason.unknown.evidence_table"},
		"no column":   {with(func(e *Evidence) { e.EventID = "nothing" }), "reason.unknown.evidence_table"},
		"odd column":  {with(func(e *Evidence) { e.Table = "odd" }), "reason.unknown.evidence_table"},
		"no database": {with(func(e *Evidence) { e.Pool = gone }), "reason.unknown.evidence"},
		"no pool":     {with(func(e *Evidence) { e.Pool = nil }), "reason.unknown.evidence"},
	} {
		if _, ok, failed := askOne(t, c.e, "e-1", "points"); ok || failed == nil || failed.Key != c.key {
			t.Errorf("%s: %v, want %s", name, failed, c.key)
		}
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "LOCK TABLE locked IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, ok, failed := askOne(t, with(func(e *Evidence) { e.Table = "locked" }), "e-1", "points")
	if ok || failed == nil || failed.Key != "reason.unknown.evidence_timeout" || time.Since(start) > evidenceTimeout+2*time.Second {
		t.Errorf("a table that does not answer: %v after %v", failed, time.Since(start))
	}
}

func TestTenThousandPairsInAboutASecond(t *testing.T) {
	t.Parallel()
	pool := shop(t)
	run(t, pool, `INSERT INTO mq_consume_record (event_id, consumer_group)
SELECT 'event-' || n, 'g' || n % 4 FROM generate_series(1, 300000) n`)
	run(t, pool, "ANALYZE mq_consume_record")
	place := shopEvidence(pool).place()
	asked := map[question]bool{}
	for i := range 10_500 { // more than one statement holds
		asked[question{fmt.Sprint("event-", i*50), fmt.Sprint("g", i*50%4)}] = true
	}
	start := time.Now()
	a := lookUp(t.Context(), map[evidencePlace]map[question]bool{place: asked}, time.Now)[place]
	took := time.Since(start)
	if a.failed != nil || len(a.records) != 300_000/50 {
		t.Fatalf("found %d, failed %v", len(a.records), a.failed)
	}
	t.Logf("%d pairs in %v", len(asked), took)
	if took > 4*time.Second {
		t.Errorf("took %v", took)
	}
}
