package check

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// evidence checks where a group's consume records are looked up.
func (r *run) evidence(ctx context.Context, e Evidence, pools map[string]database) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	subject := "group/" + e.Group
	v := values{"group": e.Group, "table": e.Table, "connection": e.Connection, "event_id": e.EventID, "consumer_group": e.ConsumerGroup}
	db := pools[e.Connection]
	if e.Try != nil && (db.mysql != nil || db.postgres != nil) {
		r.lookUp(ctx, e, subject, v)
	}
	if db.mysql != nil {
		r.evidenceMySQL(ctx, e, db.mysql, subject, v)
		return
	}
	pool := db.postgres
	if pool == nil {
		r.say("evidence.table.unknown", subject, v)
		return
	}
	columns, err := columnsOf(ctx, pool, e.Table)
	if err != nil {
		r.say("evidence.table.unknown", subject, v, reason(err))
		return
	}
	if len(columns) == 0 {
		r.say("evidence.table.missing", subject, v)
		return
	}
	wanted := slices.DeleteFunc([]string{e.EventID, e.ConsumerGroup, e.ConsumedAt}, func(name string) bool { return name == "" })
	if missing := missingOf(columns, wanted); len(missing) > 0 {
		r.say("evidence.columns.missing", subject, with(v, "columns", strings.Join(missing, ", ")))
		return
	}
	r.privileges(ctx, e, pool, subject, v)
	r.index(ctx, e, pool, subject, v)
}

// lookUp asks for an event that there is not, as a verdict would: conditions,
// types and replicas show only there.
func (r *run) lookUp(ctx context.Context, e Evidence, subject string, v values) {
	if err := e.Try(ctx); err != nil {
		r.say("evidence.lookup.failed", subject, v, reason(err))
		return
	}
	r.say("evidence.lookup.ok", subject, v)
	if e.Strangers == nil {
		return
	}
	if others := e.Strangers(ctx); len(others) > 0 {
		r.say("evidence.group.absent", subject, v, e.ConsumerGroup+" holds "+strings.Join(others, ", "))
	}
}

const sqlPrivileges = `
SELECT has_table_privilege(@table, 'SELECT'), has_table_privilege(@table, 'INSERT, UPDATE, DELETE, TRUNCATE'), current_user::text`

func (r *run) privileges(ctx context.Context, e Evidence, pool *pgxpool.Pool, subject string, v values) {
	var may, writes bool
	var user string
	err := pool.QueryRow(ctx, sqlPrivileges, pgx.NamedArgs{"table": e.Table}).Scan(&may, &writes, &user)
	switch {
	case err != nil:
		r.say("evidence.table.unknown", subject, v, reason(err))
		return
	case !may:
		r.say("evidence.select.denied", subject, v, "user "+user)
		return
	}
	r.say("evidence.table.ok", subject, v, e.Table+" on connection "+e.Connection+" as "+user)
	if writes {
		r.say("evidence.readonly.writes", subject, v, "user "+user)
		return
	}
	r.say("evidence.readonly.ok", subject, v, "user "+user)
}

// An index serves if it begins with the event id, or with the group and then the
// event id: then one look-up reads a handful of rows.
const sqlIndexes = `
SELECT i.indexrelid::regclass::text, array_agg(a.attname::text ORDER BY k.no)
FROM pg_index i
CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, no)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = to_regclass(@table) AND i.indisvalid AND i.indpred IS NULL AND k.no <= i.indnkeyatts
GROUP BY 1 ORDER BY 1`

func serves(e Evidence, columns []string) bool {
	return columns[0] == e.EventID || len(columns) > 1 && columns[0] == e.ConsumerGroup && columns[1] == e.EventID
}

func (r *run) index(ctx context.Context, e Evidence, pool *pgxpool.Pool, subject string, v values) {
	rows, _ := pool.Query(ctx, sqlIndexes, pgx.NamedArgs{"table": e.Table}) // its error comes with the rows
	serving := ""
	var name string
	var columns []string
	_, err := pgx.ForEachRow(rows, []any{&name, &columns}, func() error {
		if serves(e, columns) {
			serving = name + " (" + strings.Join(columns, ", ") + ")"
		}
		return nil
	})
	switch {
	case err != nil:
		r.say("evidence.index.unknown", subject, v, reason(err))
	case serving == "":
		r.say("evidence.index.missing", subject, v)
	default:
		r.say("evidence.index.ok", subject, v, serving)
	}
}
