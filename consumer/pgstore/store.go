// Package pgstore keeps consume records in PostgreSQL, in the transaction of
// the business change. It owns the table mq_consume_record.
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
)

// Options tune a Store. The zero value is the default.
type Options struct {
	// LockTimeout bounds a wait for another transaction's row, such as the
	// claim of the same event under way elsewhere; 0 is 3 s. Running into it is
	// contention: the batch is repeated.
	LockTimeout time.Duration
	// StatementTimeout bounds one statement of a handler; 0 is 30 s.
	StatementTimeout time.Duration
	Logger           *slog.Logger // nil: slog.Default()
}

// Store is a consumer.Store on PostgreSQL. It is safe for any number of
// consumers; each transaction takes a connection of the pool, so the pool's
// size bounds how many partitions work at the same time.
type Store struct {
	pool     *pgxpool.Pool
	settings settings
	bare     bool // no consume records
	log      *slog.Logger
}

var (
	_ consumer.KeyStore[Tx]   = (*Store)(nil)
	_ consumer.Unrecorder[Tx] = (*Store)(nil)
)

// settings are the time-outs as PostgreSQL reads them: milliseconds as text.
type settings struct{ lock, statement string }

// New makes a store on the pool, which the caller closes.
func New(pool *pgxpool.Pool, o Options) *Store {
	if o.LockTimeout == 0 {
		o.LockTimeout = 3 * time.Second
	}
	if o.StatementTimeout == 0 {
		o.StatementTimeout = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Store{pool: pool, log: o.Logger, settings: settings{lock: millis(o.LockTimeout), statement: millis(o.StatementTimeout)}}
}

// Unrecorded is the same store without mq_consume_record, for strategies that
// rest on the business tables: it claims nothing and calls every event fresh.
func (s *Store) Unrecorded() consumer.Store[Tx] {
	bare := *s
	bare.bare = true
	return &bare
}

func millis(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// Time-outs are local to the transaction. READ COMMITTED makes the insert see
// what another transaction has committed while it waited for it. A server-wide
// idle limit would cut off handlers that wait for an HTTP answer.
const (
	sqlBegin    = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`
	sqlSettings = `
SELECT set_config('lock_timeout', $1, true),
       set_config('statement_timeout', $2, true),
       set_config('idle_in_transaction_session_timeout', '0', true)`
)

// Sorted, so that two batches with the same ids wait for each other instead of
// deadlocking. The conflict target makes a table without the constraint an error.
const sqlClaim = `
INSERT INTO mq_consume_record (event_id, consumer_group, consumed_at)
SELECT e.id, $2, now()
FROM unnest($1::text[]) AS e(id)
ORDER BY e.id COLLATE "C"
ON CONFLICT (event_id, consumer_group) DO NOTHING
RETURNING event_id`

// Claim begins a transaction and inserts the records, in one round trip.
// consumed_at is the transaction's start by the database's clock.
func (s *Store) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[Tx], error) {
	return s.ClaimKeys(ctx, group, ids, nil)
}

// ClaimKeys is Claim behind locked keys, in the same round trip. The locks are
// PostgreSQL's advisory ones, so they hold for keys that have no row yet, but
// bind only those who take them: other programs that write the same rows have to
// do so, too (SELECT pg_advisory_xact_lock(hashtextextended('user/7', 0))), or
// handlers have to lock the rows as well. The server's lock table is shared:
// some thousands of keys at a time (max_locks_per_transaction); a batch that
// finds it full is halved.
func (s *Store) ClaimKeys(ctx context.Context, group string, ids, keys []string) (consumer.Claim[Tx], error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, consumer.Unavailable(fmt.Errorf("connect to claim for %s: %w", group, err))
	}
	c := &claim{conn: conn, bare: s.bare, log: s.log, tx: tx{conn: conn.Conn(), queued: &pgx.Batch{}}}
	if c.fresh, err = c.begin(ctx, s.settings, group, ids, keys); err != nil {
		err = blameClaim(fmt.Errorf("claim %d events for %s: %w", len(ids), group, err))
		c.Rollback(ctx)
		return nil, err
	}
	return c, nil
}

// claim is one transaction that has inserted consume records.
type claim struct {
	conn  *pgxpool.Conn // nil when ended
	tx    tx
	fresh map[string]bool
	bare  bool // no records, all is fresh
	log   *slog.Logger
}

// Sorted by what is locked, not by the keys: two keys may share a lock.
const sqlLockKeys = `
SELECT pg_advisory_xact_lock(k.lock)
FROM (SELECT DISTINCT hashtextextended(key, 0) AS lock FROM unnest($1::text[]) AS u(key) ORDER BY lock) k`

func (c *claim) begin(ctx context.Context, set settings, group string, ids, keys []string) (map[string]bool, error) {
	batch := &pgx.Batch{}
	batch.Queue(sqlBegin)
	batch.Queue(sqlSettings, set.lock, set.statement)
	if len(keys) > 0 {
		batch.Queue(sqlLockKeys, keys)
	}
	if c.bare {
		return nil, c.tx.conn.SendBatch(ctx, batch).Close()
	}
	fresh := make(map[string]bool, len(ids))
	batch.Queue(sqlClaim, ids, group).Query(func(rows pgx.Rows) error {
		var id string
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			fresh[id] = true
			return nil
		})
		return err
	})
	return fresh, c.tx.conn.SendBatch(ctx, batch).Close()
}

// Fresh reports whether this transaction inserted the record.
func (c *claim) Fresh(id string) bool { return c.bare || c.fresh[id] }

// Tx is what the handlers work on.
func (c *claim) Tx() Tx { return &c.tx }

// Blame marks a handler's error that is the database's doing.
func (c *claim) Blame(err error) error { return blame(err, c.conn == nil || c.tx.conn.IsClosed()) }

// errRolledBack is returned when COMMIT answered ROLLBACK: a statement failed
// earlier and the handler kept its error to itself.
var errRolledBack = errors.New("pgstore: transaction was aborted by an earlier error that the handler did not return")

// errEnded is returned when a handler got past the guard of Tx.
var errEnded = errors.New("pgstore: handler ended the transaction")

// Commit sends the queued statements and COMMIT, in one round trip where no
// callback has to be asked before.
func (c *claim) Commit(ctx context.Context) error {
	if err := c.commit(ctx); err != nil {
		return c.Blame(fmt.Errorf("commit: %w", err))
	}
	c.release()
	return nil
}

func (c *claim) commit(ctx context.Context) error {
	if c.conn == nil {
		return errEnded
	}
	if c.tx.err != nil {
		return c.tx.err
	}
	if c.tx.conn.PgConn().TxStatus() == 'I' {
		return errEnded
	}
	if c.tx.hasCallbacks() {
		if err := c.tx.flush(ctx); err != nil {
			return err
		}
	}
	return c.sendCommit(ctx)
}

func (c *claim) sendCommit(ctx context.Context) error {
	answer := ""
	c.tx.queued.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		answer = tag.String()
		return nil
	})
	if err := c.tx.conn.SendBatch(ctx, c.tx.queued).Close(); err != nil {
		return err
	}
	if answer != "COMMIT" {
		return errRolledBack
	}
	return nil
}

// rollbackTimeout bounds a ROLLBACK to a server that no longer answers.
const rollbackTimeout = 5 * time.Second

// Rollback undoes everything; it works after ctx has ended. A connection that
// cannot roll back is closed, which rolls back as well.
func (c *claim) Rollback(ctx context.Context) {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if conn := c.tx.conn; !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			c.log.Debug("rollback failed, closing the connection", "error", err)
			conn.Close(ctx) //nolint:errcheck // it is being given up
		}
	}
	c.release()
}

func (c *claim) release() {
	c.conn.Release()
	c.conn = nil
}
