package reconcile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strconv"
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
	return edge(at, c, zone).Format(mysqlTime)
}

const sqlMySQLSession = `
SET SESSION time_zone = '+00:00', net_write_timeout = 600, lock_wait_timeout = 5,
    sort_buffer_size = GREATEST(@@SESSION.sort_buffer_size, 8388608),
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

// cell takes what the driver has read, until the next row.
type cell struct{ value any }

// Scan implements sql.Scanner.
func (c *cell) Scan(value any) error {
	c.value = value
	return nil
}

func (c *cell) bytes() []byte {
	b, _ := c.value.([]byte)
	return b
}

func (s mysqlSnapshot) scan(ctx context.Context, st bound, sh shape, kinds []kind, zone *time.Location, emit func(record) error) error {
	rows, err := s.conn.QueryContext(ctx, st.text, st.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	n := len(kinds)
	cells := make([]cell, n+3)
	into := make([]any, len(cells))
	for i := range cells {
		into[i] = &cells[i]
	}
	clock, currencies := wallClock(sh.time, zone), namesOf(sh.currency)
	var r record
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		r.key = r.key[:0]
		for i, k := range kinds {
			if r.key, err = appendMySQL(r.key, k, cells[i].value); err != nil {
				return err
			}
		}
		r.amount, r.currency = cells[n].bytes(), currencies.name(cells[n+1].bytes())
		if strings.Contains(r.currency, "\x00") {
			return fmt.Errorf("currency %q is no text", r.currency)
		}
		if r.at, err = mysqlInstant(cells[n+2].value, clock); err != nil {
			return err
		}
		if err := emit(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

func appendMySQL(key []byte, k kind, value any) ([]byte, error) {
	switch v := value.(type) {
	case int64:
		if k == kindText {
			return appendBytes(key, strconv.AppendInt(nil, v, 10)), nil
		}
		return appendInt(key, v), nil
	case uint64:
		if k == kindText {
			return appendBytes(key, strconv.AppendUint(nil, v, 10)), nil
		}
		return appendUint(key, v), nil
	case nil: // the key is there: unhex made nothing of it
		return nil, errors.New("a key is not a UUID in hex")
	case []byte:
		switch {
		case k == kindInt:
			return appendDigits(key, v)
		case k == kindUUID && len(v) == 16:
			return append(key, v...), nil
		case k == kindUUID:
			return nil, fmt.Errorf("a key of %d bytes is not a UUID", len(v))
		}
		return appendBytes(key, v), nil
	}
	return nil, fmt.Errorf("a key that the driver reads as %T", value)
}

// mysqlInstant takes a time as the driver of a pool by mysqlstore.OpenPool reads
// it: what the column says, as if it were UTC. A zero date is no time.
func mysqlInstant(value any, clock func(wall int64) int64) (int64, error) {
	at, ok := value.(time.Time)
	if !ok || at.IsZero() {
		return 0, fmt.Errorf("%w: %v", errNoTime, value)
	}
	return clock(at.UnixMicro()), nil
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
