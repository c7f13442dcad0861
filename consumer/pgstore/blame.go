package pgstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"oncemore/consumer"
)

// SQLSTATE codes, PostgreSQL manual appendix A.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeLockTimeout   = "55P03"
	codeNoLocks       = "53200" // the lock table is full, or memory is
	codeCanceled      = "57014" // statement_timeout, or an administrator's pg_cancel_backend
	codeReadOnly      = "25006" // a primary that has become a standby
	codeIdleTooLong   = "25P03" // idle_in_transaction_session_timeout
	codeTxTooLong     = "25P04" // transaction_timeout, PostgreSQL 17
)

// blame marks err with Contention or Unavailable if the database is its cause;
// broken says that the connection is gone. What a handler made of it (Permanent,
// say) counts less: the transaction is lost either way.
func blame(err error, broken bool) error {
	code := sqlState(err)
	switch {
	case isContention(code):
		return consumer.Contention(err)
	case isUnavailable(code):
		return consumer.Unavailable(err)
	case code == codeIdleTooLong, code == codeTxTooLong:
		return err // the server cut the handler off; smaller transactions may help, waiting does not
	case broken && !cutByContext(err):
		return consumer.Unavailable(err)
	}
	return err
}

// blameClaim marks an error of the runtime's own statements. No handler ran, so
// it is contention, an id that the column cannot hold, or a store that is not
// as it should be (table missing, no privilege): waiting loses no letter.
func blameClaim(err error) error {
	code := sqlState(err)
	switch {
	case isContention(code), code == codeCanceled, code == codeNoLocks: // a smaller batch helps
		return consumer.Contention(err)
	case strings.HasPrefix(code, "22"):
		return consumer.Permanent(err)
	}
	return consumer.Unavailable(err)
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func isContention(code string) bool {
	return code == codeSerialization || code == codeDeadlock || code == codeLockTimeout
}

func isUnavailable(code string) bool {
	switch code {
	case "57P01", "57P02", "57P03", "57P05", "53300", "53100", codeReadOnly:
		return true // shut down, crashed, starting, idle session cut, connections or disk used up
	}
	return strings.HasPrefix(code, "08")
}

// cutByContext reports that a deadline of the handler's own broke the
// connection: pgx closes it when a context ends in the middle of a statement.
func cutByContext(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
