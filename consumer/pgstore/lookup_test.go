package pgstore_test

import (
	"testing"

	"oncemore/consumer/pgstore"
	"oncemore/migrations/pgtest"
)

func TestLookupOfRecords(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, pgtest.Empty(t))
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if at, err := pgstore.Since(t.Context(), pool, "g"); err != nil || at != nil {
		t.Errorf("since of an empty table: %v, %v", at, err)
	}
	const insert = `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at)
		VALUES ('old', 'g', '2026-01-02Z'), ('new', 'g', '2026-03-04Z'), ('other', 'h', '2025-01-01Z')`
	if _, err := pool.Exec(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	since, err := pgstore.Since(t.Context(), pool, "g")
	if err != nil || since == nil || since.UTC().Format("2006-01-02") != "2026-01-02" {
		t.Errorf("since: %v, %v", since, err)
	}
	if at, err := pgstore.Find(t.Context(), pool, "g", "new"); err != nil || at == nil || at.UTC().Format("2006-01-02") != "2026-03-04" {
		t.Errorf("find: %v, %v", at, err)
	}
	if at, err := pgstore.Find(t.Context(), pool, "g", "NEW"); err != nil || at != nil {
		t.Errorf("an id of another case was found: %v, %v", at, err)
	}
}
