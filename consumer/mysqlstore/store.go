// Package mysqlstore keeps consume records in MySQL or MariaDB (InnoDB), in the
// transaction of the business change. It owns the table mq_consume_record there.
package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-sql-driver/mysql"

	"oncemore/consumer"
)

// Options tune a Store. The zero value is the default.
type Options struct {
	// LockTimeout bounds a wait for another transaction's row, such as the
	// claim of the same event under way elsewhere, or for a table that is being
	// altered. The server counts whole seconds: it is rounded up. 0 is 3 s.
	// Running into it is contention: the batch is repeated.
	LockTimeout time.Duration
	// StatementTimeout bounds one statement of a handler; 0 is 30 s. MySQL itself
	// ends no more than queries at it. Other statements lose their connection two
	// seconds later, and hold their locks until the server has finished them.
	StatementTimeout time.Duration
	// MaxConns bounds how many transactions, so how many partitions, work at the
	// same time; 0 is 10.
	MaxConns int
	// Archive: older records are in mq_consume_record_archive, and every fresh id
	// is looked for there in the claiming transaction. nil: there is none.
	Archive *ArchiveOptions
	Logger  *slog.Logger // nil: slog.Default()
}

func (o Options) withDefaults() Options {
	if o.LockTimeout == 0 {
		o.LockTimeout = 3 * time.Second
	}
	if o.StatementTimeout == 0 {
		o.StatementTimeout = 30 * time.Second
	}
	if o.MaxConns == 0 {
		o.MaxConns = 10
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Store is a consumer.Store on MySQL or MariaDB. It is safe for any number of
// consumers; each transaction takes a connection of its pool.
type Store struct {
	pool    *sql.DB
	limit   time.Duration // of a statement
	wait    time.Duration // for a key
	bare    bool          // no consume records
	archive *ArchiveOptions
	log     *slog.Logger
}

var _ consumer.Unrecorder[Tx] = (*Store)(nil)

// Open makes a store with a pool of its own: what makes it correct are settings
// of the session (session.go), which another user of the pool could undo or
// would not expect. It does not connect yet. Close the store when its consumers
// have stopped.
//
// Of cfg it overrides the character set (utf8mb4), MultiStatements (off: a
// statement could hide a COMMIT), InterpolateParams (on: one round trip per
// statement) and RejectReadOnly (on: a fail-over leads to the new primary). It
// is an error when the driver cannot interpolate safely.
func Open(cfg *mysql.Config, o Options) (*Store, error) {
	if err := o.Archive.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	connector, err := newSessions(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("open mysqlstore at %s: %w", cfg.Addr, err)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(o.MaxConns)
	pool.SetMaxIdleConns(o.MaxConns)
	return &Store{pool: pool, limit: o.StatementTimeout + grace, wait: o.LockTimeout, archive: o.Archive, log: o.Logger}, nil
}

// grace is what the server gets to end a statement before its connection is cut.
const grace = 2 * time.Second

// Unrecorded is the same store without mq_consume_record, for strategies that
// rest on the business tables: it claims nothing and calls every event fresh. It
// shares the pool: close one of the two.
func (s *Store) Unrecorded() consumer.Store[Tx] {
	bare := *s
	bare.bare = true
	return &bare
}

// Close closes the connections.
func (s *Store) Close() error { return s.pool.Close() }

// Claim begins a transaction and inserts the records. consumed_at is UTC by the
// database's clock, in whole seconds.
func (s *Store) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[Tx], error) {
	return s.ClaimKeys(ctx, group, ids, nil)
}

// begin takes a session, whose next statement begins a transaction.
func (s *Store) begin(ctx context.Context) (*claim, error) {
	conn, err := s.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &claim{tx: tx{conn: conn, limit: s.limit}, log: s.log}, nil
}

// claim is one transaction that has inserted consume records.
type claim struct {
	tx     tx
	fresh  map[string]bool
	bare   bool // no records, all is fresh
	locked bool // keys, perhaps not all of them
	ended  bool
	log    *slog.Logger
}

// Fresh reports whether this transaction inserted the record.
func (c *claim) Fresh(id string) bool { return c.bare || c.fresh[id] }

// Tx is what the handlers work on.
func (c *claim) Tx() Tx { return &c.tx }

// Blame marks a handler's error that is the database's doing.
func (c *claim) Blame(err error) error { return blame(err, c.tx.err, c.tx.broken()) }

// errEnded is returned for a second end.
var errEnded = errors.New("mysqlstore: the transaction has ended")

// errLost is returned when the transaction of the claim is not there any more.
// The server ends it by itself at a deadlock, and a stored procedure may.
var errLost = errors.New("mysqlstore: the transaction ended by an error that the handler did not return, or in a stored procedure")

// Commit commits unless a statement has failed: InnoDB would commit the rest.
func (c *claim) Commit(ctx context.Context) error {
	if c.ended {
		return errEnded
	}
	if err := c.commit(ctx); err != nil {
		return c.Blame(fmt.Errorf("commit: %w", err))
	}
	c.release(ctx)
	return nil
}

func (c *claim) commit(ctx context.Context) error {
	if err := c.tx.intact(); err != nil {
		return err
	}
	c.tx.finish()
	limited, cancel := context.WithTimeout(ctx, c.tx.limit)
	defer cancel()
	err := c.tx.unguard(limited)
	if err == nil {
		_, err = c.tx.conn.ExecContext(limited, "COMMIT")
	}
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return consumer.Unavailable(err) // the server does not answer
	}
	return err
}

// rollbackTimeout bounds a ROLLBACK to a server that no longer answers.
const rollbackTimeout = 5 * time.Second

// Rollback undoes everything; it works after ctx has ended. A connection that
// cannot roll back is closed, which rolls back as well.
func (c *claim) Rollback(ctx context.Context) {
	if c.ended {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	c.tx.finish()
	if _, err := c.tx.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		c.log.Debug("rollback failed, closing the connection", "error", err)
		c.tx.discard()
	}
	c.release(ctx)
}

func (c *claim) release(ctx context.Context) {
	c.ended = true
	c.unlock(ctx)
	c.tx.end()
}
