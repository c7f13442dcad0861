package check

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/pgstore"
)

// pools are those that answer, by connection.
type pools struct{ read, write map[string]database }

// database is a pool of either kind.
type database struct {
	postgres *pgxpool.Pool
	mysql    *sql.DB
}

func (d database) ping(ctx context.Context) error {
	if d.mysql != nil {
		return d.mysql.PingContext(ctx)
	}
	return d.postgres.Ping(ctx)
}

func (c Connection) database() database { return database{c.Pool, c.MySQL} }

// connections checks each business database.
func (r *run) connections(ctx context.Context) pools {
	p := pools{read: map[string]database{}, write: map[string]database{}}
	for _, c := range r.in.Connections {
		if r.connection(ctx, c, "connection/"+c.Name) {
			p.read[c.Name] = c.database()
		}
		if c.Writer {
			r.writer(ctx, c.writing(), p)
		}
		if c.Repairs {
			r.repairs(ctx, c.repairing())
		}
	}
	return p
}

func (r *run) connection(ctx context.Context, c Connection, subject string) bool {
	if err := reach(ctx, c); err != nil {
		r.say("connection.reach.down", subject, values{"name": c.Name}, reason(err))
		return false
	}
	r.say("connection.reach.ok", subject, values{"name": c.Name})
	return true
}

// writer checks a connection as consumers use it.
func (r *run) writer(ctx context.Context, c Connection, p pools) {
	if !r.connection(ctx, c, "connection/"+c.Name+"/writer") {
		r.say("consume_record.table.unknown", "connection/"+c.Name, values{"name": c.Name})
		return
	}
	p.write[c.Name] = c.database()
	switch {
	case c.Unrecorded:
		return
	case c.MySQL != nil:
		r.consumeRecordMySQL(ctx, c)
	default:
		r.consumeRecord(ctx, c)
	}
	r.keeper(ctx, c, c.database())
}

func reach(ctx context.Context, c Connection) error {
	switch {
	case c.Err != nil:
		return c.Err
	case c.Pool == nil && c.MySQL == nil:
		return errNoPool
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	return c.database().ping(ctx)
}

// column is one of a table, as far as looking up needs.
type column struct {
	Name          string
	Length        int // characters; 0: no limit
	Deterministic bool
}

// A varchar's limit is its type modifier less 4.
const sqlColumns = `
SELECT a.attname, CASE WHEN t.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 ELSE 0 END,
       coalesce(c.collisdeterministic, true)
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass(@table) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attname`

func columnsOf(ctx context.Context, pool *pgxpool.Pool, table string) (map[string]column, error) {
	rows, _ := pool.Query(ctx, sqlColumns, pgx.NamedArgs{"table": table}) // its error comes with the rows
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	columns := map[string]column{}
	for _, c := range found {
		columns[c.Name] = c
	}
	return columns, err
}

// A unique key that holds for every row at once: valid, immediate, no expression, no predicate.
const sqlUnique = `
SELECT EXISTS (
  SELECT FROM pg_index i
  WHERE i.indrelid = to_regclass(@table) AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
    AND (SELECT array_agg(a.attname::text ORDER BY a.attname)
         FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, no)
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
         WHERE k.no <= i.indnkeyatts) = ARRAY['consumer_group', 'event_id'])`

// recordColumns are the specified ones that a look-up or an insert names.
var recordColumns = []string{"event_id", "consumer_group", "consumed_at"}

// shortest is how wide the two id columns have to be.
const shortest = 255

// consumeRecord checks the table that consumers write to.
func (r *run) consumeRecord(ctx context.Context, c Connection) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	subject, v := "connection/"+c.Name, values{"name": c.Name}
	columns, err := columnsOf(ctx, c.Pool, pgstore.Table)
	var unique bool
	if err == nil {
		err = c.Pool.QueryRow(ctx, sqlUnique, pgx.NamedArgs{"table": pgstore.Table}).Scan(&unique)
	}
	if err != nil {
		r.say("consume_record.table.unknown", subject, v, reason(err))
		return
	}
	if len(columns) == 0 {
		r.say("consume_record.table.missing", subject, v)
		return
	}
	if !r.recordColumns(subject, v, columns, unique) {
		r.say("consume_record.table.ok", subject, v, describeColumns(columns)...)
	}
}

// recordColumns reports every fault of the table and whether there is one.
func (r *run) recordColumns(subject string, v values, columns map[string]column, unique bool) bool {
	before := len(r.findings)
	if missing := missingOf(columns, recordColumns); len(missing) > 0 {
		r.say("consume_record.columns.missing", subject, with(v, "columns", strings.Join(missing, ", ")))
		return true
	}
	if !unique {
		r.say("consume_record.unique.missing", subject, v)
	}
	var loose, short []string
	for _, name := range recordColumns[:2] {
		if !columns[name].Deterministic {
			loose = append(loose, name)
		}
		if n := columns[name].Length; n > 0 && n < shortest {
			short = append(short, fmt.Sprintf("%s (%d)", name, n))
		}
	}
	if len(loose) > 0 {
		r.say("consume_record.collation.loose", subject, with(v, "columns", strings.Join(loose, ", ")))
	}
	if len(short) > 0 {
		r.say("consume_record.length.short", subject, with(v, "columns", strings.Join(short, ", ")))
	}
	return len(r.findings) > before
}

func missingOf(columns map[string]column, wanted []string) []string {
	var missing []string
	for _, name := range wanted {
		if _, ok := columns[name]; !ok {
			missing = append(missing, name)
		}
	}
	return missing
}

func describeColumns(columns map[string]column) []string {
	lines := make([]string, 0, len(recordColumns))
	for _, name := range recordColumns {
		limit := "no limit"
		if n := columns[name].Length; n > 0 {
			limit = fmt.Sprintf("%d characters", n)
		}
		lines = append(lines, name+": "+limit)
	}
	return lines[:2]
}

// with returns v with one more name.
func with(v values, name, value string) values {
	all := values{name: value}
	for n, x := range v {
		all[n] = x
	}
	return all
}
