package barrier

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"
)

// MySQLDDL creates the table in MySQL or MariaDB. It may run again.
const MySQLDDL = `
CREATE TABLE IF NOT EXISTS oncemore_barrier (
	saga   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	step   VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	op     VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	put_by VARCHAR(8) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	at     TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	PRIMARY KEY (saga, step, op)
) ENGINE = InnoDB`

// MigrateMySQL creates the table in a business database unless it is there. The
// user needs CREATE.
func MigrateMySQL(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, MySQLDDL); err != nil {
		return fmt.Errorf("create %s: %w", Table, err)
	}
	return nil
}

// MySQLTx is the part of a transaction that the barrier needs: *sql.Tx and
// mysqlstore.Tx have it.
type MySQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

const (
	sqlTakeMySQL = `INSERT INTO oncemore_barrier (saga, step, op, put_by) VALUES (?, ?, ?, ?)`
	// sqlPutByMySQL locks, so that it sees what is committed and not what the
	// transaction's snapshot holds.
	sqlPutByMySQL = `SELECT put_by FROM oncemore_barrier WHERE saga = ? AND step = ? AND op = ? LOCK IN SHARE MODE`
)

// EnterMySQL is Enter for MySQL and MariaDB. Of calls at once that wait for one
// which rolls back, the database may end one with error 1213: to be tried again.
func EnterMySQL(ctx context.Context, tx MySQLTx, m Mark) (Decision, error) {
	if err := m.Check(); err != nil {
		return "", err
	}
	var took []Op
	for _, op := range m.Op.takes() {
		_, err := tx.ExecContext(ctx, sqlTakeMySQL, m.Saga, m.Step, string(op), string(m.Op))
		switch {
		case err == nil:
			took = append(took, op)
		case !isDuplicate(err): // never INSERT IGNORE: it hides what is cut off
			return "", fmt.Errorf("barrier: %s: %w", m, err)
		}
	}
	return settle(m, took, func(op Op) (by Op, err error) {
		err = tx.QueryRowContext(ctx, sqlPutByMySQL, m.Saga, m.Step, string(op)).Scan(&by)
		if errors.Is(err, sql.ErrNoRows) {
			return "", nil
		}
		return by, err
	})
}

func isDuplicate(err error) bool {
	refused, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && refused.Number == 1062
}

const sqlStandsMySQL = `SELECT count(*) FROM oncemore_barrier WHERE saga = ? AND step = ? AND op = ? AND put_by = ?`

// StandsMySQL is Stands for MySQL and MariaDB.
func StandsMySQL(ctx context.Context, db MySQLTx, m Mark) (bool, error) {
	var n int
	if err := db.QueryRowContext(ctx, sqlStandsMySQL, m.Saga, m.Step, string(m.Op), string(m.Op)).Scan(&n); err != nil {
		return false, fmt.Errorf("barrier: look for %s: %w", m, err)
	}
	return n > 0, nil
}
