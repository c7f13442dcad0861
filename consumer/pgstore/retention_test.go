package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
	"oncemore/consumer/storetest"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

const day = 24 * time.Hour

// archived is a business database with an archive.
func archived(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := database(t)
	if err := pgstore.MigrateArchive(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return pool
}

// age inserts records of a group that were consumed so long ago, without a claim.
func age(t *testing.T, pool *pgxpool.Pool, group string, ago time.Duration, ids ...string) {
	t.Helper()
	mustExec(t, pool, `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at)
		SELECT id, $2, now() - make_interval(secs => $3) FROM unnest($1::text[]) AS u(id)`, ids, group, ago.Seconds())
}

func several(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return ids
}

func keeping(keep map[string]time.Duration) func(context.Context) (map[string]time.Duration, error) {
	return func(context.Context) (map[string]time.Duration, error) { return keep, nil }
}

func keeper(t *testing.T, pool *pgxpool.Pool, o pgstore.KeeperOptions) *pgstore.Keeper {
	t.Helper()
	k, err := pgstore.NewKeeper(pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sweepOnce waits for the session of a keeper that was cut off before to end.
func sweepOnce(t *testing.T, pool *pgxpool.Pool, o pgstore.KeeperOptions) (done pgstore.Swept) {
	t.Helper()
	k := keeper(t, pool, o)
	testkit.Eventually(t, 30*time.Second, func() bool {
		var err error
		if done, err = k.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		return !done.Busy
	}, "the keeper has its lock")
	return done
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

func archiveOf(t *testing.T, pool *pgxpool.Pool, group string) []string {
	t.Helper()
	return query[string](t, pool, `SELECT event_id FROM mq_consume_record_archive WHERE consumer_group = $1 ORDER BY 1`, group)
}

// take claims the ids with a look into the archive and counts the fresh ones up.
func take(ctx context.Context, store consumer.Store[pgstore.Tx], ids ...string) (fresh int, err error) {
	for {
		c, err := store.Claim(ctx, "g", ids)
		if consumer.OutcomeOf(err) == consumer.OutcomeContention {
			continue
		}
		if err != nil {
			return 0, err
		}
		for _, id := range ids {
			if c.Fresh(id) {
				c.Tx().Queue(sqlAdd, id, 1)
				fresh++
			}
		}
		err = c.Commit(ctx)
		c.Rollback(ctx)
		return fresh, err
	}
}

func withArchive(t *testing.T, pool *pgxpool.Pool) *pgstore.ArchiveStore {
	t.Helper()
	s, err := pgstore.New(pool, pgstore.Options{}).WithArchive(pgstore.ArchiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDeletesInChunksWhatIsNotNeeded(t *testing.T) {
	t.Parallel()
	pool := database(t)
	age(t, pool, "g", 100*day, several("old", 95)...)
	age(t, pool, "for-ever", 900*day, "a", "b")
	age(t, pool, "unknown", 900*day, "a", "b")
	age(t, pool, "g", 89*day, several("young", 200)...)
	age(t, pool, "g", 100*day, several("late", 5)...) // out of order, as after a long transaction
	o := pgstore.KeeperOptions{Chunk: 10, Keep: keeping(map[string]time.Duration{"g": 90 * day, "for-ever": pgstore.Forever})}
	if done := sweepOnce(t, pool, o); done.Deleted != 95 {
		t.Errorf("deleted %d", done.Deleted)
	}
	if got := records(t, pool, "g"); len(got) != 205 {
		t.Errorf("%d records are left", len(got))
	}
	if len(records(t, pool, "for-ever")) != 2 || len(records(t, pool, "unknown")) != 2 {
		t.Error("records of a group that keeps its own were dropped")
	}
	age(t, pool, "g", 1*day, "new")
	mustExec(t, pool, `DELETE FROM mq_consume_record WHERE event_id LIKE 'young-%' AND consumer_group = 'g'`)
	if done := sweepOnce(t, pool, pgstore.KeeperOptions{MaxShare: 1, Keep: o.Keep}); done.Deleted != 5 {
		t.Errorf("then deleted %d", done.Deleted)
	}
}

func TestImplausibleShareIsRefused(t *testing.T) {
	t.Parallel()
	keep := keeping(map[string]time.Duration{"g": 90 * day})
	pool := database(t)
	age(t, pool, "g", 100*day, several("old", 51)...)
	age(t, pool, "g", 1*day, several("young", 49)...)
	done, err := keeper(t, pool, pgstore.KeeperOptions{Keep: keep}).RunOnce(t.Context())
	if !errors.Is(err, pgstore.ErrImplausible) || done.Deleted != 0 || len(records(t, pool, "g")) != 100 {
		t.Errorf("deleted %d: %v", done.Deleted, err)
	}
	if done := sweepOnce(t, pool, pgstore.KeeperOptions{Keep: keep, MaxShare: 0.6}); done.Deleted != 51 {
		t.Errorf("allowed, it deleted %d", done.Deleted)
	}

	pool = archived(t)
	age(t, pool, "g", 200*day, several("old", 51)...)
	age(t, pool, "g", 1*day, several("young", 49)...)
	o := pgstore.KeeperOptions{Keep: keep, Archive: true, Hot: 30 * day}
	done, err = keeper(t, pool, o).RunOnce(t.Context())
	if !errors.Is(err, pgstore.ErrImplausible) || done.Moved != 51 || len(done.Dropped) != 0 || len(archiveOf(t, pool, "g")) != 51 {
		t.Errorf("archive: %+v: %v", done, err)
	}
}

func TestRetentionThatIsNotKnownDropsNothing(t *testing.T) {
	t.Parallel()
	pool := database(t)
	age(t, pool, "g", 1000*day, "old")
	age(t, pool, "g", 0, "a", "b", "c")
	for name, keep := range map[string]func(context.Context) (map[string]time.Duration, error){
		"not known": func(context.Context) (map[string]time.Duration, error) {
			return nil, errors.New("broker does not answer")
		},
		"zero":     keeping(map[string]time.Duration{"g": 0}),
		"negative": keeping(map[string]time.Duration{"g": -1}),
	} {
		done, err := keeper(t, pool, pgstore.KeeperOptions{Keep: keep}).RunOnce(t.Context())
		if err == nil || done.Deleted != 0 {
			t.Errorf("%s: deleted %d: %v", name, done.Deleted, err)
		}
	}
	never := pgstore.KeeperOptions{Keep: keeping(map[string]time.Duration{"g": pgstore.Forever}), MaxShare: 1}
	if done := sweepOnce(t, pool, never); done.Deleted != 0 || len(records(t, pool, "g")) != 4 {
		t.Errorf("for ever: deleted %d", done.Deleted)
	}
}

func TestOneKeeperWorks(t *testing.T) {
	t.Parallel()
	pool := database(t)
	inside, release := make(chan struct{}), make(chan struct{})
	first := keeper(t, pool, pgstore.KeeperOptions{Keep: func(context.Context) (map[string]time.Duration, error) {
		close(inside)
		<-release
		return nil, nil
	}})
	ended := make(chan error, 1)
	go func() { _, err := first.RunOnce(t.Context()); ended <- err }()
	<-inside
	second := keeper(t, pool, pgstore.KeeperOptions{Keep: keeping(nil)})
	if done, err := second.RunOnce(t.Context()); err != nil || !done.Busy {
		t.Errorf("beside another: %+v, %v", done, err)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if done, err := second.RunOnce(t.Context()); err != nil || done.Busy {
		t.Errorf("after the other: %+v, %v", done, err)
	}
}

// Everything that was ever consumed comes again, after most of it was archived.
func TestReplayOfEverythingChangesNothing(t *testing.T) {
	t.Parallel()
	pool := archived(t)
	old, young := several("old", 3000), several("young", 200)
	age(t, pool, "g", 400*day, old[:1000]...)
	age(t, pool, "g", 100*day, old[1000:]...)
	age(t, pool, "g", 1*day, young...)
	o := pgstore.KeeperOptions{Archive: true, Hot: 30 * day, Chunk: 170, Keep: keeping(map[string]time.Duration{"g": pgstore.Forever})}
	if done := sweepOnce(t, pool, o); done.Moved != 3000 {
		t.Fatalf("moved %d", done.Moved)
	}
	store := withArchive(t, pool)
	all := append(slices.Concat(old, young), "new-1", "new-2")
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	fresh := 0
	for chunk := range slices.Chunk(all, 100) {
		n, err := take(t.Context(), store, chunk...)
		if err != nil {
			t.Fatal(err)
		}
		fresh += n
	}
	if got := query[string](t, pool, `SELECT key FROM counter ORDER BY 1`); fresh != 2 || fmt.Sprint(got) != "[new-1 new-2]" {
		t.Errorf("%d fresh: %v", fresh, got)
	}
	if hot := records(t, pool, "g"); len(hot) != 202 || len(archiveOf(t, pool, "g")) != 3000 {
		t.Errorf("%d records in the table, %d in the archive", len(hot), len(archiveOf(t, pool, "g")))
	}
	if n, err := take(t.Context(), store, "new-1"); err != nil || n != 0 {
		t.Errorf("the new event again: %d, %v", n, err)
	}
}

// The mover works on the very records that are claimed again at the same time.
func TestMoverRacesClaims(t *testing.T) {
	t.Parallel()
	pool := archived(t)
	conf := pool.Config()
	conf.MaxConns = 20
	many, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer many.Close()
	ids := several("ev", 4000)
	age(t, pool, "g", 100*day, ids...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var moved, effects atomic.Int64
	var movers, claimers sync.WaitGroup
	movers.Go(func() {
		k := keeper(t, many, pgstore.KeeperOptions{Archive: true, Hot: 30 * day, Chunk: 7, Keep: keeping(nil)})
		for ctx.Err() == nil {
			done, err := k.RunOnce(ctx)
			if err != nil && ctx.Err() == nil {
				t.Errorf("mover: %v", err)
				return
			}
			moved.Add(done.Moved)
		}
	})
	store := withArchive(t, many)
	for w := range 12 {
		claimers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for at := 0; at+5 <= len(ids); at += 1 + random.IntN(20) {
				n, err := take(t.Context(), store, ids[at:at+5]...)
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				effects.Add(int64(n))
			}
		})
	}
	claimers.Wait()
	cancel()
	movers.Wait()
	if moved.Load() == 0 {
		t.Error("the mover moved nothing: there was no race")
	}
	if effects.Load() != 0 || len(query[string](t, pool, `SELECT key FROM counter`)) != 0 {
		t.Errorf("%d events took effect a second time", effects.Load())
	}
	if n := len(records(t, pool, "g")) + len(archiveOf(t, pool, "g")); n != len(ids) {
		t.Errorf("%d records, want %d", n, len(ids))
	}
}

// A record that is being moved while it is claimed: the claim waits, and finds it.
func TestClaimWaitsForTheMove(t *testing.T) {
	t.Parallel()
	pool := archived(t)
	age(t, pool, "g", 100*day, "a", "b")
	sweepOnce(t, pool, pgstore.KeeperOptions{Archive: true, Hot: 30 * day, Keep: keeping(nil)})
	age(t, pool, "g", 100*day, "moving")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // harmless after Commit
	const move = `WITH gone AS (DELETE FROM mq_consume_record WHERE event_id = 'moving' RETURNING event_id, consumer_group, consumed_at)
		INSERT INTO mq_consume_record_archive (event_id, consumer_group, consumed_at) SELECT * FROM gone`
	if _, err := tx.Exec(t.Context(), move); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		n   int
		err error
	}
	claimed := make(chan answer, 1)
	go func() {
		n, err := take(t.Context(), withArchive(t, pool), "moving")
		claimed <- answer{n, err}
	}()
	for query[int](t, pool, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)[0] == 0 {
		select {
		case a := <-claimed:
			t.Fatalf("the claim did not wait: %+v", a)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-claimed; a.err != nil || a.n != 0 {
		t.Errorf("claimed %d: %v", a.n, a.err)
	}
}

// A program that knows no archive gets the violation of the unique constraint
// that it always got; a store without the look waits, and has no effect.
func TestGuardAgainstProgramsThatDoNotLook(t *testing.T) {
	t.Parallel()
	pool := archived(t)
	age(t, pool, "g", 100*day, "old")
	sweepOnce(t, pool, pgstore.KeeperOptions{Archive: true, Hot: 30 * day, Keep: keeping(nil)})
	_, err := pool.Exec(t.Context(), `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at) VALUES ('old', 'g', now())`)
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23505" || pg.ConstraintName != "uk_event_consumer" {
		t.Errorf("a plain insert: %v", err)
	}
	if c, err := pgstore.New(pool, pgstore.Options{}).Claim(t.Context(), "g", []string{"old", "new"}); consumer.OutcomeOf(err) != consumer.OutcomeUnavailable {
		t.Errorf("a store without the look: %v, %v", c, err)
	}
	if n, err := take(t.Context(), pgstore.New(pool, pgstore.Options{}), "new"); err != nil || n != 1 {
		t.Errorf("a new event in a store without the look: %d, %v", n, err)
	}
	mustExec(t, pool, `DROP TRIGGER mq_consume_record_guard ON mq_consume_record`)
	age(t, pool, "g", 100*day, "older")
	done, err := keeper(t, pool, pgstore.KeeperOptions{Archive: true, Hot: 30 * day, Keep: keeping(nil)}).RunOnce(t.Context())
	if err == nil || done.Moved != 0 {
		t.Errorf("without the guard: %+v, %v", done, err)
	}
}

func TestMonthsAreDroppedWhenNothingInThemIsNeeded(t *testing.T) {
	t.Parallel()
	pool := archived(t)
	// in the middle of their months: the first ended at most 31 days ago, the third at least 59
	for _, months := range []int{1, 3, 5, 7} {
		mustExec(t, pool, `INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at)
			SELECT 'e' || i, g, date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - make_interval(months => $1) + interval '14 days'
			FROM generate_series($1 * 100, $1 * 100 + 9) i, unnest(ARRAY['g', 'h']) g`, months)
	}
	mustExec(t, pool, `DELETE FROM mq_consume_record WHERE consumer_group = 'h' AND event_id NOT LIKE 'e5%'`)
	o := pgstore.KeeperOptions{Archive: true, Hot: 10 * day, Keep: keeping(map[string]time.Duration{"g": 50 * day})}
	done := sweepOnce(t, pool, o)
	left := query[string](t, pool, `SELECT DISTINCT left(event_id, 2) FROM mq_consume_record_archive ORDER BY 1`)
	if len(done.Dropped) != 2 || fmt.Sprint(left) != "[e1 e5]" {
		t.Errorf("dropped %v, left %v: month 5 has records of a group that is not known", done.Dropped, left)
	}
	o.Keep = keeping(map[string]time.Duration{"g": 50 * day, "h": pgstore.Forever})
	if done := sweepOnce(t, pool, o); len(done.Dropped) != 0 {
		t.Errorf("dropped %v of a group that keeps for ever", done.Dropped)
	}
	o.Keep, o.MaxShare = keeping(map[string]time.Duration{"g": 50 * day, "h": 50 * day}), 1
	if done := sweepOnce(t, pool, o); len(done.Dropped) != 1 || len(archiveOf(t, pool, "h")) != 0 {
		t.Errorf("dropped %v", done.Dropped)
	}
	if got := query[int](t, pool, `SELECT count(*)::int FROM pg_class WHERE relname ~ '_\d{4}_\d{2}$' AND relkind = 'r'`); got[0] != 1 {
		t.Errorf("%d month tables are left", got[0])
	}
}

// A detach that was interrupted is finished by the next run.
func TestInterruptedDropIsFinished(t *testing.T) {
	t.Parallel()
	pool := archived(t)
	age(t, pool, "g", 400*day, "old")
	age(t, pool, "g", 1*day, "a", "b", "c")
	o := pgstore.KeeperOptions{Archive: true, Hot: 30 * day, Keep: keeping(map[string]time.Duration{"g": pgstore.Forever})}
	sweepOnce(t, pool, o)
	reader, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(context.Background()) //nolint:errcheck // it only reads
	if _, err := reader.Exec(t.Context(), `SELECT count(*) FROM mq_consume_record_archive`); err != nil {
		t.Fatal(err)
	}
	o.Keep = keeping(map[string]time.Duration{"g": 90 * day})
	cutOff, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if done, err := keeper(t, pool, o).RunOnce(cutOff); err == nil {
		t.Fatalf("dropped %v while it was read", done.Dropped)
	}
	if n, err := take(t.Context(), withArchive(t, pool), "d"); err != nil || n != 1 {
		t.Errorf("a claim meanwhile: %d, %v", n, err)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	sweepOnce(t, pool, o)
	if got := query[int](t, pool, `SELECT count(*)::int FROM pg_class WHERE relname ~ '_\d{4}_\d{2}$' AND relkind = 'r'`); got[0] != 0 {
		t.Errorf("%d month tables are left", got[0])
	}
}

// An existing plain table with data is given an archive and moved in part, while
// consumers of either kind go on; the next run goes on where it ended.
func TestConversionIsResumable(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, pgtest.Empty(t))
	mustExec(t, pool, sqlCounters)
	mustExec(t, pool, `CREATE TABLE mq_consume_record (id bigserial PRIMARY KEY, event_id varchar(64) NOT NULL, consumer_group varchar(64) NOT NULL,
		trace text, consumed_at timestamptz NOT NULL DEFAULT now(), CONSTRAINT uk_event_consumer UNIQUE (event_id, consumer_group))`)
	ids := several("old", 2000)
	age(t, pool, "g", 100*day, ids...)
	if err := pgstore.MigrateArchive(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if err := pgstore.MigrateArchive(t.Context(), pool); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := pgstore.KeeperOptions{Archive: true, Hot: 30 * day, Chunk: 20, Keep: keeping(nil)}
	ended := make(chan error, 1)
	go func() { _, err := keeper(t, pool, o).RunOnce(ctx); ended <- err }()
	for len(archiveOf(t, pool, "g")) == 0 {
		if n, err := take(t.Context(), withArchive(t, pool), ids[rand.IntN(len(ids))]); err != nil || n != 0 {
			t.Fatalf("while it moves: %d, %v", n, err)
		}
	}
	cancel()
	<-ended // cut off, or done before that
	// In one statement: the server may still be at the chunk that was cut off.
	both := query[int](t, pool, `SELECT ((SELECT count(*) FROM mq_consume_record) + (SELECT count(*) FROM mq_consume_record_archive))::int`)
	if both[0] != len(ids) {
		t.Errorf("%d records after the interruption, want %d", both[0], len(ids))
	}
	sweepOnce(t, pool, o)
	if hot := records(t, pool, "g"); len(hot) != 0 || len(archiveOf(t, pool, "g")) != len(ids) {
		t.Errorf("%d records were not moved", len(hot))
	}
	if n, err := take(t.Context(), withArchive(t, pool), ids[0], ids[1999]); err != nil || n != 0 {
		t.Errorf("afterwards: %d, %v", n, err)
	}
}

func TestProbeIsSkippedOnlyWhereNothingIsMissed(t *testing.T) {
	t.Parallel()
	pool := archived(t)
	store := pgstore.New(pool, pgstore.Options{})
	for name, o := range map[string]pgstore.ArchiveOptions{
		"nothing known": {SkipProbe: true},
		"hot too short": {SkipProbe: true, Hot: 54 * day, Required: 55 * day},
		"for ever":      {SkipProbe: true, Hot: pgstore.Forever, Required: pgstore.Forever},
		"not computed":  {SkipProbe: true, Hot: 90 * day},
	} {
		if _, err := store.WithArchive(o); err == nil {
			t.Errorf("%s: skipped", name)
		}
	}
	skipping, err := store.WithArchive(pgstore.ArchiveOptions{SkipProbe: true, Hot: 55 * day, Required: 55 * day})
	if err != nil {
		t.Fatal(err)
	}
	age(t, pool, "g", 100*day, "old")
	sweepOnce(t, pool, pgstore.KeeperOptions{Archive: true, Hot: 55 * day, Keep: keeping(nil)})
	if n, err := take(t.Context(), skipping, "old"); err != nil || n != 1 {
		t.Errorf("it looked into the archive all the same: %d, %v", n, err)
	}
}

func TestTablesThatCannotBeSwept(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]string{
		"no id":       `(event_id text, consumer_group text, consumed_at timestamptz, UNIQUE (event_id, consumer_group))`,
		"id is text":  `(id text PRIMARY KEY, event_id text, consumer_group text, consumed_at timestamptz, UNIQUE (event_id, consumer_group))`,
		"no id index": `(id bigserial, event_id text, consumer_group text, consumed_at timestamptz, UNIQUE (event_id, consumer_group))`,
	} {
		pool := pgtest.Open(t, pgtest.Empty(t))
		mustExec(t, pool, `CREATE TABLE mq_consume_record `+table)
		if _, err := keeper(t, pool, pgstore.KeeperOptions{Keep: keeping(nil)}).RunOnce(t.Context()); err == nil || !strings.Contains(err.Error(), "column id") {
			t.Errorf("%s: %v", name, err)
		}
	}
	pool := pgtest.Open(t, pgtest.Empty(t))
	mustExec(t, pool, `CREATE TABLE mq_consume_record (id bigserial PRIMARY KEY, event_id text, consumer_group text, consumed_at timestamp, UNIQUE (event_id, consumer_group))`)
	if err := pgstore.MigrateArchive(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "timestamptz") {
		t.Errorf("local time: %v", err)
	}
	if err := withArchive(t, pool).Check(t.Context(), "g"); consumer.OutcomeOf(err) != consumer.OutcomeUnavailable {
		t.Errorf("check without an archive: %v", err)
	}
}

// The store with an archive is a store like any other.
func TestArchiveConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Fixture[pgstore.Tx] { return archiveFixture(t, archived(t)) })
}

func archiveFixture(t *testing.T, watcher *pgxpool.Pool) storetest.Fixture[pgstore.Tx] {
	t.Helper()
	store := func(pool *pgxpool.Pool) *pgstore.ArchiveStore {
		s, err := pgstore.New(pool, pgstore.Options{LockTimeout: time.Second}).WithArchive(pgstore.ArchiveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return storetest.Fixture[pgstore.Tx]{
		Store: store(pgtest.Open(t, watcher.Config().ConnString())),
		Add: func(ctx context.Context, tx pgstore.Tx, key string, n int) error {
			_, err := tx.Exec(ctx, sqlAdd, key, n)
			return err
		},
		Fail: func(ctx context.Context, tx pgstore.Tx) error {
			_, err := tx.Exec(ctx, `SELECT 1 / $1::int`, 0)
			return err
		},
		Read:        func(t *testing.T, key string) int { return counter(t, watcher, key) },
		Records:     func(t *testing.T, group string) []string { return records(t, watcher, group) },
		Cut:         func(t *testing.T) { cut(t, watcher) },
		Unreachable: store(pgtest.Open(t, "postgres://nobody@"+closedPort(t)+"/none?sslmode=disable")),
	}
}

// The cases that every store with an archive has to pass.
func TestRetentionConformance(t *testing.T) {
	t.Parallel()
	storetest.RunRetention(t, func(t *testing.T) storetest.Retention[pgstore.Tx] {
		watcher := archived(t)
		return storetest.Retention[pgstore.Tx]{
			Fixture: archiveFixture(t, watcher), Plain: pgstore.New(watcher, pgstore.Options{LockTimeout: time.Second}),
			Age: func(t *testing.T, group string, ago time.Duration, ids ...string) {
				age(t, watcher, group, ago, ids...)
			},
			Archived:    func(t *testing.T, group string) []string { return archiveOf(t, watcher, group) },
			Implausible: pgstore.ErrImplausible,
			Sweep: func(ctx context.Context, o storetest.Sweep) (storetest.Swept, error) {
				k, err := pgstore.NewKeeper(watcher, pgstore.KeeperOptions{
					Keep: keeping(o.Keep), Archive: o.Archive, Hot: o.Hot, Chunk: o.Chunk, MaxShare: o.MaxShare,
				})
				if err != nil {
					return storetest.Swept{}, err
				}
				done, err := k.RunOnce(ctx)
				return storetest.Swept{Deleted: done.Deleted, Moved: done.Moved, Dropped: len(done.Dropped), Busy: done.Busy}, err
			},
		}
	})
}

func TestLookupInTheArchive(t *testing.T) {
	t.Parallel()
	pool := database(t)
	age(t, pool, "g", 100*day, "old")
	age(t, pool, "g", 1*day, "young")
	before, err := pgstore.SinceArchived(t.Context(), pool, "g")
	if err != nil || before == nil {
		t.Fatalf("without an archive: %v, %v", before, err)
	}
	if err := pgstore.MigrateArchive(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	sweepOnce(t, pool, pgstore.KeeperOptions{Archive: true, Hot: 30 * day, Keep: keeping(nil)})
	if since, err := pgstore.SinceArchived(t.Context(), pool, "g"); err != nil || since == nil || !since.Equal(*before) {
		t.Errorf("since %v, want %v: %v", since, before, err)
	}
	if at, err := pgstore.FindArchived(t.Context(), pool, "g", "old"); err != nil || at == nil || !at.Equal(*before) {
		t.Errorf("found %v: %v", at, err)
	}
	if at, err := pgstore.FindArchived(t.Context(), pool, "g", "never"); err != nil || at != nil {
		t.Errorf("found %v: %v", at, err)
	}
}

func TestWhatAKeeperLacks(t *testing.T) {
	t.Parallel()
	pool := database(t)
	lacks := func(archive bool, want string) {
		t.Helper()
		err := pgstore.CheckKeeper(t.Context(), pool, archive)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("lacks %v, want %q", err, want)
		}
	}
	lacks(false, "")
	lacks(true, "there is no table")
	if err := pgstore.MigrateArchive(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	lacks(true, "")
	mustExec(t, pool, `ALTER TABLE mq_consume_record DISABLE TRIGGER mq_consume_record_guard`)
	lacks(true, "trigger")
	mustExec(t, pool, `ALTER TABLE mq_consume_record ENABLE TRIGGER mq_consume_record_guard`)

	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	role := strings.ReplaceAll(testkit.Name("keeper"), "-", "_")
	mustExec(t, pool, `CREATE ROLE `+role)
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), `DROP OWNED BY `+role)
		_, _ = pool.Exec(context.Background(), `DROP ROLE `+role)
	})
	mustExec(t, pool, `GRANT SELECT, INSERT ON mq_consume_record, mq_consume_record_archive TO `+role)
	poor, err := pgxpool.ParseConfig(pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	poor.ConnConfig.RuntimeParams["role"] = role
	pool, err = pgxpool.NewWithConfig(t.Context(), poor)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	lacks(false, "may not delete")
	if _, err := conn.Exec(t.Context(), `GRANT DELETE ON mq_consume_record TO `+role); err != nil {
		t.Fatal(err)
	}
	lacks(false, "")
	lacks(true, "does not own")
}
