package mysqlstore

import (
	"context"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

// READ COMMITTED makes a statement see what another transaction has committed
// while it waited, and takes fewer gap locks.
const sqlIsolation = `SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE`

// sqlSession keeps what the server's sql_mode has and makes it strict: a value
// that does not fit is an error, where it would be cut off. With autocommit off,
// a handler that goes on after a deadlock, which has ended its transaction,
// writes nothing that would be committed without its record. In UTC, consumed_at
// is right in a DATETIME and in a TIMESTAMP column. Messages are in English
// because the name of a violated key is known from its message alone. The limit
// of a statement has another name, unit and reach in MariaDB, which skips
// comments for MySQL 5.7 and newer.
const sqlSession = `
SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_ALL_TABLES'),
    innodb_lock_wait_timeout = %[1]s, lock_wait_timeout = %[1]s,
    /*M! max_statement_time = %[2]f, */ /*!50708 max_execution_time = %[3]d, */
    time_zone = '+00:00', lc_messages = 'en_US', autocommit = 0`

// sessions connects and prepares the session.
type sessions struct {
	driver.Connector
	settings []string
}

func newSessions(cfg *mysql.Config, o Options) (*sessions, error) {
	cfg = cfg.Clone()
	cfg.RejectReadOnly = true
	settings := fmt.Sprintf(sqlSession, seconds(o.LockTimeout), o.StatementTimeout.Seconds(), o.StatementTimeout.Milliseconds())
	if o.Archive != nil {
		return prepareSessions(cfg, o.Logger, sqlIsolation, settings, sqlProbing)
	}
	return prepareSessions(cfg, o.Logger, sqlIsolation, settings)
}

// prepareSessions makes sessions that begin with the settings.
func prepareSessions(cfg *mysql.Config, log *slog.Logger, settings ...string) (*sessions, error) {
	cfg = cfg.Clone()
	if err := cfg.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, err
	}
	cfg.Collation, cfg.InterpolateParams, cfg.MultiStatements = "", true, false
	cfg.Logger = driverLog{log}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return &sessions{connector, settings}, nil
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}

// Connect implements driver.Connector.
func (s *sessions) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, set := range s.settings {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, set, nil); err != nil {
			conn.Close() //nolint:errcheck // it is being given up
			return nil, fmt.Errorf("prepare session: %w", err)
		}
	}
	return conn, nil
}

// driverLog takes what the driver would print: the same errors are returned.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("mysql driver", "message", fmt.Sprint(v...)) }
