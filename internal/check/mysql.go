package check

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"oncemore/consumer/mysqlstore"
)

// consumeRecordMySQL checks the table that consumers write to.
func (r *run) consumeRecordMySQL(ctx context.Context, c Connection) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	subject, v := "connection/"+c.Name, values{"name": c.Name}
	columns, err := columnsOfMySQL(ctx, c.MySQL, mysqlstore.Table)
	var unique, innodb bool
	if err == nil && len(columns) > 0 {
		unique, innodb, err = tableOfMySQL(ctx, c.MySQL)
	}
	switch {
	case err != nil:
		r.say("consume_record.table.unknown", subject, v, reason(err))
	case len(columns) == 0:
		r.say("consume_record.table.missing", subject, v)
	case !innodb:
		r.say("consume_record.engine.bad", subject, v)
	case !r.recordColumns(subject, v, columns, unique):
		r.say("consume_record.table.ok", subject, v, describeColumns(columns)...)
	}
}

// A column without a character set has no length and compares by its value.
const sqlColumnsMySQL = `
SELECT column_name, COALESCE(character_maximum_length, 0),
       COALESCE(collation_name, 'binary') = 'binary' OR COALESCE(collation_name, '') LIKE '%\\_bin'
FROM information_schema.columns
WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?`

func columnsOfMySQL(ctx context.Context, db *sql.DB, table string) (map[string]column, error) {
	schema, name := splitName(table)
	rows, err := db.QueryContext(ctx, sqlColumnsMySQL, schema, name)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns := map[string]column{}
	for rows.Next() {
		var c column
		if err := rows.Scan(&c.Name, &c.Length, &c.Deterministic); err != nil {
			return nil, err
		}
		columns[c.Name] = c
	}
	return columns, rows.Err()
}

// splitName gives no schema for a table of the connection's own.
func splitName(table string) (schema *string, name string) {
	if before, after, qualified := strings.Cut(table, "."); qualified {
		return &before, after
	}
	return nil, table
}

// The key is complete, or two long ids that differ at their end count as one.
const sqlTableMySQL = `
SELECT COALESCE((SELECT SUM(s.column_name IN ('event_id', 'consumer_group')) = 2 AND COUNT(*) = 2
                 FROM information_schema.statistics s
                 WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name AND s.index_name = 'uk_event_consumer'
                   AND s.non_unique = 0 AND s.sub_part IS NULL), 0), t.engine = 'InnoDB'
FROM information_schema.tables t
WHERE t.table_schema = DATABASE() AND t.table_name = ?`

func tableOfMySQL(ctx context.Context, db *sql.DB) (unique, innodb bool, err error) {
	err = db.QueryRowContext(ctx, sqlTableMySQL, mysqlstore.Table).Scan(&unique, &innodb)
	return unique, innodb, err
}

// evidenceMySQL is evidence in MySQL.
func (r *run) evidenceMySQL(ctx context.Context, e Evidence, db *sql.DB, subject string, v values) {
	columns, err := columnsOfMySQL(ctx, db, e.Table)
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
	r.say("evidence.table.ok", subject, v, e.Table+" on connection "+e.Connection)
	r.writesMySQL(ctx, e, db, subject, v)
	r.indexMySQL(ctx, e, db, subject, v)
}

// sqlWritesMySQL lists what the user was granted beyond reading, on everything, on
// the schema (whose name may be a pattern) and on the table.
const sqlWritesMySQL = `
SELECT DISTINCT p.privilege_type FROM (
  SELECT grantee, privilege_type FROM information_schema.user_privileges
  UNION ALL SELECT grantee, privilege_type FROM information_schema.schema_privileges WHERE COALESCE(?, DATABASE()) LIKE table_schema
  UNION ALL SELECT grantee, privilege_type FROM information_schema.table_privileges WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?
) p
WHERE p.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'DROP', 'ALTER')
  AND REPLACE(p.grantee, '\'', '') = CURRENT_USER()
ORDER BY 1`

// writesMySQL looks at the user's own grants; those of roles do not show.
func (r *run) writesMySQL(ctx context.Context, e Evidence, db *sql.DB, subject string, v values) {
	schema, name := splitName(e.Table)
	rows, err := db.QueryContext(ctx, sqlWritesMySQL, schema, schema, name)
	if err != nil {
		r.say("evidence.readonly.unknown", subject, v, reason(err))
		return
	}
	defer rows.Close()
	var granted []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			r.say("evidence.readonly.unknown", subject, v, reason(err))
			return
		}
		granted = append(granted, one)
	}
	switch {
	case rows.Err() != nil:
		r.say("evidence.readonly.unknown", subject, v, reason(rows.Err()))
	case len(granted) > 0:
		r.say("evidence.readonly.writes", subject, v, "granted: "+strings.Join(granted, ", "))
	default:
		r.say("evidence.readonly.ok", subject, v, "as far as the user's own grants show")
	}
}

const sqlIndexesMySQL = `
SELECT index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index)
FROM information_schema.statistics
WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?
GROUP BY index_name ORDER BY index_name`

func (r *run) indexMySQL(ctx context.Context, e Evidence, db *sql.DB, subject string, v values) {
	schema, name := splitName(e.Table)
	rows, err := db.QueryContext(ctx, sqlIndexesMySQL, schema, name)
	if err != nil {
		r.say("evidence.index.unknown", subject, v, reason(err))
		return
	}
	defer rows.Close()
	serving := ""
	for rows.Next() {
		var index, list string
		if err := rows.Scan(&index, &list); err != nil {
			r.say("evidence.index.unknown", subject, v, reason(err))
			return
		}
		if columns := strings.Split(list, ","); serves(e, columns) {
			serving = index + " (" + strings.Join(columns, ", ") + ")"
		}
	}
	switch {
	case rows.Err() != nil:
		r.say("evidence.index.unknown", subject, v, reason(rows.Err()))
	case serving == "":
		r.say("evidence.index.missing", subject, v)
	default:
		r.say("evidence.index.ok", subject, v, serving)
	}
}
