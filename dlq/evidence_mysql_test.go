package dlq

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"oncemore/internal/testkit"
)

// mariaShop is a business database on MySQL or MariaDB, with the server's default
// collation, which ignores case, accents and trailing space.
func mariaShop(t testing.TB) *sql.DB {
	t.Helper()
	db := openMySQL(t, testkit.MySQL(t))
	runMySQL(t, db, `CREATE TABLE mq_consume_record (
  id BIGINT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64) NOT NULL, consumer_group VARCHAR(64) NOT NULL,
  consumed_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)), UNIQUE KEY uk_event_consumer (event_id, consumer_group)) COLLATE utf8mb4_general_ci`)
	return db
}

func openMySQL(t testing.TB, cfg *mysql.Config) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func runMySQL(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func mariaEvidence(db *sql.DB) *Evidence {
	return &Evidence{Connection: "ledger", MySQL: db, Table: "mq_consume_record",
		EventID: "event_id", ConsumerGroup: "consumer_group", ConsumedAt: "consumed_at"}
}

// What the collation calls equal is found, and told apart by its bytes: replayed,
// the consumer's own unique key would take it for a duplicate.
func TestMySQLEvidenceIsLookedUpByCollationAndComparedByBytes(t *testing.T) {
	t.Parallel()
	db := mariaShop(t)
	e := mariaEvidence(db)
	for _, id := range []string{"EVT-1", "sp ", "café", "em-😀", `q'"\%`, "支付-1", "both", strings.Repeat("l", 64)} {
		runMySQL(t, db, "INSERT INTO mq_consume_record (event_id, consumer_group) VALUES (?, 'points')", id)
	}
	for _, c := range []struct {
		event, group, found string
		exact               bool
	}{
		{"EVT-1", "points", "EVT-1", true}, {"evt-1", "points", "EVT-1", false}, {"EVT-1 ", "points", "EVT-1", false},
		{"sp", "points", "sp ", false}, {"sp ", "points", "sp ", true}, {"cafe", "points", "café", false}, {"café", "points", "café", true},
		{"em-😀", "points", "em-😀", true}, {"em-😁", "points", "em-😀", false}, {`q'"\%`, "points", `q'"\%`, true}, {"支付-1", "points", "支付-1", true},
		{strings.Repeat("l", 65), "points", strings.Repeat("l", 64), false}, // a server that is not strict would have cut it to this
		{"both", "POINTS", "both", false}, {"both", "stock", "", false}, {"evt-2", "points", "", false},
	} {
		r, ok, failed := askOne(t, e, c.event, c.group)
		if failed != nil || ok != (c.found != "") || r.found != c.found || r.exact != c.exact {
			t.Errorf("%q in %s: %+v %v %v, want %q exact %v", c.event, c.group, r, ok, failed, c.found, c.exact)
		}
		if ok && (r.at == nil || time.Since(*r.at).Abs() > time.Hour) {
			t.Errorf("%q was consumed at %v", c.event, r.at)
		}
	}
	place := e.place() // asked together, one record answers both
	a := lookUp(t.Context(), map[evidencePlace]map[question]bool{place: {{"EVT-1", "points"}: true, {"evt-1", "points"}: true}}, time.Now)[place]
	if upper, lower := a.records[question{"EVT-1", "points"}], a.records[question{"evt-1", "points"}]; !upper.exact || lower.exact || lower.found != "EVT-1" {
		t.Errorf("together: %+v", a.records)
	}
}

func TestMySQLEvidenceOfOtherShapes(t *testing.T) {
	t.Parallel()
	db := mariaShop(t)
	id := uuid.NewString()
	for _, query := range []string{
		"CREATE TABLE numbered (event_id BIGINT PRIMARY KEY, who VARCHAR(20), done TINYINT, at TIMESTAMP(3) NULL)",
		"INSERT INTO numbered VALUES (10001, 'pts', 1, FROM_UNIXTIME(1764500000.25)), (10002, 'pts', 0, NOW())",
		"CREATE TABLE bytes (event_id VARBINARY(64) PRIMARY KEY)", "INSERT INTO bytes VALUES ('EVT-1')",
		"CREATE TABLE latin (event_id VARCHAR(64) CHARACTER SET latin1 COLLATE latin1_german1_ci PRIMARY KEY)", "INSERT INTO latin VALUES ('straße')",
		"CREATE TABLE three (event_id VARCHAR(64) CHARACTER SET utf8mb3 PRIMARY KEY)", "INSERT INTO three VALUES ('em-?')",
		"CREATE TABLE `odd``name` (`Event Id` CHAR(36) PRIMARY KEY)", "INSERT INTO `odd``name` VALUES ('" + id + "')",
	} {
		runMySQL(t, db, query)
	}
	with := func(table, event string) *Evidence {
		return &Evidence{Connection: "ledger", MySQL: db, Table: table, EventID: event}
	}
	numbered := with("numbered", "event_id")
	numbered.ConsumerGroup, numbered.GroupValue, numbered.Where, numbered.ConsumedAt = "who", "pts", "done = 1", "at"
	for _, c := range []struct {
		e            *Evidence
		event        string
		found, exact bool
	}{
		{numbered, "10001", true, true}, {numbered, "10002", false, false}, {numbered, "e-1", false, false},
		{with("bytes", "event_id"), "EVT-1", true, true}, {with("bytes", "event_id"), "evt-1", false, false},
		{with("latin", "event_id"), "straße", true, true}, {with("latin", "event_id"), "STRASSE", false, false}, {with("latin", "event_id"), "em-😀", false, false},
		{with("three", "event_id"), "em-😀", true, false}, {with("odd`name", "Event Id"), id, true, true},
	} {
		r, ok, failed := askOne(t, c.e, c.event, "points-consumer-group")
		if ok != c.found || failed != nil || r.exact != c.exact {
			t.Errorf("%s %q: %+v %v %v", c.e.Table, c.event, r, ok, failed)
		}
	}
	if r, _, _ := askOne(t, numbered, "10001", "x"); r.at == nil || r.at.UnixMilli() != 1764500000250 {
		t.Errorf("a TIMESTAMP reads %v", r.at)
	}
}

func TestMySQLEvidenceThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	db := mariaShop(t)
	runMySQL(t, db, "CREATE TABLE odd (event_id JSON, consumer_group VARCHAR(9), consumed_at DATETIME)")
	runMySQL(t, db, "CREATE TABLE epoch (event_id VARCHAR(9), consumer_group VARCHAR(9), consumed_at BIGINT)")
	gone := openMySQL(t, &mysql.Config{User: "nobody", Net: "tcp", Addr: "127.0.0.1:1", DBName: "none", AllowNativePasswords: true})
	with := func(change func(*Evidence)) *Evidence {
		e := mariaEvidence(db)
		change(e)
		return e
	}
	for name, c := range map[string]struct {
		e   *Evidence
		key string
	}{
		"no table":      {with(func(e *Evidence) { e.Table = "nothing" }), "reason.unknown.evidence_table"},
		"no column":     {with(func(e *Evidence) { e.EventID = "nothing" }), "reason.unknown.evidence_table"},
		"odd time":      {with(func(e *Evidence) { e.Table = "epoch" }), "reason.unknown.evidence_table"},
		"bad condition": {with(func(e *Evidence) { e.Where = "nothing = 1" }), "reason.unknown.evidence_table"},
		"no database":   {with(func(e *Evidence) { e.MySQL = gone }), "reason.unknown.evidence"},
		"no pool":       {with(func(e *Evidence) { e.MySQL = nil }), "reason.unknown.evidence"},
	} {
		if _, ok, failed := askOne(t, c.e, "e-1", "points"); ok || failed == nil || failed.Key != c.key || strings.Contains(failed.Text, "{") {
			t.Errorf("%s: %v, want %s", name, failed, c.key)
		}
	}
}

// Whoever configures a condition that writes finds the transaction read-only.
func TestMySQLEvidenceCannotWrite(t *testing.T) {
	t.Parallel()
	db := mariaShop(t)
	runMySQL(t, db, "CREATE TABLE calls (n INT)")
	runMySQL(t, db, "CREATE FUNCTION sly() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO calls VALUES (1); RETURN 1; END")
	e := mariaEvidence(db)
	e.Where = "sly() = 1"
	runMySQL(t, db, "INSERT INTO mq_consume_record (event_id, consumer_group) VALUES ('e-1', 'points')")
	if _, ok, failed := askOne(t, e, "e-1", "points"); ok || failed == nil {
		t.Errorf("found %v, failed %v", ok, failed)
	}
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM calls").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows written, %v", n, err)
	}
}

func TestTenThousandPairsOfMySQL(t *testing.T) {
	t.Parallel()
	db := mariaShop(t)
	runMySQL(t, db, `INSERT INTO mq_consume_record (event_id, consumer_group)
WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 400),
x AS (SELECT a.n + 400 * (b.n - 1) AS n FROM s a, s b) SELECT CONCAT('event-', n), CONCAT('g', n % 4) FROM x WHERE n <= 100000`)
	runMySQL(t, db, "ANALYZE TABLE mq_consume_record")
	place := mariaEvidence(db).place()
	asked := map[question]bool{}
	for i := range 10_500 {
		asked[question{fmt.Sprint("event-", i*20), fmt.Sprint("g", i*20%4)}] = true
	}
	start := time.Now()
	a := lookUp(t.Context(), map[evidencePlace]map[question]bool{place: asked}, time.Now)[place]
	took := time.Since(start)
	if a.failed != nil || len(a.records) != 100_000/20 {
		t.Fatalf("found %d, failed %v", len(a.records), a.failed)
	}
	t.Logf("%d pairs in %v", len(asked), took)
	if took > 4*time.Second {
		t.Errorf("took %v", took)
	}
}
