package dlq

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"oncemore/consumer/mysqlstore"
)

// evidenceJSONPairs is how many pairs one statement asks MySQL for: they travel
// as one JSON text, which has to stay well below max_allowed_packet.
const evidenceJSONPairs = 2_500

// askMySQL asks in a transaction that may not write, whatever the account may.
func (p evidencePlace) askMySQL(ctx context.Context, questions map[question]bool, into map[question]record) error {
	tx, err := p.mysql.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it has only read
	columns, err := p.mysqlColumns(ctx, tx)
	if err != nil {
		return err
	}
	var held []question
	for q := range questions {
		if columns.event.holds(q.event) && (p.group == "" || columns.group.holds(p.inColumn(q))) {
			held = append(held, q)
		}
	}
	for batch := range slices.Chunk(held, evidenceJSONPairs) {
		if err := p.mysqlStatement(ctx, tx, columns, batch, into); err != nil {
			return err
		}
	}
	return nil
}

// mysqlColumn is a column as information_schema tells it.
type mysqlColumn struct {
	name, kind         string // kind is data_type
	charset, collation string // "" without: binary, or no text
	width              int64  // characters; 0: no text
}

func (c mysqlColumn) text() bool { return c.collation != "" }

// number reports whether equal values may be written differently.
func (c mysqlColumn) number() bool { return !c.text() && c.kind != "varbinary" }

func (c mysqlColumn) usable() bool {
	return c.text() || slices.Contains([]string{"bigint", "int", "varbinary", "uuid"}, c.kind)
}

func (c mysqlColumn) holds(value string) bool {
	switch c.kind {
	case "bigint":
		_, err := strconv.ParseInt(value, 10, 64)
		return err == nil
	case "int":
		_, err := strconv.ParseInt(value, 10, 32)
		return err == nil
	case "uuid":
		return columnType{name: "uuid"}.holds(value)
	}
	return true
}

// stored is what a server that is not strict would have made of a value that the
// column cannot hold: cut to its width, with ? for what its characters lack. A
// record of that is found, and is another's: the verdict is collides.
func (c mysqlColumn) stored(value string) string {
	if !c.text() {
		return value
	}
	if c.charset == "utf8mb3" || c.charset == "utf8" {
		value = strings.Map(func(r rune) rune {
			if r > 0xFFFF {
				return '?'
			}
			return r
		}, value)
	}
	if c.width > 0 && int64(utf8.RuneCountInString(value)) > c.width {
		value = string([]rune(value)[:c.width])
	}
	return value
}

// sqlType is the type that JSON_TABLE gives a value, so that the index on the
// column serves and its collation decides what is equal.
func (c mysqlColumn) sqlType() string {
	switch {
	case c.text():
		return "varchar(255) character set " + c.charset + " collate " + c.collation
	case c.kind == "bigint", c.kind == "int":
		return "bigint"
	case c.kind == "uuid":
		return "varchar(36) character set ascii"
	}
	return "varchar(255) character set utf8mb4 collate utf8mb4_bin"
}

// micros is the column's time in microseconds since 1970. A DATETIME has no zone
// and is read as UTC.
func (c mysqlColumn) micros() (string, error) {
	switch name := "m." + backticks(c.name); c.kind {
	case "":
		return "NULL", nil
	case "timestamp":
		return "CAST(UNIX_TIMESTAMP(" + name + ") * 1000000 AS SIGNED)", nil
	case "datetime", "date":
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + name + ")", nil
	}
	return "", fmt.Errorf("%w: %s is %s, and no time", errColumnType, c.name, c.kind)
}

type mysqlEvidence struct {
	event, group, consumed mysqlColumn
	archive                string // where mysqlstore moved older records; "": nowhere
}

// A server that takes no writes is a replica: nothing shows here how far behind
// it is of what its primary has committed.
const sqlMySQLReplica = `SELECT @@global.read_only`

const sqlMySQLColumns = `
SELECT column_name, data_type, COALESCE(character_set_name, ''), COALESCE(collation_name, ''), COALESCE(character_maximum_length, 0)
FROM information_schema.columns
WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?`

func (p evidencePlace) mysqlColumns(ctx context.Context, tx *sql.Tx) (e mysqlEvidence, err error) {
	var replica bool
	if err := tx.QueryRowContext(ctx, sqlMySQLReplica).Scan(&replica); err != nil {
		return e, err
	}
	if replica {
		return e, errReplica
	}
	known, err := mysqlColumnsOf(ctx, tx, p.table)
	switch {
	case err != nil:
		return e, err
	case len(known) == 0:
		return e, errNoTable
	}
	for _, name := range p.columnNames() {
		if _, ok := known[name]; !ok {
			return e, fmt.Errorf("%w: %s", errNoColumn, name)
		}
	}
	e = mysqlEvidence{event: known[p.event], group: known[p.group], consumed: known[p.consumed]}
	if !e.event.usable() || p.group != "" && !e.group.usable() {
		return e, fmt.Errorf("%w: %s is %s", errColumnType, p.event, e.event.kind)
	}
	e.archive, err = p.mysqlArchive(ctx, tx)
	return e, err
}

// mysqlArchive is where mysqlstore moves old records of its table; "" where there
// is none, and for a table of another kind.
func (p evidencePlace) mysqlArchive(ctx context.Context, tx *sql.Tx) (string, error) {
	if p.table != mysqlstore.Table && !strings.HasSuffix(p.table, "."+mysqlstore.Table) {
		return "", nil
	}
	name := strings.TrimSuffix(p.table, mysqlstore.Table) + mysqlstore.Archive
	columns, err := mysqlColumnsOf(ctx, tx, name)
	if err != nil || len(columns) == 0 {
		return "", err
	}
	return name, nil
}

// mysqlColumnsOf lists a table's columns by name; none where there is no such table.
func mysqlColumnsOf(ctx context.Context, db queryer, table string) (map[string]mysqlColumn, error) {
	schema, name := "", table
	if s, t, qualified := strings.Cut(table, "."); qualified {
		schema, name = s, t
	}
	rows, err := db.QueryContext(ctx, sqlMySQLColumns, schema, name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	known := map[string]mysqlColumn{}
	for rows.Next() {
		var c mysqlColumn
		if err := rows.Scan(&c.name, &c.kind, &c.charset, &c.collation, &c.width); err != nil {
			return nil, err
		}
		known[c.name] = c
	}
	return known, rows.Err()
}

// queryer is *sql.DB or *sql.Tx.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// mysqlStatement asks for some pairs at once. The join finds what the column's
// collation calls equal, by the index; the bytes are compared here.
func (p evidencePlace) mysqlStatement(ctx context.Context, tx *sql.Tx, c mysqlEvidence, batch []question, into map[question]record) error {
	query, err := p.mysqlSQL(c, p.table)
	if err == nil && c.archive != "" { // in one statement: a record that moves meanwhile is seen in one of the two
		var older string
		older, err = p.mysqlSQL(c, c.archive)
		query += " UNION ALL " + older
	}
	if err != nil {
		return err
	}
	asked := make([][2]string, len(batch))
	for i, q := range batch {
		asked[i] = [2]string{c.event.stored(q.event), c.group.stored(p.inColumn(q))}
	}
	text, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	args := []any{string(text), string(text)}
	if c.archive == "" {
		args = args[:1]
	}
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var i int
		var r record
		var group string
		var micros sql.NullInt64
		if err := rows.Scan(&i, &r.found, &group, &micros); err != nil {
			return err
		}
		q := batch[i-1]
		r.at = fromMicros(micros)
		r.exact = (r.found == q.event || c.event.number()) && (p.group == "" || group == p.inColumn(q) || c.group.number())
		if known, ok := into[q]; !ok || r.exact && !known.exact {
			into[q] = r
		}
	}
	return rows.Err()
}

func fromMicros(micros sql.NullInt64) *time.Time {
	if !micros.Valid {
		return nil
	}
	return ptr(time.UnixMicro(micros.Int64).UTC())
}

func (p evidencePlace) mysqlSQL(c mysqlEvidence, table string) (string, error) {
	consumed, err := c.consumed.micros()
	if err != nil {
		return "", err
	}
	event := "m." + backticks(p.event)
	group, join, groupType := "''", "", "varchar(255)"
	if p.group != "" {
		group = "m." + backticks(p.group)
		join, groupType = " AND "+group+" = u.oncemore_g", c.group.sqlType()
	}
	rows := mysqlTable(table)
	if p.where != "" {
		rows = "(SELECT * FROM " + rows + " WHERE (" + p.where + "))"
	}
	return "SELECT STRAIGHT_JOIN u.oncemore_i, " + event + ", " + group + ", " + consumed +
		" FROM JSON_TABLE(?, '$[*]' COLUMNS (oncemore_i FOR ORDINALITY, oncemore_e " + c.event.sqlType() + " PATH '$[0]', oncemore_g " + groupType + " PATH '$[1]')) u" +
		" JOIN " + rows + " m ON " + event + " = u.oncemore_e" + join, nil
}

// backticks quotes a name of MySQL's.
func backticks(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// mysqlTable quotes a table's name that may carry its schema.
func mysqlTable(table string) string {
	var parts []string
	for part := range strings.SplitSeq(table, ".") {
		parts = append(parts, backticks(part))
	}
	return strings.Join(parts, ".")
}
