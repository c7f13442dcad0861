package reconcile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"
	"time"
)

type mysqlReader struct{ pool *sql.DB }

func (mysqlReader) dialect() dialect { return mysql }

func (r mysqlReader) describe(ctx context.Context, st bound) ([]column, error) {
	rows, err := r.pool.QueryContext(ctx, "select * from ("+st.text+") side limit 0", st.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return nil, err
	}
	columns := make([]column, len(types))
	for i, t := range types {
		declared := strings.ToLower(t.DatabaseTypeName())
		columns[i] = column{t.Name(), mysqlClass(declared), declared}
	}
	return columns, rows.Err()
}

func mysqlClass(declared string) class {
	switch strings.TrimPrefix(declared, "unsigned ") {
	case "char", "varchar", "text", "tinytext", "mediumtext", "longtext", "enum":
		return classText
	case "tinyint", "smallint", "mediumint", "int", "bigint", "year":
		return classInt
	case "binary", "varbinary", "blob", "tinyblob":
		return classBytes
	case "decimal":
		return classDecimal
	case "float", "double":
		return classFloat
	case "timestamp":
		return classInstant
	case "datetime":
		return classLocal
	}
	return classOther
}

const sqlMySQLGrants = `SHOW GRANTS`

var (
	grantee = regexp.MustCompile(`(?i)^grant (.*?) on (.*?) to `)
	writes  = regexp.MustCompile(`(?i)\b(all privileges|insert|update|delete|drop|create|alter|super)\b`)
)

func (r mysqlReader) writable(ctx context.Context) (string, error) {
	rows, err := r.pool.QueryContext(ctx, sqlMySQLGrants)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var grant string
		if err := rows.Scan(&grant); err != nil {
			return "", err
		}
		if m := grantee.FindStringSubmatch(grant); m != nil && writes.MatchString(m[1]) {
			return strings.ReplaceAll(m[2], "`", ""), nil
		}
	}
	return "", rows.Err()
}

const mysqlTime = "2006-01-02 15:04:05.999999"

// A TIMESTAMP is compared in the session's zone, which is UTC.
func (mysqlReader) instant(at time.Time, c column, zone *time.Location) any {
	if c.class == classInstant {
		zone = time.UTC
	}
	return at.In(zone).Format(mysqlTime)
}

const sqlMySQLSession = `
SET SESSION time_zone = '+00:00', net_write_timeout = 600, lock_wait_timeout = 5,
    /*M! max_statement_time = %[1]f, */ /*!50708 max_execution_time = %[2]d, */
    sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_ALL_TABLES')`

// snapshot begins by itself: the driver knows no consistent snapshot. The
// connection is thrown away, so its settings reach nobody else.
func (r mysqlReader) snapshot(ctx context.Context, l Limits, read func(snapshot) error) error {
	conn, err := r.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()                                           //nolint:errcheck // nothing was written
	defer conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // it ends the connection
	settings := fmt.Sprintf(sqlMySQLSession, l.Statement.Seconds(), l.Statement.Milliseconds())
	for _, statement := range []string{settings, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return read(mysqlSnapshot{conn})
}

type mysqlSnapshot struct{ conn *sql.Conn }

func (s mysqlSnapshot) scan(ctx context.Context, st bound, sh shape, kinds []kind, zone *time.Location, emit func(record) error) error {
	rows, err := s.conn.QueryContext(ctx, st.text, st.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	n := len(kinds)
	raw := make([]sql.RawBytes, n+3)
	into := make([]any, len(raw))
	for i := range raw {
		into[i] = &raw[i]
	}
	if sh.time.class == classInstant {
		zone = time.UTC
	}
	currencies := names{}
	var r record
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		r.key = r.key[:0]
		for i, k := range kinds {
			if r.key, err = appendMySQL(r.key, k, raw[i]); err != nil {
				return err
			}
		}
		r.amount, r.currency = raw[n], currencies.of(raw[n+1])
		if r.at, err = parseMySQLTime(raw[n+2], zone); err != nil {
			return err
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

func appendMySQL(key []byte, k kind, raw []byte) ([]byte, error) {
	switch k {
	case kindInt:
		return appendDigits(key, raw)
	case kindUUID:
		if len(raw) != 16 {
			return nil, fmt.Errorf("a key of %d bytes is not a UUID", len(raw))
		}
		return append(key, raw...), nil
	}
	return appendBytes(key, raw), nil
}

func parseMySQLTime(raw []byte, zone *time.Location) (int64, error) {
	at, err := time.ParseInLocation(mysqlTime, string(raw), zone)
	if err != nil || at.Year() == 0 {
		return 0, fmt.Errorf("%w: %q", errNoTime, raw)
	}
	return at.UnixMicro(), nil
}

func (s mysqlSnapshot) texts(ctx context.Context, st bound, row func([]*string) error) error {
	rows, err := s.conn.QueryContext(ctx, st.text, st.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	raw := make([]sql.NullString, len(columns))
	into := make([]any, len(columns))
	for i := range raw {
		into[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		values := make([]*string, len(raw))
		for i, v := range raw {
			if v.Valid {
				values[i] = &v.String
			}
		}
		if err := row(values); err != nil {
			return err
		}
	}
	return rows.Err()
}
