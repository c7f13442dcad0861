package dlq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/pgstore"
)

func (p evidencePlace) askPostgres(ctx context.Context, questions map[question]bool, into map[question]record) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	columns, err := p.columns(ctx, conn)
	if err != nil {
		return err
	}
	batch := make([]question, 0, min(len(questions), evidencePairs))
	for q := range questions {
		if !columns.event.holds(q.event) || p.group != "" && !columns.group.holds(p.inColumn(q)) {
			continue // a column of this type has no such value
		}
		batch = append(batch, q)
		if len(batch) == evidencePairs {
			if err := p.statement(ctx, conn, columns, batch, into); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return p.statement(ctx, conn, columns, batch, into)
}

// columnType is a column's type without its length: a cast to varchar(64) would
// cut an id, and then find another event's record.
type columnType struct {
	name     string // regtype
	category string // pg_type.typcategory: S string, N number, U user-defined (uuid)
}

func (c columnType) text() bool { return c.category == "S" || c.name == "citext" }

func (c columnType) usable() bool {
	return c.text() || c.name == "uuid" || c.name == "bigint" || c.name == "integer"
}

// holds reports whether the type can hold the value at all; asking for another
// would fail the whole statement.
func (c columnType) holds(value string) bool {
	var err error
	switch c.name {
	case "uuid":
		_, err = uuid.Parse(value)
	case "bigint":
		_, err = strconv.ParseInt(value, 10, 64)
	case "integer":
		_, err = strconv.ParseInt(value, 10, 32)
	}
	return err == nil
}

type evidenceColumns struct {
	event, group columnType
	archive      string // where older records are, quoted; "": nowhere else
}

const sqlEvidenceColumns = `
SELECT pg_is_in_recovery(), to_regclass(@table) IS NOT NULL, to_regclass(@archive::text) IS NOT NULL,
  (SELECT array_agg(array[a.attname::text, a.atttypid::regtype::text, t.typcategory::text])
   FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
   WHERE a.attrelid = to_regclass(@table) AND a.attnum > 0 AND NOT a.attisdropped)`

func (p evidencePlace) columns(ctx context.Context, conn *pgxpool.Conn) (evidenceColumns, error) {
	var c evidenceColumns
	var replica, there, archived bool
	var rows [][]string
	archive := p.archive()
	args := pgx.NamedArgs{"table": quoted(p.table), "archive": archive}
	err := conn.QueryRow(ctx, sqlEvidenceColumns, args).Scan(&replica, &there, &archived, &rows)
	switch {
	case err != nil:
		return c, err
	case !there:
		return c, errNoTable
	case replica:
		if err := caughtUp(ctx, conn); err != nil {
			return c, err
		}
	}
	if archived {
		c.archive = *archive
	}
	types := map[string]columnType{}
	for _, row := range rows {
		name := row[1]
		if name == "character" {
			name = "bpchar" // in a cast, character means character(1)
		}
		types[row[0]] = columnType{name, row[2]}
	}
	c.event, c.group = types[p.event], types[p.group]
	for _, name := range p.columnNames() {
		if types[name].name == "" {
			return c, fmt.Errorf("%w: %s", errNoColumn, name)
		}
	}
	if !c.event.usable() || p.group != "" && !c.group.usable() {
		return c, fmt.Errorf("%w: %s is %s", errColumnType, p.event, c.event.name)
	}
	return c, nil
}

// How a replica is waited for. What commits on the primary after the question was
// asked, by the replica's clock and with a margin for that of the primary, must
// have been replayed: then all that came before has been, too. On a primary that
// commits nothing this never shows, and the answer is unknown.
const (
	replicaPatience = 3 * time.Second
	replicaMargin   = time.Second
	replicaPoll     = 50 * time.Millisecond

	sqlReplicaClock  = `SELECT clock_timestamp()`
	sqlReplicaPassed = `SELECT coalesce(pg_last_xact_replay_timestamp() > @since, false) OR NOT pg_is_in_recovery()`
)

func caughtUp(ctx context.Context, conn *pgxpool.Conn) error {
	var asked time.Time
	if err := conn.QueryRow(ctx, sqlReplicaClock).Scan(&asked); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < replicaPatience; wait(ctx, replicaPoll) {
		var passed bool
		err := conn.QueryRow(ctx, sqlReplicaPassed, pgx.NamedArgs{"since": asked.Add(replicaMargin)}).Scan(&passed)
		if err != nil || passed {
			return err
		}
	}
	return errReplica
}

// statement asks for up to evidencePairs pairs at once. Values are cast to the
// columns' own types, so that the index serves; names are quoted.
func (p evidencePlace) statement(ctx context.Context, conn *pgxpool.Conn, c evidenceColumns, batch []question, into map[question]record) error {
	events, groups := make([]string, len(batch)), make([]string, len(batch))
	for i, q := range batch {
		events[i], groups[i] = q.event, p.inColumn(q)
	}
	rows, err := conn.Query(ctx, p.sql(c), events, groups)
	if err != nil {
		return err
	}
	var i int32
	var r record
	_, err = pgx.ForEachRow(rows, []any{&i, &r.found, &r.at}, func() error {
		q := batch[i-1]
		r.exact = !c.event.text() || strings.TrimRight(r.found, " ") == q.event
		if known, ok := into[q]; !ok || r.exact && !known.exact {
			into[q] = r
		}
		r.at = nil
		return nil
	})
	return err
}

func (p evidencePlace) sql(c evidenceColumns) string {
	event := pgx.Identifier{p.event}.Sanitize()
	join, consumed, groupType := "", "NULL", "text"
	if p.group != "" {
		join = " AND m." + pgx.Identifier{p.group}.Sanitize() + " = u.g"
		groupType = c.group.name
	}
	if p.consumed != "" {
		consumed = "m." + pgx.Identifier{p.consumed}.Sanitize()
	}
	return fmt.Sprintf(`SELECT u.i::int, m.%[1]s::text, %[2]s::timestamptz
FROM unnest($1::text[]::%[3]s[], $2::text[]::%[4]s[]) WITH ORDINALITY u(e, g, i)
JOIN %[5]s m ON m.%[1]s = u.e%[6]s`, event, consumed, c.event.name, groupType, p.from(c), join)
}

// archive is where pgstore moves old records of its table, quoted; nil for a
// table of another kind.
func (p evidencePlace) archive() *string {
	if p.table != pgstore.Table && !strings.HasSuffix(p.table, "."+pgstore.Table) {
		return nil
	}
	name := quoted(strings.TrimSuffix(p.table, pgstore.Table) + pgstore.Archive)
	return &name
}

// from is the rows to look at: of the table, and of its archive where there is
// one. In one statement, a record that moves meanwhile is seen in one of the two.
func (p evidencePlace) from(c evidenceColumns) string {
	var columns []string
	for _, name := range p.columnNames() {
		columns = append(columns, pgx.Identifier{name}.Sanitize())
	}
	rows := func(table string) string {
		sql := "SELECT " + strings.Join(columns, ", ") + " FROM " + table
		if p.where != "" {
			sql += " WHERE (" + p.where + ")"
		}
		return sql
	}
	if c.archive == "" {
		return "(" + rows(quoted(p.table)) + ")"
	}
	return "(" + rows(quoted(p.table)) + " UNION ALL " + rows(c.archive) + ")"
}

// quoted quotes a table's name that may carry its schema.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }
