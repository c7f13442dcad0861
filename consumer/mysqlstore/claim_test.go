package mysqlstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
)

// An id that does not fit is an error, even where the server would cut it off.
func TestNothingIsCutOff(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	db.exec(t, `ALTER TABLE mq_consume_record MODIFY event_id VARCHAR(64) COLLATE utf8mb4_bin NOT NULL`)
	lax := db.cfg.Clone()
	lax.Params = map[string]string{"sql_mode": "''"}
	store := open(t, lax, mysqlstore.Options{})
	prefix := strings.Repeat("x", 64)
	for _, ids := range [][]string{{prefix + "1"}, {"a", prefix + "1", prefix + "2"}} {
		_, err := store.Claim(t.Context(), "g", ids)
		wantOutcome(t, err, consumer.OutcomePermanent)
	}
	if got := db.records(t, "g"); len(got) != 0 {
		t.Errorf("records %v", got)
	}
	widest := strings.Repeat("支", 60) + "😀😀😀😀"
	c := db.claim(t, prefix, widest)
	if err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := db.records(t, "g"); len(got) != 2 || got[1] != widest {
		t.Errorf("records %v", got)
	}
}

// An id that the column's character set cannot hold.
func TestNarrowCharacterSet(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	db.exec(t, `ALTER TABLE mq_consume_record MODIFY event_id VARCHAR(64) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL`)
	store := db.store(t, mysqlstore.Options{})
	if err := store.Check(t.Context(), "g"); err != nil {
		t.Fatalf("check: %v", err)
	}
	_, err := store.Claim(t.Context(), "g", []string{"a", "😀"})
	wantOutcome(t, err, consumer.OutcomePermanent)
	c := db.claim(t, "a", "é")
	if !c.Fresh("a") || !c.Fresh("é") {
		t.Error("not fresh")
	}
}

// Without the check the collation would swallow the second event.
func TestAnotherCaseIsNeverADuplicate(t *testing.T) {
	t.Parallel()
	for _, width := range []string{"utf8mb4_general_ci", "utf8mb4_unicode_ci"} {
		db := prepared(t)
		db.exec(t, `ALTER TABLE mq_consume_record MODIFY event_id VARCHAR(255) COLLATE `+width+` NOT NULL`)
		c := db.claim(t, "EVT-1")
		if err := c.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		store := db.store(t, mysqlstore.Options{})
		for _, ids := range [][]string{{"evt-1"}, {"new", "evt-1"}, {"Two", "two"}} {
			_, err := store.Claim(t.Context(), "g", ids)
			wantOutcome(t, err, consumer.OutcomePermanent)
		}
		again := db.claim(t, "EVT-1", "other")
		if again.Fresh("EVT-1") || !again.Fresh("other") {
			t.Errorf("%s: EVT-1 fresh %t, other fresh %t", width, again.Fresh("EVT-1"), again.Fresh("other"))
		}
	}
}

// Only our key makes a duplicate: another constraint of an existing table does not.
func TestAnotherUniqueKeyIsNoDuplicate(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	db.exec(t, `ALTER TABLE mq_consume_record ADD UNIQUE KEY own_key (event_id)`)
	store := db.store(t, mysqlstore.Options{})
	c, err := store.Claim(t.Context(), "other group", []string{"uk_event_consumer'"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = store.Claim(t.Context(), "g", []string{"a", "uk_event_consumer'"})
	wantOutcome(t, err, consumer.OutcomeUnavailable)
	if !strings.Contains(fmt.Sprint(err), "own_key") {
		t.Errorf("the key is not named: %v", err)
	}
}

// Two batches share ids: whoever comes second learns row by row which of them
// are fresh, with or without the others' commit.
func TestFreshRowsAreKnownOneByOne(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		db := prepared(t)
		first := db.claim(t, "b", "d")
		store := db.store(t, mysqlstore.Options{LockTimeout: 5 * time.Second})
		result := make(chan consumer.Claim[mysqlstore.Tx], 1)
		go func() {
			second, err := store.Claim(t.Context(), "g", []string{"e", "d", "c", "b", "a"})
			if err != nil {
				t.Errorf("second claim: %v", err)
			}
			result <- second
		}()
		db.waits(t)
		if commits {
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else {
			first.Rollback(t.Context())
		}
		second := <-result
		if second == nil {
			return
		}
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			if want := !commits || id != "b" && id != "d"; second.Fresh(id) != want {
				t.Errorf("first commits %t: %s is fresh: %t", commits, id, !want)
			}
		}
		if err := second.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		if got := db.records(t, "g"); fmt.Sprint(got) != "[a b c d e]" {
			t.Errorf("records %v", got)
		}
	}
}

// waits waits until a transaction of the database waits for a lock.
func (db database) waits(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for query[int](t, db, `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id
		WHERE p.db = ? AND x.trx_state = 'LOCK WAIT'`, db.cfg.DBName)[0] == 0 {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for a lock")
		}
		time.Sleep(120 * time.Millisecond) // the server renews that table every 100 ms
	}
}

// Claims on a table that is not as it should be wait for the operator: no letter.
func TestClaimOnABadTableIsUnavailable(t *testing.T) {
	t.Parallel()
	db := empty(t)
	store := db.store(t, mysqlstore.Options{})
	_, err := store.Claim(t.Context(), "g", []string{"a"})
	wantOutcome(t, err, consumer.OutcomeUnavailable)
	db.exec(t, `CREATE TABLE mq_consume_record (event_id TEXT, consumer_group TEXT)`)
	_, err = store.Claim(t.Context(), "g", []string{"a"})
	wantOutcome(t, err, consumer.OutcomeUnavailable)
}

// A table under ALTER makes a claim wait no longer than the lock time-out.
func TestAlteredTableIsContention(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, lock := range []string{`LOCK TABLES mq_consume_record WRITE`} {
		if _, err := conn.ExecContext(t.Context(), lock); err != nil {
			t.Fatal(err)
		}
	}
	_, err = db.store(t, mysqlstore.Options{LockTimeout: time.Second}).Claim(t.Context(), "g", []string{"a"})
	wantOutcome(t, err, consumer.OutcomeContention)
	if _, err := conn.ExecContext(t.Context(), `UNLOCK TABLES`); err != nil {
		t.Fatal(err)
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const columns = `id BIGINT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64) %s NOT NULL, consumer_group VARCHAR(64) %s NOT NULL, consumed_at DATETIME NOT NULL`
	table := func(event, group, rest string) string {
		return "CREATE TABLE mq_consume_record (" + fmt.Sprintf(columns, event, group) + rest
	}
	const bin, unique = `COLLATE utf8mb4_bin`, `, UNIQUE KEY uk_event_consumer (event_id, consumer_group))`
	cases := []struct{ name, ddl, want string }{
		{"missing", ``, "table is missing"},
		{"no key", table(bin, bin, `)`), "no unique key"},
		{"another name", table(bin, bin, `, UNIQUE KEY other (event_id, consumer_group))`), "no unique key uk_event_consumer"},
		{"not unique", table(bin, bin, `, KEY uk_event_consumer (event_id, consumer_group))`), "no unique key"},
		{"one column", table(bin, bin, `, UNIQUE KEY uk_event_consumer (event_id))`), "no unique key"},
		{"three columns", table(bin, bin, `, UNIQUE KEY uk_event_consumer (event_id, consumer_group, id))`), "no unique key"},
		{"prefix", table(bin, bin, `, UNIQUE KEY uk_event_consumer (event_id(10), consumer_group))`), "full length"},
		{"event collation", table(`COLLATE utf8mb4_general_ci`, bin, unique), "ALTER TABLE mq_consume_record MODIFY event_id varchar(64)"},
		{"group collation", table(bin, `COLLATE utf8mb4_unicode_ci`, unique), "take different events"},
		{"engine", table(bin, bin, unique) + ` ENGINE = MyISAM`, "only InnoDB"},
		{"narrow group", strings.Replace(table(bin, bin, unique), "consumer_group VARCHAR(64)", "consumer_group VARCHAR(4)", 1), "holds 4 characters"},
		{"the specification's widths", table(bin, bin, unique), ""},
		{"bytes", table(`COLLATE binary`, `COLLATE binary`, unique), ""},
		{"columns the other way round", table(bin, bin, `, UNIQUE KEY uk_event_consumer (consumer_group, event_id))`), ""},
		{"ours", mysqlstore.DDL, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := empty(t)
			if c.ddl != "" {
				db.exec(t, c.ddl)
			}
			store := db.store(t, mysqlstore.Options{})
			err := store.Check(t.Context(), "points")
			if (err == nil) != (c.want == "") || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("check says %v, want %q", err, c.want)
			}
			if c.want == "" {
				claim, err := store.Claim(t.Context(), "points", []string{"a"})
				if err != nil {
					t.Fatal(err)
				}
				claim.Rollback(t.Context())
			}
		})
	}
}

// The remedy that the check names makes the table good.
func TestRemedyOfTheCollation(t *testing.T) {
	t.Parallel()
	db := empty(t)
	db.exec(t, strings.ReplaceAll(mysqlstore.DDL, "utf8mb4_bin", "utf8mb4_general_ci"))
	store := db.store(t, mysqlstore.Options{})
	_, remedy, found := strings.Cut(fmt.Sprint(store.Check(t.Context(), "points")), "To change that: ")
	if !found {
		t.Fatal("no remedy")
	}
	db.exec(t, remedy)
	if err := store.Check(t.Context(), "points"); err != nil {
		t.Error(err)
	}
}
