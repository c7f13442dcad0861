package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/go-sql-driver/mysql"

	"oncemore/consumer"
)

// Error numbers of both servers that mean something to us. MySQL's are in its
// "Server Error Message Reference", MariaDB's in "MariaDB Error Codes".
const (
	codeDuplicate   = 1062
	codeNoSavepoint = 1305
)

// contention lists errors of a transaction that lost against another one.
var contention = map[uint16]bool{
	1020: true, // the record has changed since it was read (MariaDB, innodb_snapshot_isolation)
	1180: true, // COMMIT failed, such as at a Galera cluster's certification
	1205: true, // lock wait time-out
	1213: true, // deadlock
	3058: true, // deadlock of user-level locks
	3572: true, // NOWAIT
}

// unavailable lists errors of a server that is down, full or not the primary.
// Those above 2000 and below 3000 are client errors, which proxies pass on.
var unavailable = map[uint16]bool{
	1021: true, 1114: true, // disk full, table full
	1040: true, 1203: true, 1226: true, // connections used up: of the server, of the user, of its quota
	1042: true, 1043: true, 1047: true, // no host, bad handshake, Galera node not ready
	1053: true, 1077: true, 1079: true, // shutting down
	1152: true, 1158: true, 1159: true, 1160: true, 1161: true, 1184: true, // connection aborted
	1290: true, 1792: true, 1836: true, // read-only
	1927: true,                                     // connection was killed (MariaDB)
	2002: true, 2003: true, 2006: true, 2013: true, // cannot connect, gone away, lost while asking
	3032: true, 3168: true, 4031: true, // offline mode, not available, idle session cut
}

// dataErrors lists errors of a value that a column cannot hold, or not even be
// compared with.
var dataErrors = map[uint16]bool{
	1264: true,                                                 // out of range
	1265: true,                                                 // truncated
	1366: true,                                                 // not in the column's character set
	1267: true, 1270: true, 1271: true, 3854: true, 3988: true, // the same, in a comparison
	1406: true, // too long
}

// interrupted: KILL QUERY by an administrator, or the server's own time limit.
var interrupted = map[uint16]bool{1317: true, 1969: true, 3024: true}

// blame marks err with Contention or Unavailable if the database is its cause.
// earlier is what the first failed statement failed with; broken says that the
// connection is gone. What a handler made of it (Permanent, say) counts less:
// the transaction is lost either way.
func blame(err, earlier error, broken bool) error {
	for _, cause := range []error{err, earlier} {
		number := errorNumber(cause)
		switch {
		case contention[number]:
			return consumer.Contention(err)
		case unavailable[number]:
			return consumer.Unavailable(err)
		}
	}
	if cutByContext(err) || cutByContext(earlier) {
		return err
	}
	if broken || isGone(err) || isGone(earlier) || isNetwork(earlier) {
		return consumer.Unavailable(err)
	}
	return err
}

// blameClaim marks an error of the runtime's own statements. No handler ran, so
// it is contention, an id that the column cannot hold, or a store that is not
// as it should be (table missing, no privilege): waiting loses no letter.
func blameClaim(err error) error {
	number := errorNumber(err)
	switch {
	case contention[number], interrupted[number], consumer.OutcomeOf(err) == consumer.OutcomeContention:
		return consumer.Contention(err)
	case dataErrors[number], consumer.OutcomeOf(err) == consumer.OutcomePermanent:
		return consumer.Permanent(err)
	}
	return consumer.Unavailable(err)
}

func errorNumber(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// takenRecord reports that err is a violation of our unique key, and of no other.
func takenRecord(err error) bool { return DuplicateKey(err) == uniqueKey }

// archivedRecord reports that our guard refused the record.
func archivedRecord(err error) bool {
	return takenRecord(err) && strings.Contains(err.Error(), Archive)
}

// DuplicateKey is the name of the unique key that err says was violated (1062),
// PRIMARY included; "" for any other error. A handler may leave such an error
// behind: it undoes no more than its own statement.
func DuplicateKey(err error) string {
	var e *mysql.MySQLError
	if !errors.As(err, &e) || e.Number != codeDuplicate || !strings.HasSuffix(e.Message, "'") {
		return ""
	}
	// MySQL puts the table before the name, MariaDB does not.
	quoted := e.Message[strings.LastIndex(e.Message[:len(e.Message)-1], "'")+1 : len(e.Message)-1]
	return quoted[strings.LastIndex(quoted, ".")+1:]
}

// isGone reports what the driver says of a lost connection.
func isGone(err error) bool {
	return errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// isNetwork reports a failure of the network below the driver. It says nothing
// of a handler's error, which may come from another server.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// cutByContext reports that a deadline of the handler's own, or the limit of a
// statement, broke the connection: the driver closes it when a context ends in
// the middle of a statement.
func cutByContext(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}
