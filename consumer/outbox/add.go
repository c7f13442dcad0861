package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
)

// Tx is a transaction of pgx: pgx.Tx, pgstore.Tx.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// SQLTx is a transaction of database/sql: *sql.Tx, mysqlstore.Tx.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// queuer is a transaction that sends statements with the next round trip, as
// pgstore.Tx does: the message then costs none of its own.
type queuer interface {
	Queue(sql string, args ...any) *pgx.QueuedQuery
}

// Add writes the messages into outbox_message in the caller's transaction: they
// are sent if it commits, and only then.
//
// Messages of one key are published in the order of their transactions only if
// those follow each other: LOCK THE KEY'S BUSINESS ROW (SELECT … FOR UPDATE, or
// its UPDATE) BEFORE Add. Two transactions that add for one key at the same time
// have no order that anybody could keep. Within a transaction the order is that
// of the calls and their arguments.
//
// A message without a header traceparent gets that of ctx, if ctx has one: what is
// traced here goes on at its consumers.
//
// Errors: ErrInvalid, ErrNoTransaction, or the database's wrapped. With pgstore.Tx
// the statement is queued, and the database's error ends the batch.
func Add(ctx context.Context, tx Tx, messages ...Message) error {
	return DefaultTable.Add(ctx, tx, messages...)
}

// AddSQL is Add for database/sql. The flavour says how the database writes
// parameters.
func AddSQL(ctx context.Context, tx SQLTx, f Flavour, messages ...Message) error {
	return DefaultTable.AddSQL(ctx, tx, f, messages...)
}

const sqlAdd = `
INSERT INTO outbox_message (shard, event_id, exchange, target, order_key, record_key, payload, headers, bytes)
VALUES `

const sqlAddMySQL = `
INSERT INTO outbox_message (shard, event_id, exchange, target, order_key, record_key, payload, headers, bytes, created_at)
VALUES `

// sqlHint wakes relays when the transaction commits.
const sqlHint = `
RETURNING pg_notify('outbox_message', '')`

const (
	addColumns = 9
	addRows    = 500 // of one statement
)

// Add is the function Add for this outbox.
func (t Table) Add(ctx context.Context, tx Tx, messages ...Message) error {
	if _, pool := tx.(*pgxpool.Pool); pool {
		return ErrNoTransaction
	}
	return t.add(ctx, PostgreSQL, messages, func(query string, args []any) error {
		if q, ok := tx.(queuer); ok {
			q.Queue(query, args...)
			return nil
		}
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
}

// AddSQL is the function AddSQL for this outbox.
func (t Table) AddSQL(ctx context.Context, tx SQLTx, f Flavour, messages ...Message) error {
	if _, pool := tx.(*sql.DB); pool {
		return ErrNoTransaction
	}
	return t.add(ctx, f, messages, func(query string, args []any) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

func (t Table) add(ctx context.Context, f Flavour, messages []Message, exec func(query string, args []any) error) error {
	if err := t.Validate(); err != nil {
		return err
	}
	for _, m := range messages {
		if err := m.validate(); err != nil {
			return err
		}
	}
	for len(messages) > 0 {
		n := min(len(messages), addRows)
		query, args, err := t.insert(ctx, f, messages[:n])
		if err == nil {
			err = exec(query, args)
		}
		if err != nil {
			return fmt.Errorf("add %d messages from event %s to %s: %w", n, messages[0].EventID, t, err)
		}
		messages = messages[n:]
	}
	return nil
}

func (t Table) insert(ctx context.Context, f Flavour, messages []Message) (string, []any, error) {
	args := make([]any, 0, len(messages)*addColumns)
	for _, m := range messages {
		m.Headers = consumer.Traced(ctx, m.Headers)
		headers, err := encodeHeaders(m.Headers)
		if err != nil {
			return "", nil, err
		}
		key := m.orderKey()
		args = append(args, shardOf(key), m.EventID, m.Exchange, m.Target, key, m.recordKey(), m.Value, headers, m.bytes())
	}
	if f == MySQL {
		return t.sql(sqlAddMySQL) + repeat("(?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6))", len(messages)), args, nil
	}
	query := t.sql(sqlAdd) + placeholders(len(messages))
	if hints.due(time.Now()) {
		query += t.sql(sqlHint)
	}
	return query, args, nil
}

func repeat(row string, n int) string {
	return strings.TrimSuffix(strings.Repeat(row+", ", n), ", ")
}

func placeholders(rows int) string {
	var b strings.Builder
	for i := range rows * addColumns {
		switch {
		case i == 0:
			b.WriteByte('(')
		case i%addColumns == 0:
			b.WriteString("), (")
		default:
			b.WriteString(", ")
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(i + 1))
	}
	b.WriteByte(')')
	return b.String()
}

// hints bounds the notifications of this process. Commits with one wait for each
// other in the server, so a busy service must not send one with each; a busy
// relay does not sleep anyway, and one that missed a hint looks soon.
var hints limiter

const hintEvery = 50 * time.Millisecond

type limiter struct{ last atomic.Int64 }

func (l *limiter) due(now time.Time) bool {
	last := l.last.Load()
	return now.UnixNano()-last >= int64(hintEvery) && l.last.CompareAndSwap(last, now.UnixNano())
}
