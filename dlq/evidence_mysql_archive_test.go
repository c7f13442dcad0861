package dlq

import (
	"testing"
	"time"

	"oncemore/consumer/mysqlstore"
	"oncemore/internal/testkit"
)

// A record that was moved is a record still.
func TestMySQLEvidenceLooksIntoTheArchive(t *testing.T) {
	t.Parallel()
	db, err := mysqlstore.OpenPool(testkit.MySQL(t), mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := mysqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	const insert = `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES (?, 'points', UTC_TIMESTAMP() - INTERVAL ? DAY)`
	runMySQL(t, db, insert, "old", 90)
	runMySQL(t, db, insert, "young", 1)
	e := mariaEvidence(db)
	if r, ok, failed := askOne(t, e, "old", "points"); !ok || failed != nil || !r.exact {
		t.Fatalf("before: %+v %v %v", r, ok, failed)
	}
	if err := mysqlstore.MigrateArchive(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	runMySQL(t, db, `INSERT INTO mq_consume_record_archive SELECT event_id, consumer_group, consumed_at FROM mq_consume_record WHERE event_id = 'old'`)
	runMySQL(t, db, `DELETE FROM mq_consume_record WHERE event_id = 'old'`)
	for id, days := range map[string]int{"old": 90, "young": 1} {
		r, ok, failed := askOne(t, e, id, "points")
		if !ok || failed != nil || !r.exact || r.at == nil || int(time.Since(*r.at).Hours()/24) != days {
			t.Errorf("%s: %+v %v %v", id, r, ok, failed)
		}
	}
	if _, ok, _ := askOne(t, e, "never", "points"); ok {
		t.Error("found what never was")
	}
}
