package effect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
)

// MySQL is an effect on the database that holds the consume record, MySQL or
// MariaDB: one statement, run in the record's own transaction.
type MySQL struct {
	statement  statement
	expectRows *int64
}

// NewMySQL reads a statement with named parameters as NewSQL does, by MySQL's
// rules. Text of the payload is bound as text; a number stands in the statement
// with the digits that it has in the payload, so that no sum passes through a
// float, unless it has an exponent; true and false are 1 and 0. expectRows counts
// as MySQL does: an UPDATE the rows that it changed, not those that it found, and
// ON DUPLICATE KEY UPDATE two for a row that it changed.
func NewMySQL(sql string, expectRows *int64) (*MySQL, error) {
	st, err := parseMySQL(sql)
	if err != nil {
		return nil, err
	}
	return &MySQL{statement: st, expectRows: expectRows}, nil
}

// Params lists the names that the statement uses, in order of first use.
func (m *MySQL) Params() []string { return m.statement.params }

// BatchSize is 0: any number of events may share a transaction.
func (m *MySQL) BatchSize() int { return 0 }

// Handler runs the statement for each event, one round trip each: the protocol
// has no pipeline. The outcomes of its errors:
//
//   - A field that is missing or cannot be used, and a value that its column
//     cannot take (SQLSTATE class 22; 1048, 1265, 1366) are permanent.
//   - A statement that the server does not understand or may not run (class 42)
//     is unavailable: the config or the schema has to change.
//   - Everything else retries: foreign keys, unique and check constraints, which
//     another event may mend.
func (m *MySQL) Handler() consumer.Handler[mysqlstore.Tx] {
	return func(ctx context.Context, tx mysqlstore.Tx, ev consumer.Event) error {
		rows, err := onMySQL{}.exec(ctx, tx, m.statement, ev, nil)
		if err != nil {
			return err
		}
		return expect(m.expectRows, rows)
	}
}

// Prepare asks the server whether it understands the statement. Nothing is executed.
func (m *MySQL) Prepare(ctx context.Context, db *sql.DB) error {
	return m.statement.prepareMySQL(ctx, db)
}

func (st statement) prepareMySQL(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to prepare statement: %w", err)
	}
	defer conn.Close()
	return conn.Raw(func(c any) error {
		prepared, err := c.(driver.ConnPrepareContext).PrepareContext(ctx, st.text)
		if err != nil {
			return fmt.Errorf("prepare statement: %w", err)
		}
		defer prepared.Close() //nolint:errcheck // nothing depends on it
		if n := prepared.NumInput(); n != len(st.order) {
			return fmt.Errorf("prepare statement: the server sees %d parameters, and it names %d: does a literal end where it should (sql_mode NO_BACKSLASH_ESCAPES)?", n, len(st.order))
		}
		return nil
	})
}

// onMySQL is the engine of MySQL and MariaDB.
type onMySQL struct {
	statement statement
	key       string // that tells the event
}

func (m onMySQL) insert(ctx context.Context, tx mysqlstore.Tx, ev consumer.Event, read func(int64) error) error {
	rows, err := m.exec(ctx, tx, m.statement, ev, nil)
	switch {
	case mysqlstore.DuplicateKey(err) == m.key && err != nil:
		return read(0)
	case err != nil:
		return err
	case rows == 0:
		return &consumer.AnomalyError{Reason: "the statement inserted nothing, and met no key " + m.key}
	}
	return read(rows)
}

func (onMySQL) exec(ctx context.Context, tx mysqlstore.Tx, st statement, ev consumer.Event, more map[string]any) (int64, error) {
	text, args, err := st.mysql(ev, more)
	if err != nil {
		return 0, consumer.Permanent(err)
	}
	result, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, mysqlOutcome(err)
	}
	return result.RowsAffected()
}

func (onMySQL) ask(ctx context.Context, tx mysqlstore.Tx, st statement, ev consumer.Event, into ...any) error {
	text, args, err := st.mysql(ev, nil)
	if err != nil {
		return consumer.Permanent(err)
	}
	err = tx.QueryRowContext(ctx, text, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return errNoRow
	}
	return mysqlOutcome(err)
}

// badValue lists errors of a value that do not have a SQLSTATE of class 22: null
// where none may be, truncated, not in the column's character set or type.
var badValue = map[uint16]bool{1048: true, 1265: true, 1366: true}

func mysqlOutcome(err error) error {
	var refused *mysql.MySQLError
	if consumer.OutcomeOf(err) != consumer.OutcomeRetry || !errors.As(err, &refused) {
		return err
	}
	named := &SQLError{Code: strconv.Itoa(int(refused.Number)), err: err}
	switch class := string(refused.SQLState[:2]); {
	case class == "22" || badValue[refused.Number]:
		return consumer.Permanent(named)
	case class == "42":
		return consumer.Unavailable(named)
	default:
		return named
	}
}
