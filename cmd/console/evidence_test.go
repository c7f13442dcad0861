package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// What the wizard prints is a config that the console takes, and then the look-up
// says what the table holds.
func TestEvidenceIsFoundPastedAndAsked(t *testing.T) {
	server := testkit.MySQL(t)
	db, err := sql.Open("mysql", server.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, query := range []string{
		"CREATE TABLE t_idempotent (message_id VARCHAR(64), consumer VARCHAR(64), gmt_create TIMESTAMP, UNIQUE KEY (message_id, consumer))",
		"INSERT INTO t_idempotent VALUES ('EVT-1', 'points-consumer-group', '2026-09-01 10:00:00')",
	} {
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("EVIDENCE_CONSOLE", pgtest.URL(t))
	t.Setenv("EVIDENCE_LEDGER", fmt.Sprintf("mysql://%s:%s@%s/%s", server.User, server.Passwd, server.Addr, server.DBName))
	file := filepath.Join(t.TempDir(), "console.yaml")
	base := "environment: test\ndatabase: {url_env: EVIDENCE_CONSOLE}\nconnections: {ledger: {kind: mysql, url_env: EVIDENCE_LEDGER}}\n"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(base)
	printed := runs(t, 0, "evidence", "find", "--config", file, "--connection", "ledger")
	for _, part := range []string{"# t_idempotent: about 1 rows. A unique key covers the event id.", `# A look-up of "EVT-1" found it`, "  points-consumer-group:\n"} {
		if !strings.Contains(printed, part) {
			t.Errorf("no %q in\n%s", part, printed)
		}
	}
	write(base + printed)
	conf, err := config.Load(file)
	if err != nil {
		t.Fatalf("what was printed is no config: %v", err)
	}
	if e := conf.Groups[0].Evidence; e.Table != "t_idempotent" || e.EventID != "message_id" || e.ConsumerGroup != "consumer" || e.ConsumedAt != "gmt_create" {
		t.Errorf("%+v", e)
	}
	for event, want := range map[string]string{
		"EVT-1": `^Record of 2026-09-01T10:00:00Z\.`, "evt-1": `^No record of just "evt-1", but of "EVT-1"`, "EVT-2": `^No record of "EVT-2" in points`,
	} {
		if got := runs(t, 0, "evidence", "ask", "--config", file, "--group", "points-consumer-group", event); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %s", event, got)
		}
	}
	runs(t, 1, "evidence", "find", "--config", file, "--connection", "nobody")
	runs(t, 1, "evidence", "ask", "--config", file, "--group", "nobody", "x")
	if _, err := db.Exec("DROP TABLE t_idempotent"); err != nil {
		t.Fatal(err)
	}
	runs(t, 1, "evidence", "ask", "--config", file, "--group", "points-consumer-group", "EVT-1")
	if got := runs(t, 0, "evidence", "find", "--config", file, "--connection", "ledger"); !strings.Contains(got, "No table of connection ledger") {
		t.Errorf("without tables: %s", got)
	}
}
