package dlq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/pgstore"
)

const (
	evidenceTimeout = 5 * time.Second
	evidencePairs   = 10_000 // pairs in one statement
)

// question asks for the consume record of one event in one group.
type question struct{ event, group string }

// record is a consume record that was found.
type record struct {
	found string     // its event id, as stored
	at    *time.Time // nil where no column says
	exact bool       // the same bytes; false: equal to the database's collation only
}

// answers are what one evidence table said. failed is set instead when it could
// not be asked.
type answers struct {
	records map[question]record
	failed  *Reason
}

// evidencePlace is what makes two groups' evidence one statement.
type evidencePlace struct {
	pool                                      *pgxpool.Pool
	connection, table, event, group, consumed string
}

func (e Evidence) place() evidencePlace {
	return evidencePlace{e.Pool, e.Connection, e.Table, e.EventID, e.ConsumerGroup, e.ConsumedAt}
}

// lookUp asks every evidence table, side by side, each in as few statements as
// the number of questions allows. It returns when all have answered or failed.
func lookUp(ctx context.Context, asked map[evidencePlace]map[question]bool, clock func() time.Time) map[evidencePlace]answers {
	out := make(map[evidencePlace]answers, len(asked))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for place, questions := range asked {
		wg.Go(func() {
			a := place.ask(ctx, questions, clock)
			mu.Lock()
			out[place] = a
			mu.Unlock()
		})
	}
	wg.Wait()
	return out
}

func (p evidencePlace) ask(ctx context.Context, questions map[question]bool, clock func() time.Time) answers {
	a := answers{records: map[question]record{}}
	ctx, cancel := context.WithTimeout(ctx, evidenceTimeout)
	defer cancel()
	err := p.askAll(ctx, questions, a.records)
	if err != nil {
		r := p.failure(ctx, err, clock())
		a.failed = &r
	}
	return a
}

var (
	errNoPool     = errors.New("dlq: evidence connection is not open")
	errReplica    = errors.New("dlq: evidence connection is a replica")
	errNoTable    = errors.New("table does not exist")
	errNoColumn   = errors.New("column does not exist")
	errColumnType = errors.New("column type cannot hold an event id")
)

// failure is the reason for a verdict of unknown.
func (p evidencePlace) failure(ctx context.Context, err error, at time.Time) Reason {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, errReplica):
		return reason("reason.unknown.evidence_replica", "connection", p.connection, "at", instant(at))
	case errors.Is(err, errNoTable), errors.Is(err, errNoColumn), errors.Is(err, errColumnType):
		return reason("reason.unknown.evidence_table", "table", p.table, "connection", p.connection, "at", instant(at), "error", err.Error())
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &pg) && pg.Code == "57014":
		return reason("reason.unknown.evidence_timeout", "connection", p.connection, "seconds", int(evidenceTimeout.Seconds()), "at", instant(at))
	case errors.As(err, &pg) && strings.HasPrefix(pg.Code, "42"):
		return reason("reason.unknown.evidence_table", "table", p.table, "connection", p.connection, "at", instant(at), "error", pg.Message)
	}
	return reason("reason.unknown.evidence", "connection", p.connection, "at", instant(at))
}

func (p evidencePlace) askAll(ctx context.Context, questions map[question]bool, into map[question]record) error {
	if p.pool == nil {
		return errNoPool
	}
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
		if !columns.event.holds(q.event) || p.group != "" && !columns.group.holds(q.group) {
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
	case replica:
		return c, errReplica
	case !there:
		return c, errNoTable
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
	for _, name := range []string{p.event, p.group, p.consumed} {
		if name != "" && types[name].name == "" {
			return c, fmt.Errorf("%w: %s", errNoColumn, name)
		}
	}
	if !c.event.usable() || p.group != "" && !c.group.usable() {
		return c, fmt.Errorf("%w: %s is %s", errColumnType, p.event, c.event.name)
	}
	return c, nil
}

// statement asks for up to evidencePairs pairs at once. Values are cast to the
// columns' own types, so that the index serves; names are quoted.
func (p evidencePlace) statement(ctx context.Context, conn *pgxpool.Conn, c evidenceColumns, batch []question, into map[question]record) error {
	events, groups := make([]string, len(batch)), make([]string, len(batch))
	for i, q := range batch {
		events[i], groups[i] = q.event, q.group
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

// from is the table, together with its archive where there is one: in one
// statement, a record that moves meanwhile is seen in one of the two.
func (p evidencePlace) from(c evidenceColumns) string {
	if c.archive == "" {
		return quoted(p.table)
	}
	var columns []string
	for _, name := range []string{p.event, p.group, p.consumed} {
		if name != "" {
			columns = append(columns, pgx.Identifier{name}.Sanitize())
		}
	}
	return fmt.Sprintf("(SELECT %[1]s FROM %[2]s UNION ALL SELECT %[1]s FROM %[3]s)", strings.Join(columns, ", "), quoted(p.table), c.archive)
}

// quoted quotes a table's name that may carry its schema.
func quoted(table string) string { return pgx.Identifier(strings.Split(table, ".")).Sanitize() }
