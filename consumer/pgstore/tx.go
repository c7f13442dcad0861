package pgstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is what a handler works on: the transaction that also holds the consume
// record. It has no Commit, so a handler can neither commit nor acknowledge.
// It fits sqlc's DBTX. It is for one goroutine.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error)

	// Queue defers a statement that the handler needs no answer of. Queued
	// statements are sent together: before the next direct call, else with the
	// commit. Many small effects of a batch cost one round trip this way. The
	// returned query takes a callback, which runs before the commit; its error,
	// and that of the statement, undo the batch like one that the handler returns.
	Queue(sql string, args ...any) *pgx.QueuedQuery
}

// ErrTransactionControl is returned for BEGIN, COMMIT, ROLLBACK, SAVEPOINT and
// the like: the runtime alone ends the transaction.
var ErrTransactionControl = errors.New("pgstore: a handler may not control the transaction")

// tx is the Tx of one claim.
type tx struct {
	conn   *pgx.Conn
	queued *pgx.Batch
	err    error // a queued statement that was refused
}

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.ready(ctx, sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.ready(ctx, sql); err != nil {
		return nil, err
	}
	return t.conn.Query(ctx, sql, args...)
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.ready(ctx, sql); err != nil {
		return failedRow{err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if err := refuseControl(q.SQL); err != nil {
			return failedBatch{err}
		}
	}
	if err := t.ready(ctx, ""); err != nil {
		return failedBatch{err}
	}
	return t.conn.SendBatch(ctx, b)
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.ready(ctx, ""); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, src)
}

func (t *tx) Queue(sql string, args ...any) *pgx.QueuedQuery {
	if err := refuseControl(sql); err != nil && t.err == nil {
		t.err = err
	}
	return t.queued.Queue(sql, args...)
}

// ready sends what is queued, so that a direct statement sees it.
func (t *tx) ready(ctx context.Context, sql string) error {
	if err := refuseControl(sql); err != nil {
		return err
	}
	return t.flush(ctx)
}

func (t *tx) flush(ctx context.Context) error {
	if t.err != nil {
		return t.err
	}
	if t.queued.Len() == 0 {
		return nil
	}
	batch := t.queued
	t.queued = &pgx.Batch{}
	if err := t.conn.SendBatch(ctx, batch).Close(); err != nil {
		t.err = fmt.Errorf("queued statement: %w", err)
	}
	return t.err
}

// hasCallbacks reports whether a queued statement wants its answer before the commit.
func (t *tx) hasCallbacks() bool {
	for _, q := range t.queued.QueuedQueries {
		if q.Fn != nil {
			return true
		}
	}
	return false
}

// control finds a statement that begins with transaction control, also behind
// comments and other statements.
var control = regexp.MustCompile(`(?i)(?:^|;)(?:\s|--[^\n]*\n|/\*(?s:.*?)\*/)*` +
	`(begin|commit|rollback|abort|savepoint|release|end|start\s+transaction|prepare\s+transaction)\b`)

// quoted finds what a statement only quotes: 'commit; begin', $$ … end; $$.
var quoted = regexp.MustCompile(`'(?:[^']|\'\')*'|\$\w*\$(?s:.*?)\$\w*\$`)

// mayControl are the first letters of all words of control, to skip the search.
const mayControl = "bcraesp"

func refuseControl(sql string) error {
	first := strings.TrimLeft(sql, " \t\r\n")
	if first == "" {
		return nil
	}
	if !strings.Contains(sql, ";") && !strings.HasPrefix(first, "-") && !strings.HasPrefix(first, "/") &&
		!strings.Contains(mayControl, strings.ToLower(first[:1])) {
		return nil
	}
	if m := control.FindStringSubmatch(quoted.ReplaceAllString(sql, "''")); m != nil {
		return fmt.Errorf("%w: %s", ErrTransactionControl, strings.ToUpper(m[1]))
	}
	return nil
}

// failedRow is the row of a query that was not sent.
type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// failedBatch is the result of a batch that was not sent.
type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRow(b) }
func (b failedBatch) Close() error                     { return b.err }
func (b failedBatch) Tx() pgx.Tx                       { return nil }
