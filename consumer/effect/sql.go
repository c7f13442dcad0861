package effect

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// SQL is an effect on the database that holds the consume record: one
// statement, run in the record's own transaction.
type SQL struct {
	statement  statement
	expectRows *int64

	// proven: PostgreSQL has accepted the statement before. Until then, and for
	// retries, it is sent by itself: a batch that cannot even be prepared does
	// not say so through the statement's callback.
	proven atomic.Bool
}

// NewSQL reads a statement with named parameters from the payload: `:orderId`,
// `:order.id`, `:items.0.sku`. `:event_id`, `:consumer_group`, `:topic` and
// `:key` come from the event itself; for a payload field of such a name write
// `:$.topic`, and for the whole payload `:$`. `:topic` is where the delivery was
// read, so for a replay it may be <group>.replay.
//
// Values are bound as text and PostgreSQL infers their types, so a number keeps
// every digit. expectRows is how many rows the statement has to affect; nil does
// not ask. The error is a *SyntaxError.
func NewSQL(sql string, expectRows *int64) (*SQL, error) {
	st, err := parse(sql)
	if err != nil {
		return nil, err
	}
	return &SQL{statement: st, expectRows: expectRows}, nil
}

// Params lists the names that the statement uses, in order of first use.
func (s *SQL) Params() []string { return s.statement.params }

// Prepare asks the database whether it understands the statement: tables,
// columns and the types of all parameters. Nothing is executed.
func (s *SQL) Prepare(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := s.statement.prepare(ctx, pool)
	return err
}

func (st statement) prepare(ctx context.Context, pool *pgxpool.Pool) (*pgconn.StatementDescription, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to prepare statement: %w", err)
	}
	defer conn.Release()
	described, err := conn.Conn().PgConn().Prepare(ctx, "", st.text, nil)
	if err != nil {
		return nil, fmt.Errorf("prepare statement: %w", err)
	}
	return described, nil
}

// BatchSize is 0: any number of events may share a transaction.
func (s *SQL) BatchSize() int { return 0 }

// Handler queues the statement for each event: the statements of a batch cost
// one round trip. The outcomes of its errors, here and at the commit:
//
//   - A field that is missing or cannot be used, a value that PostgreSQL
//     refuses for its column (SQLSTATE class 22) and a null where none may be
//     (23502) are permanent: the event will not change.
//   - A statement that PostgreSQL does not understand or may not run (classes 42
//     and 3F) is unavailable: it is the config or the schema that has to change,
//     and a topic must not become dead letters meanwhile.
//   - Everything else retries. Foreign keys, unique and check constraints do
//     too: another event may mend them.
func (s *SQL) Handler() consumer.Handler[pgstore.Tx] {
	return func(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
		return s.queue(ctx, tx, ev, func(rows int64) error { return expect(s.expectRows, rows) })
	}
}

// queue sends the statement with the others of the batch, and hands read the
// number of rows that it affected.
func (s *SQL) queue(ctx context.Context, tx pgstore.Tx, ev consumer.Event, read func(rows int64) error) error {
	args, err := s.statement.args(ev, nil)
	if err != nil {
		return consumer.Permanent(err)
	}
	if ev.Attempt > 1 || !s.proven.Load() {
		tag, err := tx.Exec(ctx, s.statement.text, args...)
		return s.done(tag, err, read)
	}
	tx.Queue(s.statement.text, args...).Fn = func(results pgx.BatchResults) error {
		tag, err := results.Exec()
		return s.done(tag, err, read)
	}
	return nil
}

// done judges the answer to one statement.
func (s *SQL) done(tag pgconn.CommandTag, err error, read func(rows int64) error) error {
	if err != nil {
		return sqlOutcome(err)
	}
	if err := read(tag.RowsAffected()); err != nil {
		return err
	}
	s.proven.Store(true)
	return nil
}

func expect(want *int64, rows int64) error {
	if want != nil && rows != *want {
		return &RowsError{Want: *want, Got: rows}
	}
	return nil
}

// args are the values of the statement's parameters: from more, else from the event.
func (st statement) args(ev consumer.Event, more map[string]any) ([]any, error) {
	f := fields{ev: ev}
	args := make([]any, len(st.params))
	for i, name := range st.params {
		if value, ok := more[name]; ok {
			args[i] = value
			continue
		}
		text, err := f.text(name)
		if err != nil {
			return nil, err
		}
		if text != nil { // a nil *string would do as well, but costs a reflection
			args[i] = *text
		}
	}
	return args, nil
}

// RowsError says that a statement affected another number of rows than declared.
type RowsError struct{ Want, Got int64 }

// Error says both numbers.
func (e *RowsError) Error() string {
	return fmt.Sprintf("statement affected %d rows, expected %d", e.Got, e.Want)
}

// Class names the error in a dead letter.
func (e *RowsError) Class() string { return "sql.rows" }

// SQLError is the database's refusal of a declared statement.
type SQLError struct {
	Code string // PostgreSQL's SQLSTATE, MySQL's error number
	err  error
}

// Error is the database's message.
func (e *SQLError) Error() string { return e.err.Error() }

// Unwrap returns the driver's error.
func (e *SQLError) Unwrap() error { return e.err }

// Class names the error in a dead letter: sql.23503, in MySQL sql.1452.
func (e *SQLError) Class() string { return "sql." + e.Code }

func sqlOutcome(err error) error {
	var pg *pgconn.PgError
	if consumer.OutcomeOf(err) != consumer.OutcomeRetry || !errors.As(err, &pg) || len(pg.Code) != 5 {
		return err
	}
	named := &SQLError{Code: pg.Code, err: err}
	switch class := pg.Code[:2]; {
	case class == "22" || pg.Code == "23502":
		return consumer.Permanent(named)
	case class == "42" || class == "3F":
		return consumer.Unavailable(named)
	default:
		return named
	}
}
