package mysqlstore

import (
	"cmp"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-sql-driver/mysql"
)

// PoolOptions tune OpenPool. The zero value is the default.
type PoolOptions struct {
	ReadOnly         bool          // sessions refuse to write, whatever the credential may do
	StatementTimeout time.Duration // of one statement; 0 is 30 s. MySQL itself ends only queries at it
	MaxConns         int           // 0 is 10
	Logger           *slog.Logger  // nil: slog.Default()
}

const (
	sqlReadOnly = `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY`

	sqlPoolSession = `
SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_ALL_TABLES'),
    innodb_lock_wait_timeout = 5, lock_wait_timeout = 5,
    /*M! max_statement_time = %[1]f, */ /*!50708 max_execution_time = %[2]d, */
    time_zone = '+00:00', lc_messages = 'en_US', autocommit = 1`
)

// OpenPool is a pool for what is no consumer: looking things up, an outbox, a
// Keeper. Its sessions are in UTC and in strict mode, times are read as
// time.Time in UTC, and each statement sees what is committed by then. It does
// not connect yet. Close it.
func OpenPool(cfg *mysql.Config, o PoolOptions) (*sql.DB, error) {
	limit := cmp.Or(o.StatementTimeout, 30*time.Second)
	isolation := sqlIsolation
	if o.ReadOnly {
		isolation = sqlReadOnly
	}
	cfg = cfg.Clone()
	cfg.ParseTime, cfg.Loc, cfg.RejectReadOnly = true, time.UTC, !o.ReadOnly
	settings := fmt.Sprintf(sqlPoolSession, limit.Seconds(), limit.Milliseconds())
	connector, err := prepareSessions(cfg, cmp.Or(o.Logger, slog.Default()), isolation, settings)
	if err != nil {
		return nil, fmt.Errorf("open pool at %s: %w", cfg.Addr, err)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(cmp.Or(o.MaxConns, 10))
	pool.SetMaxIdleConns(cmp.Or(o.MaxConns, 10))
	pool.SetConnMaxIdleTime(time.Minute)
	return pool, nil
}
