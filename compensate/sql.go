package compensate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// parameter is a name in a statement: :key.event_id. Literals, comments and
// casts are left alone.
var parameter = regexp.MustCompile(`(?s)'(?:[^']|'')*'|"(?:[^"]|"")*"|` + "`[^`]*`" + `|--[^\n]*|/\*.*?\*/|::|:=|:[A-Za-z_][\w.]*`)

// params are the values of a statement's parameters.
func (s *Statement) params(in Inputs) (Inputs, error) {
	values := Inputs{}
	_, _, err := s.bind(s.Text+" "+s.Guard, in, func(int) string { return "" }, values)
	return values, err
}

// bind replaces parameters by marks, and gives their values in order.
func (s *Statement) bind(text string, in Inputs, mark func(n int) string, seen Inputs) (string, []any, error) {
	var args []any
	var bad error
	out := parameter.ReplaceAllStringFunc(text, func(token string) string {
		if token[0] != ':' || token == "::" || token == ":=" {
			return token
		}
		value, ok := in[token[1:]]
		if !ok {
			bad = fmt.Errorf("%w: %s", ErrInput, token)
		}
		args, seen[token[1:]] = append(args, value), value
		return mark(len(args))
	})
	return out, args, bad
}

// errRows rolls a statement back that affects another number of rows.
var errRows = errors.New("the statement affects another number of rows than expect.rows")

// Guard tables keep one row per executed step, in the transaction of the step.
const (
	sqlGuardPostgres = `INSERT INTO oncemore_barrier (saga, step, op) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`
	sqlGuardMySQL    = `INSERT INTO oncemore_barrier (saga, step, op) VALUES (?, ?, ?)`
	sqlGuardThere    = `SELECT count(*) FROM oncemore_barrier WHERE saga = %s AND step = %s AND op = %s`
)

// barrier is a row of the guard table: a step is executed once in a direction.
type barrier struct {
	saga string
	step string
	op   string
}

// execute runs the statement with its guard row in one transaction. With dry it
// is rolled back, and only the number of rows is told.
func (t Target) execute(ctx context.Context, s *Statement, in Inputs, b barrier, dry bool) answer {
	var rows int64
	var err error
	if t.MySQL != nil {
		rows, err = t.executeMySQL(ctx, s, in, b, dry)
	} else {
		rows, err = t.executePostgres(ctx, s, in, b, dry)
	}
	a := answer{Rows: &rows, outcome: done}
	switch {
	case errors.Is(err, errGuarded):
		return answer{outcome: already}
	case errors.Is(err, errDry):
	case err != nil:
		a.Error, a.outcome = err.Error(), meaning(err)
	}
	return a
}

var (
	errDry     = errors.New("rolled back: it was only asked for its rows")
	errGuarded = errors.New("the step was executed before")
)

func (t Target) executePostgres(ctx context.Context, s *Statement, in Inputs, b barrier, dry bool) (rows int64, err error) {
	text, args, err := s.bind(s.Text, in, func(n int) string { return fmt.Sprintf("$%d", n) }, Inputs{})
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, t.Postgres, func(tx pgx.Tx) error {
		if !dry {
			tag, err := tx.Exec(ctx, sqlGuardPostgres, b.saga, b.step, b.op)
			if err != nil {
				return fmt.Errorf("guard row: %w", err)
			}
			if tag.RowsAffected() == 0 {
				return errGuarded
			}
		}
		tag, err := tx.Exec(ctx, text, args...)
		if err != nil {
			return err
		}
		rows = tag.RowsAffected()
		return verdictOn(rows, s.Rows, dry)
	})
	return rows, err
}

func (t Target) executeMySQL(ctx context.Context, s *Statement, in Inputs, b barrier, dry bool) (rows int64, err error) {
	text, args, err := s.bind(s.Text, in, func(int) string { return "?" }, Inputs{})
	if err != nil {
		return 0, err
	}
	tx, err := t.MySQL.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if !dry {
		if err := guardMySQL(ctx, tx, b); err != nil {
			return 0, err
		}
	}
	result, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return 0, err
	}
	if rows, err = result.RowsAffected(); err != nil {
		return 0, err
	}
	if err := verdictOn(rows, s.Rows, dry); err != nil {
		return rows, err
	}
	return rows, tx.Commit()
}

func guardMySQL(ctx context.Context, tx *sql.Tx, b barrier) error {
	_, err := tx.ExecContext(ctx, sqlGuardMySQL, b.saga, b.step, b.op)
	if isDuplicate(err) {
		return errGuarded
	}
	if err != nil {
		return fmt.Errorf("guard row: %w", err)
	}
	return nil
}

func verdictOn(rows, want int64, dry bool) error {
	switch {
	case dry:
		return errDry
	case rows != want:
		return fmt.Errorf("%w: %d, not %d", errRows, rows, want)
	}
	return nil
}

// guarded asks whether the step has been executed.
func (t Target) guarded(ctx context.Context, b barrier) (bool, error) {
	var n int
	if t.MySQL != nil {
		err := t.MySQL.QueryRowContext(ctx, fmt.Sprintf(sqlGuardThere, "?", "?", "?"), b.saga, b.step, b.op).Scan(&n)
		return n > 0, err
	}
	err := t.Postgres.QueryRow(ctx, fmt.Sprintf(sqlGuardThere, "$1", "$2", "$3"), b.saga, b.step, b.op).Scan(&n)
	return n > 0, err
}

// isDuplicate recognises MySQL's refusal of a second guard row.
func isDuplicate(err error) bool {
	refused, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && refused.Number == 1062
}

// meaning is what a statement's error says: contention and a lost connection
// before the commit are tried again, for nothing of it is there; what the
// database refuses is refused for good. The guard row tells whether a commit
// whose answer was lost took place.
func meaning(err error) outcome {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pg.Code[:2] {
		case "40", "53", "55", "57", "08":
			return retry
		}
		return refused
	}
	if my, ok := errors.AsType[*mysql.MySQLError](err); ok {
		if slices.Contains([]uint16{1205, 1213, 1040, 1053}, my.Number) {
			return retry
		}
		return refused
	}
	if errors.Is(err, errRows) || errors.Is(err, ErrInput) {
		return refused
	}
	return unknown
}

// count says how many rows a query gives.
func (t Target) count(ctx context.Context, s *Statement, text string, in Inputs) (int64, error) {
	mark := func(n int) string { return fmt.Sprintf("$%d", n) }
	if t.MySQL != nil {
		mark = func(int) string { return "?" }
	}
	text, args, err := s.bind(text, in, mark, Inputs{})
	if err != nil {
		return 0, err
	}
	query := "SELECT count(*) FROM (" + text + ") q"
	var n int64
	if t.MySQL != nil {
		err = t.MySQL.QueryRowContext(ctx, query, args...).Scan(&n)
	} else {
		err = t.Postgres.QueryRow(ctx, query, args...).Scan(&n)
	}
	return n, err
}
