package mysqlstore_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/storetest"
)

const day = 24 * time.Hour

// archived is a database with consume records, counters and an archive, and the
// pool that a keeper takes.
func archived(t *testing.T) (database, *sql.DB) {
	t.Helper()
	db := prepared(t)
	pool, err := mysqlstore.OpenPool(db.cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	if err := mysqlstore.MigrateArchive(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return db, pool
}

// age inserts records past the guard. Months of long ago get none of their own:
// an archive's first one takes all that is older.
func (db database) age(t *testing.T, group string, ago time.Duration, ids ...string) {
	t.Helper()
	for _, id := range ids {
		db.exec(t, `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES (?, ?, UTC_TIMESTAMP() - INTERVAL ? SECOND)`,
			id, group, int64(ago.Seconds()))
	}
}

func (db database) archivedIDs(t *testing.T, group string) []string {
	t.Helper()
	return query[string](t, db, `SELECT event_id FROM mq_consume_record_archive WHERE consumer_group = ? ORDER BY event_id`, group)
}

func sweepOf(pool *sql.DB) func(context.Context, storetest.Sweep) (storetest.Swept, error) {
	return func(ctx context.Context, o storetest.Sweep) (storetest.Swept, error) {
		k, err := mysqlstore.NewKeeper(pool, mysqlstore.KeeperOptions{
			Keep:    func(context.Context) (map[string]time.Duration, error) { return o.Keep, nil },
			Archive: o.Archive, Hot: o.Hot, Chunk: o.Chunk, MaxShare: o.MaxShare,
		})
		if err != nil {
			return storetest.Swept{}, err
		}
		done, err := k.RunOnce(ctx)
		return storetest.Swept{Deleted: done.Deleted, Moved: done.Moved, Dropped: len(done.Dropped), Busy: done.Busy}, err
	}
}

func TestRetention(t *testing.T) {
	t.Parallel()
	storetest.RunRetention(t, func(t *testing.T) storetest.Retention[mysqlstore.Tx] {
		db := prepared(t)
		db.age(t, "first", 500*day, "first") // the archive begins with its month
		pool, err := mysqlstore.OpenPool(db.cfg, mysqlstore.PoolOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { pool.Close() })
		if err := mysqlstore.MigrateArchive(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		db.exec(t, `DELETE FROM mq_consume_record`)
		return storetest.Retention[mysqlstore.Tx]{
			Fixture: db.fixture(t, mysqlstore.Options{Archive: &mysqlstore.ArchiveOptions{}}), Plain: db.store(t, mysqlstore.Options{}),
			Age: db.age, Archived: db.archivedIDs, Sweep: sweepOf(pool), Implausible: mysqlstore.ErrImplausible,
		}
	})
}

// A store with an archive is a store as any other.
func TestConformanceWithArchive(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture[mysqlstore.Tx] {
		db, _ := archived(t)
		return db.fixture(t, mysqlstore.Options{Archive: &mysqlstore.ArchiveOptions{}})
	})
}

// A table that others have made, with more columns, another type of time and a
// narrower id, is used as it is, and becomes one with an archive while it is full.
func TestArchiveOfAnotherTable(t *testing.T) {
	t.Parallel()
	db := empty(t)
	db.exec(t, `CREATE TABLE mq_consume_record (id INT AUTO_INCREMENT PRIMARY KEY, event_id VARCHAR(64) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL,
		consumer_group VARCHAR(100) COLLATE utf8mb4_bin NOT NULL, consumed_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), note TEXT,
		UNIQUE KEY uk_event_consumer (event_id, consumer_group))`)
	db.exec(t, sqlCounters)
	db.age(t, "g", 400*day, "é-1")
	db.age(t, "g", 40*day, "a")
	db.age(t, "g", day, "young")
	pool, err := mysqlstore.OpenPool(db.cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Close() })
	for range 2 { // it may run again
		if err := mysqlstore.MigrateArchive(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := sweepOf(pool)(t.Context(), storetest.Sweep{Archive: true, Hot: 30 * day}); err != nil || done.Moved != 2 {
		t.Fatalf("%+v, %v", done, err)
	}
	store := db.store(t, mysqlstore.Options{Archive: &mysqlstore.ArchiveOptions{}})
	if err := store.Check(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	c, err := store.Claim(t.Context(), "g", []string{"é-1", "a", "young", "new"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Rollback(t.Context())
	if c.Fresh("é-1") || c.Fresh("a") || c.Fresh("young") || !c.Fresh("new") {
		t.Error("not what was consumed before is a duplicate")
	}
	oldest, err := mysqlstore.SinceArchived(t.Context(), pool, "g")
	if err != nil || oldest == nil || time.Since(*oldest) < 399*day {
		t.Errorf("oldest %v, %v", oldest, err)
	}
	at, err := mysqlstore.FindArchived(t.Context(), pool, "g", "é-1")
	if err != nil || at == nil || time.Since(*at) < 399*day {
		t.Errorf("found %v, %v", at, err)
	}
	if at, err := mysqlstore.FindArchived(t.Context(), pool, "g", "none"); at != nil || err != nil {
		t.Errorf("found %v, %v", at, err)
	}
}

// Without the guard a consumer that does not look would apply an event again.
func TestNothingMovesWithoutTheGuard(t *testing.T) {
	t.Parallel()
	db, pool := archived(t)
	db.age(t, "g", 100*day, "a")
	db.exec(t, `DROP TRIGGER mq_consume_record_guard`)
	_, err := sweepOf(pool)(t.Context(), storetest.Sweep{Archive: true, Hot: 30 * day})
	if err == nil || !strings.Contains(err.Error(), "guard") {
		t.Errorf("moved: %v", err)
	}
	if got := db.archivedIDs(t, "g"); len(got) != 0 {
		t.Errorf("in the archive: %v", got)
	}
}

// A program that writes several rows in one statement meets the guard in each.
func TestGuardOfAnotherProgram(t *testing.T) {
	t.Parallel()
	db, pool := archived(t)
	db.age(t, "g", 100*day, "a")
	if _, err := sweepOf(pool)(t.Context(), storetest.Sweep{Archive: true, Hot: 30 * day}); err != nil {
		t.Fatal(err)
	}
	_, err := db.ExecContext(t.Context(), `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES ('b', 'g', UTC_TIMESTAMP()), ('a', 'g', UTC_TIMESTAMP())`)
	if mysqlstore.DuplicateKey(err) != "uk_event_consumer" {
		t.Errorf("inserted: %v", err)
	}
	if got := db.records(t, "g"); len(got) != 0 {
		t.Errorf("records %v", got)
	}
}

// Months are added behind the last one, also when no keeper ran for a long time.
func TestMonthsThatAreMissing(t *testing.T) {
	t.Parallel()
	db, pool := archived(t)
	months := `SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = 'mq_consume_record_archive'`
	db.exec(t, `ALTER TABLE mq_consume_record_archive ADD PARTITION (PARTITION far VALUES LESS THAN ('2100-01-01 00:00:00'))`)
	db.exec(t, `ALTER TABLE mq_consume_record_archive DROP PARTITION far`)
	db.exec(t, `ALTER TABLE mq_consume_record_archive PARTITION BY RANGE COLUMNS (consumed_at) (PARTITION p2020_01 VALUES LESS THAN ('2020-02-01 00:00:00'))`)
	db.age(t, "g", 100*day, "a")
	if done, err := sweepOf(pool)(t.Context(), storetest.Sweep{Archive: true, Hot: 30 * day}); err != nil || done.Moved != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if n := query[int](t, db, months)[0]; n < 60 {
		t.Errorf("%d months", n)
	}
}

func TestArchiveMayBeLeftOutOnlyWhereNothingIsAskedFor(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	for _, o := range []mysqlstore.ArchiveOptions{
		{SkipProbe: true}, {SkipProbe: true, Hot: 30 * day}, {SkipProbe: true, Hot: 30 * day, Required: 31 * day}, {SkipProbe: true, Hot: mysqlstore.Forever, Required: mysqlstore.Forever},
	} {
		if _, err := mysqlstore.Open(db.cfg, mysqlstore.Options{Archive: &o}); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	store := db.store(t, mysqlstore.Options{Archive: &mysqlstore.ArchiveOptions{SkipProbe: true, Hot: 31 * day, Required: 31 * day}})
	err := store.Check(t.Context(), "g")
	wantOutcome(t, err, consumer.OutcomeUnavailable)
	if err == nil || !strings.Contains(err.Error(), mysqlstore.Archive) {
		t.Errorf("check without an archive: %v", err)
	}
}

// The host's clock may be years off: what is old is the database's to say.
func TestNoClockButTheDatabases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("retention*.go")
	if err != nil || len(files) < 4 {
		t.Fatalf("files %v: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && strings.Contains(string(text), "time.Now") {
			t.Errorf("%s looks at the host's clock", file)
		}
	}
}

func TestWhatAKeeperLacks(t *testing.T) {
	t.Parallel()
	db := prepared(t)
	owner, err := mysqlstore.OpenPool(db.cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { owner.Close() })
	lacks := func(pool *sql.DB, archive bool, want string) {
		t.Helper()
		err := mysqlstore.CheckKeeper(t.Context(), pool, archive)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("lacks %v, want %q", err, want)
		}
	}
	lacks(owner, false, "")
	lacks(owner, true, "there is no table")
	if err := mysqlstore.MigrateArchive(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	lacks(owner, true, "")
	user := "u_" + db.cfg.DBName[2:22]
	db.exec(t, `CREATE USER `+user+`@'%' IDENTIFIED BY 'secret'`)
	t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), `DROP USER `+user+`@'%'`) })
	db.exec(t, `GRANT SELECT, INSERT ON `+db.cfg.DBName+`.* TO `+user+`@'%'`)
	cfg := db.cfg.Clone()
	cfg.User, cfg.Passwd = user, "secret"
	poor, err := mysqlstore.OpenPool(cfg, mysqlstore.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { poor.Close() })
	lacks(poor, false, "delete from mq_consume_record: Error 1142")
	db.exec(t, `GRANT DELETE ON `+db.cfg.DBName+`.mq_consume_record TO `+user+`@'%'`)
	lacks(poor, false, "")
	db.exec(t, `DROP TRIGGER mq_consume_record_guard`)
	lacks(owner, true, "trigger")
}
