package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// Tx is what a handler works on: the transaction that also holds the consume
// record. It has no Commit, so a handler can neither commit nor acknowledge. It
// fits sqlc's DBTX. It is for one goroutine. Rows are to be closed before the
// next statement, and the one row of QueryRowContext is to be scanned.
//
// As in PostgreSQL, the first statement that fails spoils the transaction: all
// later ones and the commit return its error. Only a duplicate key (1062), which
// undoes no more than its own statement, may be handled and left behind. An
// error that comes with the rows of a query or from a prepared statement does so
// only if it ended the transaction, as a deadlock does: return it.
//
// The session is in UTC and in strict mode.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// errRowsOpen: the protocol has no second statement while rows are read.
var errRowsOpen = errors.New("mysqlstore: the handler has not closed the rows of its query before")

// tx is the Tx of one claim.
type tx struct {
	conn       *sql.Conn
	limit      time.Duration // of a statement
	err        error         // what the first failed statement failed with
	guarded    bool
	rows       *sql.Rows // of the last query
	statements []*sql.Stmt
	cancels    []context.CancelFunc
}

func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.ready(ctx, query, false); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	result, err := t.conn.ExecContext(ctx, query, args...)
	return result, t.note(err)
}

func (t *tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.ready(ctx, query, true); err != nil {
		return nil, err
	}
	rows, err := t.conn.QueryContext(t.limited(ctx), query, args...)
	if t.note(err) != nil {
		return nil, err
	}
	t.rows = rows
	return rows, nil
}

func (t *tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := t.ready(ctx, query, true); err != nil {
		return t.conn.QueryRowContext(failedContext{ctx, err}, query, args...)
	}
	row := t.conn.QueryRowContext(t.limited(ctx), query, args...)
	t.note(row.Err()) //nolint:errcheck // Scan returns it
	return row
}

func (t *tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := t.ready(ctx, query, true); err != nil {
		return nil, err
	}
	statement, err := t.conn.PrepareContext(ctx, query)
	if t.note(err) != nil {
		return nil, err
	}
	t.statements = append(t.statements, statement)
	return statement, nil
}

// ready says whether the query may run. With unseen, its errors may come where
// we do not see them: with its rows, or from a prepared statement.
func (t *tx) ready(ctx context.Context, query string, unseen bool) error {
	if err := t.intact(); err != nil {
		return err
	}
	word, err := refuseControl(query)
	if err == nil && (unseen || word == "call") {
		err = t.guard(ctx)
	}
	return t.note(err)
}

// intact says whether all statements so far went well.
func (t *tx) intact() error {
	if t.err != nil {
		return fmt.Errorf("an earlier statement of the transaction failed: %w", t.err)
	}
	if t.rows != nil {
		if _, closed := t.rows.Columns(); closed == nil {
			return t.note(errRowsOpen)
		}
		t.rows = nil
	}
	return nil
}

// note keeps the first error, and returns err.
func (t *tx) note(err error) error {
	if err != nil && t.err == nil && errorNumber(err) != codeDuplicate {
		t.err = err
	}
	return err
}

// limited is the context of a query. It lives on while the rows are read. At the
// end of the claim it is cancelled, which closes rows that were left open, and
// with them the connection.
func (t *tx) limited(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	t.cancels = append(t.cancels, cancel)
	return ctx
}

// The guard is a savepoint that is there as long as the transaction is: after a
// deadlock, or a COMMIT in a stored procedure, it cannot be released.
const (
	sqlGuard   = `SAVEPOINT oncemore_claim`
	sqlUnguard = `RELEASE SAVEPOINT oncemore_claim`
)

func (t *tx) guard(ctx context.Context) error {
	if t.guarded {
		return nil
	}
	_, err := t.conn.ExecContext(ctx, sqlGuard)
	t.guarded = err == nil
	return err
}

func (t *tx) unguard(ctx context.Context) error {
	if !t.guarded {
		return nil
	}
	_, err := t.conn.ExecContext(ctx, sqlUnguard)
	switch {
	case errorNumber(err) == codeNoSavepoint:
		return errLost
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, context.Canceled):
		return t.note(errRowsOpen) // closed by cancel, as rows were open that we do not see
	}
	return err
}

// broken reports that the connection is gone.
func (t *tx) broken() bool {
	err := t.conn.Raw(func(conn any) error {
		if !conn.(driver.Validator).IsValid() {
			return errRowsOpen // or closed: told apart below
		}
		return nil
	})
	return err != nil && t.intact() == nil
}

// discard closes the connection, whatever its state.
func (t *tx) discard() {
	t.conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // as it was told
}

// finish closes what the handler left open. database/sql would wait for it.
func (t *tx) finish() {
	for _, statement := range t.statements {
		statement.Close() //nolint:errcheck // the server drops it with the session
	}
	t.statements = nil
	for _, cancel := range t.cancels {
		cancel()
	}
	t.cancels = nil
}

// end gives the connection back, if it was not discarded.
func (t *tx) end() {
	t.conn.Close() //nolint:errcheck // it may have been discarded
}

// failedContext makes a query fail with err before it is sent: there is no other
// way to make a *sql.Row.
type failedContext struct {
	context.Context
	err error
}

func (c failedContext) Err() error { return c.err }

func (c failedContext) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}
