package dlq

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// EvidenceProposal is a table that looks like consume records, with its columns
// mapped, and what a look-up of one of its rows said.
type EvidenceProposal struct {
	Evidence            // Connection is left empty where the caller named none
	Unique   bool       // a unique key on the event id, alone or with the group: duplicates cannot take effect twice
	Rows     int64      // about, by the database's statistics
	Groups   []string   // that have records, at most 20, of the table's first 10,000 rows; none without a group column
	Oldest   *time.Time // record; nil: not known, or it took too long
	Sample   string     // event id that was looked up; "" the table is empty
	Answer   EvidenceAnswer
}

// What columns and tables of consume records are called.
var (
	eventColumn  = regexp.MustCompile(`(?i)^(event|message|msg|idempoten(t|cy)|dedup(lication)?|request|biz|business|unique|transaction|trace)_?(id|key|no|uuid)$|^(idempotency|dedup)key$`)
	groupColumn  = regexp.MustCompile(`(?i)^(consumer|consumer_?group|consumer_?(name|id)|group|group_?name|message_?group|subscriber|subscriber_?(name|id)|handler|handler_?name|listener|listener_?(name|id)|processor|processor_?name)$`)
	timeColumn   = regexp.MustCompile(`(?i)^(consumed|consume|processed|process|handled|received|created|create|inserted|done|finished|applied)_?(at|on|time|date|ts|timestamp)$|^gmt_create$`)
	recordTable  = regexp.MustCompile(`(?i)consum|inbox|idempot|dedup|processed|handled|message_?log|msg_?log`)
	foreignTable = regexp.MustCompile(`(?i)outbox|event_store|dead_?letter|^letter_|^replay|^event_claim|archive$`)
)

// tableShape is a table as its schema tells it.
type tableShape struct {
	schema, name string
	rows         int64
	columns      []shapeColumn
	unique       [][]string // columns of each unique key that holds for all rows
}

type shapeColumn struct {
	name       string
	text, time bool // of such a type; a uuid or a whole number counts as text
}

// find gives the first column, in the order of the names that prefer it, that
// matches and is of the kind.
func (t tableShape) find(name *regexp.Regexp, kind func(shapeColumn) bool) string {
	for _, c := range t.columns {
		if kind(c) && name.MatchString(c.name) {
			return c.name
		}
	}
	return ""
}

// propose maps the columns. False: it does not look like consume records.
func (t tableShape) propose() (p EvidenceProposal, ok bool) {
	if foreignTable.MatchString(t.name) {
		return p, false
	}
	text := func(c shapeColumn) bool { return c.text }
	p.EventID, p.ConsumerGroup = t.find(eventColumn, text), t.find(groupColumn, text)
	p.ConsumedAt = t.find(timeColumn, func(c shapeColumn) bool { return c.time })
	if p.EventID == "" {
		return p, false
	}
	p.Unique = slices.ContainsFunc(t.unique, func(key []string) bool {
		return slices.Contains(key, p.EventID) && !slices.ContainsFunc(key, func(c string) bool { return c != p.EventID && c != p.ConsumerGroup })
	})
	p.Table, p.Rows = t.name, t.rows
	if t.schema != "" {
		p.Table = t.schema + "." + t.name
	}
	return p, p.Unique || recordTable.MatchString(t.name)
}

// weight orders proposals: what can be relied on comes first.
func (p EvidenceProposal) weight() (n int) {
	for _, good := range []bool{p.Unique, p.Unique, p.ConsumerGroup != "", p.ConsumedAt != "", recordTable.MatchString(p.Table), p.Answer.Found && p.Answer.Exact} {
		if good {
			n++
		}
	}
	return n
}

const mostProposals = 20

// FindEvidence looks at the schema of the connection that from names (Connection,
// and Pool or MySQL) for tables that look like consume records, likeliest first,
// at most 20, and looks one row of each up. It only reads.
func FindEvidence(ctx context.Context, from Evidence) ([]EvidenceProposal, error) {
	shapes, err := from.shapes(ctx)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", from.Connection, err)
	}
	var all []EvidenceProposal
	for _, t := range shapes {
		p, ok := t.propose()
		if !ok {
			continue
		}
		p.Connection, p.Pool, p.MySQL = from.Connection, from.Pool, from.MySQL
		all = append(all, p)
	}
	byWeight := func(a, b EvidenceProposal) int {
		return cmp.Or(b.weight()-a.weight(), strings.Compare(a.Table, b.Table))
	}
	slices.SortFunc(all, byWeight)
	all = all[:min(len(all), mostProposals)]
	for i := range all {
		all[i].look(ctx)
	}
	slices.SortStableFunc(all, byWeight)
	return all, nil
}

func (e Evidence) shapes(ctx context.Context) ([]tableShape, error) {
	switch {
	case e.Pool != nil:
		return postgresShapes(ctx, e.Pool)
	case e.MySQL != nil:
		return mysqlShapes(ctx, e.MySQL)
	}
	return nil, errNoPool
}

// Types whose values are asked for as text; enums and JSON are none.
const sqlPostgresShapes = `
SELECT CASE WHEN n.nspname = current_schema() THEN '' ELSE n.nspname END, c.relname, greatest(c.reltuples, 0)::bigint,
  (SELECT array_agg(array[a.attname::text,
     (t.typcategory = 'S' OR t.typname IN ('uuid', 'int8', 'int4'))::text, (t.typname IN ('timestamptz', 'timestamp', 'date'))::text] ORDER BY a.attnum)
   FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  coalesce((SELECT array_agg(k.columns) FROM (
     SELECT string_agg(a.attname, chr(1) ORDER BY u.no) AS columns
     FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY u(attnum, no)
     JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.attnum
     WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL AND u.no <= i.indnkeyatts
     GROUP BY i.indexrelid) k), '{}')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg_toast%'
  AND has_table_privilege(c.oid, 'SELECT')
ORDER BY 1, 2 LIMIT 5000`

func postgresShapes(ctx context.Context, pool *pgxpool.Pool) ([]tableShape, error) {
	rows, _ := pool.Query(ctx, sqlPostgresShapes) // its error comes with the rows
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (tableShape, error) {
		var t tableShape
		var columns [][]string
		var keys []string
		err := row.Scan(&t.schema, &t.name, &t.rows, &columns, &keys)
		for _, c := range columns {
			t.columns = append(t.columns, shapeColumn{c[0], c[1] == "true", c[2] == "true"})
		}
		for _, k := range keys {
			t.unique = append(t.unique, strings.Split(k, "\x01"))
		}
		return t, err
	})
}

const (
	sqlMySQLShapes = `
SELECT c.table_name, COALESCE(t.table_rows, 0), c.column_name,
  c.data_type IN ('char', 'varchar', 'tinytext', 'text', 'varbinary', 'uuid', 'bigint', 'int'), c.data_type IN ('timestamp', 'datetime', 'date')
FROM information_schema.columns c JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
WHERE c.table_schema = DATABASE() AND t.table_type = 'BASE TABLE'
ORDER BY c.table_name, c.ordinal_position LIMIT 50000`

	sqlMySQLUnique = `
SELECT table_name, GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR '\n')
FROM information_schema.statistics
WHERE table_schema = DATABASE() GROUP BY table_name, index_name HAVING SUM(non_unique) = 0 AND COUNT(sub_part) = 0`
)

func mysqlShapes(ctx context.Context, db *sql.DB) ([]tableShape, error) {
	var all []tableShape
	err := eachRow(ctx, db, sqlMySQLShapes, func(scan func(...any) error) error {
		var name string
		var rows int64
		var c shapeColumn
		err := scan(&name, &rows, &c.name, &c.text, &c.time)
		if n := len(all); n == 0 || all[n-1].name != name {
			all = append(all, tableShape{name: name, rows: rows})
		}
		all[len(all)-1].columns = append(all[len(all)-1].columns, c)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = eachRow(ctx, db, sqlMySQLUnique, func(scan func(...any) error) error {
		var name, columns string
		err := scan(&name, &columns)
		if i := slices.IndexFunc(all, func(t tableShape) bool { return t.name == name }); i >= 0 {
			all[i].unique = append(all[i].unique, strings.Split(columns, "\n"))
		}
		return err
	})
	return all, err
}

func eachRow(ctx context.Context, db *sql.DB, query string, do func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// lookTime bounds each question about one table: none is worth waiting for.
const lookTime = 2 * time.Second

// look asks the table for its groups, its oldest record and a row to try.
func (p *EvidenceProposal) look(ctx context.Context) {
	group := "''"
	if p.ConsumerGroup != "" {
		group = p.quote(p.ConsumerGroup)
		p.Groups = p.texts(ctx, "SELECT DISTINCT g FROM (SELECT "+p.cast(group)+" AS g FROM "+p.from()+" LIMIT 10000) x WHERE g IS NOT NULL ORDER BY 1 LIMIT 20")
	}
	if p.ConsumedAt != "" {
		p.Oldest = p.oldest(ctx)
	}
	event := p.quote(p.EventID)
	sample := p.texts(ctx, "SELECT "+p.cast(event)+" FROM "+p.from()+" WHERE "+event+" IS NOT NULL LIMIT 1")
	if len(sample) == 0 {
		return
	}
	p.Sample = sample[0]
	in := p.texts(ctx, "SELECT "+p.cast(group)+" FROM "+p.from()+" WHERE "+event+" IS NOT NULL LIMIT 1")
	if len(in) == 1 {
		p.Answer = p.Ask(ctx, p.Sample, in[0])
	}
}

// sampleRows is how many rows are looked at for their groups.
const sampleRows = 10_000

// Strangers looks at some rows for the group's, and gives what their group column
// holds instead, at most five values. With a group that is misspelt, or columns that
// are mixed up, no event seems to have a record, and all of them look safe. nil:
// a row is the group's, there is none at all, or the group's may be among those that
// were not looked at.
func (e Evidence) Strangers(ctx context.Context, group string) []string {
	if e.ConsumerGroup == "" {
		return nil
	}
	found := e.texts(ctx, fmt.Sprintf("SELECT g FROM (SELECT %s AS g FROM %s LIMIT %d) x WHERE g IS NOT NULL", e.cast(e.quote(e.ConsumerGroup)), e.from(), sampleRows))
	of := cmp.Or(e.GroupValue, group)
	if len(found) == 0 || slices.ContainsFunc(found, func(g string) bool { return strings.EqualFold(g, of) }) {
		return nil
	}
	n := len(found)
	slices.Sort(found)
	if found = slices.Compact(found); n == sampleRows && len(found) < n/2 { // groups are few, ids are not
		return nil
	}
	return found[:min(len(found), 5)]
}

func (e Evidence) quote(name string) string {
	if e.MySQL != nil {
		return backticks(name)
	}
	return pgx.Identifier{name}.Sanitize()
}

func (e Evidence) from() string {
	if e.MySQL != nil {
		return mysqlTable(e.Table)
	}
	return quoted(e.Table)
}

func (e Evidence) cast(expression string) string {
	if e.MySQL != nil {
		return "CAST(" + expression + " AS CHAR)"
	}
	return expression + "::text"
}

// texts reads one column; what cannot be read in time is none.
func (e Evidence) texts(ctx context.Context, query string) (all []string) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	if e.MySQL != nil {
		err := eachRow(ctx, e.MySQL, query, func(scan func(...any) error) error {
			var s string
			err := scan(&s)
			all = append(all, s)
			return err
		})
		if err != nil {
			return nil
		}
		return all
	}
	rows, _ := e.Pool.Query(ctx, query) // its error comes with the rows
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil
	}
	return all
}

func (e Evidence) oldest(ctx context.Context) *time.Time {
	column := e.quote(e.ConsumedAt)
	query := "SELECT coalesce(extract(epoch FROM min(" + column + ")::timestamptz)::bigint::text, '') FROM " + e.from()
	if e.MySQL != nil {
		query = "SELECT COALESCE(CAST(TIMESTAMPDIFF(SECOND, '1970-01-01', MIN(" + column + ")) AS CHAR), '') FROM " + e.from()
	}
	var seconds int64
	if got := e.texts(ctx, query); len(got) != 1 || got[0] == "" {
		return nil
	} else if _, err := fmt.Sscan(got[0], &seconds); err != nil {
		return nil
	}
	return ptr(time.Unix(seconds, 0).UTC())
}

// YAML is the config's groups section for the proposal. Groups are those that
// have records; where there are none, a name to be replaced. now is the day since
// when records count as complete where no record says.
func (p EvidenceProposal) YAML(now time.Time) string {
	since := now.UTC()
	if p.Oldest != nil {
		since = *p.Oldest
	}
	groups := p.Groups
	if len(groups) == 0 {
		groups = []string{"NAME-OF-THE-GROUP"}
	}
	var b strings.Builder
	b.WriteString("groups:\n")
	for _, group := range groups {
		fmt.Fprintf(&b, "  %s:\n    evidence:\n      connection: %s\n      table: %s\n      event_id: %s\n      consumer_group: %s\n      consumed_at: %s\n", yamlText(group),
			yamlText(p.Connection), yamlText(p.Table), yamlText(p.EventID), yamlText(cmp.Or(p.ConsumerGroup, "none")), yamlText(cmp.Or(p.ConsumedAt, "none")))
		fmt.Fprintf(&b, "      complete_since: %s  # no record is missing since then: later, if older ones were deleted\n    effect: local  # external, if the group acts on another system\n", since.AddDate(0, 0, 1).Format(time.DateOnly))
	}
	return b.String()
}

var plainYAML = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// yamlText quotes what YAML would read as something else.
func yamlText(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		return `"` + s + `"`
	}
	if plainYAML.MatchString(s) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}
