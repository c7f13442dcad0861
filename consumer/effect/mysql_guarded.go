package effect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"oncemore/consumer"
	"oncemore/consumer/mysqlstore"
)

// GuardedMySQL is an SQL effect in MySQL or MariaDB whose own tables recognise
// duplicates. Its consumer needs the same Strategy in consumer.Config.
type GuardedMySQL struct{ guard[mysqlstore.Tx] }

var (
	isInsert = regexp.MustCompile(`(?i)^\s*insert\b`)
	hides    = regexp.MustCompile(`(?i)^\s*insert\s+((low_priority|delayed|high_priority)\s+)?ignore\b|\bon\s+duplicate\s+key\b`)
)

// NewGuardedMySQL checks the declaration. ByUniqueKey takes a plain INSERT and
// the name of the key: a violation of that key is a duplicate, of another one an
// error. INSERT IGNORE and ON DUPLICATE KEY UPDATE are refused, as they hide
// which key it was, and the former values that were cut off as well.
func NewGuardedMySQL(c GuardConfig) (*GuardedMySQL, error) {
	st, err := parseMySQL(c.SQL)
	if err != nil {
		return nil, err
	}
	switch unique := c.Strategy == consumer.ByUniqueKey; {
	case unique && (!isInsert.MatchString(c.SQL) || hides.MatchString(c.SQL)):
		return nil, errors.New("strategy unique_key: in MySQL the statement has to be a plain INSERT: IGNORE and ON DUPLICATE KEY hide which key was violated")
	case unique && c.Key == "":
		return nil, errors.New("strategy unique_key: in MySQL the key has to be named (effect.unique_key), such as uk_event_channel or PRIMARY: any other violation is an error")
	case !unique && c.Key != "":
		return nil, fmt.Errorf("strategy %s has no unique key", c.Strategy)
	}
	g, err := newGuard[mysqlstore.Tx](c, st, parseMySQL)
	g.on = onMySQL{statement: st, key: c.Key}
	return &GuardedMySQL{g}, err
}

// Prepare asks the server whether it understands both statements, whether verify
// has the columns that it needs and the inserted table the key. Nothing is executed.
func (g *GuardedMySQL) Prepare(ctx context.Context, db *sql.DB) error {
	if err := g.statement.prepareMySQL(ctx, db); err != nil {
		return err
	}
	if g.strategy == consumer.ByUniqueKey {
		return g.prepareKey(ctx, db)
	}
	if err := g.verify.prepareMySQL(ctx, db); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return g.prepareVerify(ctx, db)
}

const sqlUniqueKeys = `
SELECT DISTINCT index_name FROM information_schema.statistics
WHERE table_schema = DATABASE() AND non_unique = 0 AND index_name = ?`

// prepareKey looks for the key in any table: which one the statement inserts
// into only the server knows.
func (g *GuardedMySQL) prepareKey(ctx context.Context, db *sql.DB) error {
	key := g.on.(onMySQL).key
	var found string
	err := db.QueryRowContext(ctx, sqlUniqueKeys, key).Scan(&found)
	if errors.Is(err, sql.ErrNoRows) || err == nil && found != key {
		return fmt.Errorf("no table of the database has a unique key %s", key)
	}
	return err
}

// integers are the types of a comparison and of what holds its result.
var integers = []string{"INT", "BIGINT", "TINYINT", "SMALLINT", "UNSIGNED BIGINT", "UNSIGNED INT", "UNSIGNED TINYINT"}

// prepareVerify asks for the columns, with a limit of no row.
func (g *GuardedMySQL) prepareVerify(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // its limit ends with it
	if _, err := conn.ExecContext(ctx, `SET SESSION sql_select_limit = 0`); err != nil {
		return err
	}
	rows, err := conn.QueryContext(ctx, g.verify.text, make([]any, len(g.verify.order))...)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if n := g.columns(); len(types) != n || !slices.Contains(integers, types[0].DatabaseTypeName()) {
		return fmt.Errorf("verify: strategy %s needs %d columns, the first of them a comparison or a number that is 0 or 1", g.strategy, n)
	}
	return rows.Err()
}
