package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
)

// Archive is where old consume records are, by months.
const Archive = "mq_consume_record_archive"

// The archive has the columns' own types and collations, so that an id is equal
// to the same ids as before.
const sqlArchiveColumns = `
SELECT format('%I %s%s NOT NULL', a.attname, format_type(a.atttypid, a.atttypmod),
              CASE WHEN c.oid IS NULL THEN '' ELSE format(' COLLATE %I.%I', n.nspname, c.collname) END),
       a.attname = 'consumed_at' AND a.atttypid <> 'timestamptz'::regtype
FROM pg_attribute a
LEFT JOIN pg_collation c ON c.oid = a.attcollation
LEFT JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE a.attrelid = to_regclass('mq_consume_record') AND a.attname IN ('event_id', 'consumer_group', 'consumed_at')
ORDER BY array_position(ARRAY['event_id', 'consumer_group', 'consumed_at'], a.attname::text)`

const sqlCreateArchive = `
CREATE TABLE IF NOT EXISTS mq_consume_record_archive (
	%s,
	%s,
	%s,
	PRIMARY KEY (event_id, consumer_group, consumed_at)
) PARTITION BY RANGE (consumed_at)`

// The guard is for programs that do not look into the archive, such as a consumer
// that was not restarted yet: for them an archived event is what it was before it
// moved, a violation of the unique constraint. It comes after the insert, which
// has waited for a move under way.
const sqlGuardFunction = `
CREATE OR REPLACE FUNCTION mq_consume_record_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF coalesce(current_setting('oncemore.probes', true), '') <> 'on' AND EXISTS (
		SELECT FROM fresh f JOIN mq_consume_record_archive a USING (event_id, consumer_group))
	THEN
		RAISE EXCEPTION 'the event was consumed before, its record is in mq_consume_record_archive'
			USING ERRCODE = 'unique_violation', TABLE = 'mq_consume_record', CONSTRAINT = 'uk_event_consumer';
	END IF;
	RETURN NULL;
END $$`

const sqlGuard = `
CREATE OR REPLACE TRIGGER mq_consume_record_guard AFTER INSERT ON mq_consume_record
REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION mq_consume_record_guard()`

const sqlGuarded = `
SELECT EXISTS (SELECT FROM pg_trigger
               WHERE tgrelid = to_regclass('mq_consume_record') AND tgname = 'mq_consume_record_guard' AND tgenabled <> 'D')`

// MigrateArchive gives mq_consume_record, which may be in use and full, an
// archive. It may run again. Consumers go on: from now on the database itself
// refuses events that are in the archive, for programs that do not look there. It
// locks the table against writing for a moment, at most two seconds, and fails
// when it does not get the lock. Moving is a Keeper's work.
func MigrateArchive(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrateArchive(ctx, pool); err != nil {
		return fmt.Errorf("create %s: %w", Archive, err)
	}
	return nil
}

func migrateArchive(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockDDL, ddlLock); err != nil {
			return err
		}
		columns, err := archiveColumns(ctx, tx)
		if err != nil {
			return err
		}
		var guarded bool
		if err := tx.QueryRow(ctx, sqlGuarded).Scan(&guarded); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf(sqlCreateArchive, columns...)); err != nil {
			return err
		}
		if guarded {
			return nil
		}
		for _, sql := range []string{`SET LOCAL lock_timeout = '2s'`, sqlGuardFunction, sqlGuard} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

func archiveColumns(ctx context.Context, tx pgx.Tx) (columns []any, _ error) {
	var column string
	var badClock bool
	rows, _ := tx.Query(ctx, sqlArchiveColumns) // its error comes with the rows
	_, err := pgx.ForEachRow(rows, []any{&column, &badClock}, func() error {
		if badClock {
			return errors.New("consumed_at has to be of type timestamptz: the months of another depend on each session's time zone")
		}
		columns = append(columns, column)
		return nil
	})
	if err == nil && len(columns) != 3 {
		err = errors.New("mq_consume_record is missing or lacks a column")
	}
	return columns, err
}

// ArchiveOptions are for WithArchive. The zero value is safe.
type ArchiveOptions struct {
	// SkipProbe leaves out the look into the archive. It is refused unless Hot,
	// the age at which records move there, covers Required, how long an event may
	// come back: then the archive holds nothing that is still asked for.
	SkipProbe     bool
	Hot, Required time.Duration
}

// ArchiveStore is a Store whose older records are in the archive.
type ArchiveStore struct {
	*Store
	skip bool
}

var (
	_ consumer.KeyStore[Tx]   = (*ArchiveStore)(nil)
	_ consumer.Unrecorder[Tx] = (*ArchiveStore)(nil)
)

// WithArchive is the store with a look into the archive for every fresh id.
func (s *Store) WithArchive(o ArchiveOptions) (*ArchiveStore, error) {
	if o.SkipProbe && (o.Required <= 0 || o.Required == Forever || o.Hot < o.Required) {
		return nil, fmt.Errorf("pgstore: the archive may be left out only where the hot window (%s) covers how long events may come back (%s)", o.Hot, o.Required)
	}
	return &ArchiveStore{Store: s, skip: o.SkipProbe}, nil
}

const sqlArchiveThere = `SELECT to_regclass('mq_consume_record_archive') IS NOT NULL`

// Check is that of Store, and that there is an archive.
func (s *ArchiveStore) Check(ctx context.Context, group string) error {
	if err := s.Store.Check(ctx, group); err != nil {
		return err
	}
	var there bool
	err := s.pool.QueryRow(ctx, sqlArchiveThere).Scan(&there)
	if err == nil && !there {
		err = errors.New("the table is missing in this database: run console migrate --target, or pgstore.MigrateArchive")
	}
	if err != nil {
		return consumer.Unavailable(fmt.Errorf("check %s: %w", Archive, err))
	}
	return nil
}

// Claim is ClaimKeys without keys.
func (s *ArchiveStore) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[Tx], error) {
	return s.ClaimKeys(ctx, group, ids, nil)
}

// ClaimKeys is that of Store, in the same single round trip. An id whose record
// is in the archive is not fresh.
func (s *ArchiveStore) ClaimKeys(ctx context.Context, group string, ids, keys []string) (consumer.Claim[Tx], error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, consumer.Unavailable(fmt.Errorf("connect to claim for %s: %w", group, err))
	}
	c := &claim{conn: conn, log: s.log, fresh: make(map[string]bool, len(ids)), tx: tx{conn: conn.Conn(), queued: &pgx.Batch{}}}
	if err := c.tx.conn.SendBatch(ctx, s.claiming(c, group, ids, keys)).Close(); err != nil {
		err = blameClaim(fmt.Errorf("claim %d events for %s: %w", len(ids), group, err))
		c.Rollback(ctx)
		return nil, err
	}
	return c, nil
}

const sqlProbing = `SELECT set_config('oncemore.probes', 'on', true)`

// The insert comes first and the probe second, each with a snapshot of its own
// (READ COMMITTED). A record that is being moved makes the insert wait until the
// move has committed, and then the probe sees it in the archive; so the mover
// cannot slip between the two. Only rows of this transaction leave the table again.
const sqlProbe = `
DELETE FROM mq_consume_record r
USING mq_consume_record_archive a
WHERE a.event_id = ANY ($1) AND a.consumer_group = $2
  AND r.event_id = a.event_id AND r.consumer_group = a.consumer_group
  AND r.xmin = pg_current_xact_id()::xid
RETURNING r.event_id`

func (s *ArchiveStore) claiming(c *claim, group string, ids, keys []string) *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue(sqlBegin)
	batch.Queue(sqlSettings, s.settings.lock, s.settings.statement)
	batch.Queue(sqlProbing)
	if len(keys) > 0 {
		batch.Queue(sqlLockKeys, keys)
	}
	batch.Queue(sqlClaim, ids, group).Query(c.each(func(id string) { c.fresh[id] = true }))
	if !s.skip {
		batch.Queue(sqlProbe, ids, group).Query(c.each(func(id string) { delete(c.fresh, id) }))
	}
	return batch
}

func (c *claim) each(do func(id string)) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { do(id); return nil })
		return err
	}
}
