package compensate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"oncemore/consumer/barrier"
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

// execute runs the statement with its guard row in one transaction. With dry it
// is rolled back, and only the number of rows is told.
func (t Target) execute(ctx context.Context, s *Statement, in Inputs, m barrier.Mark, dry bool) answer {
	var rows int64
	var err error
	if t.MySQL != nil {
		rows, err = t.executeMySQL(ctx, s, in, m, dry)
	} else {
		rows, err = t.executePostgres(ctx, s, in, m, dry)
	}
	a := answer{Rows: &rows, Barrier: string(barrier.Applied), outcome: done}
	var kept held
	switch {
	case errors.As(err, &kept):
		return answer{Barrier: string(kept), outcome: heldAs(barrier.Decision(kept))}
	case errors.Is(err, errDry):
	case err != nil:
		a.Barrier, a.Error, a.outcome = "", err.Error(), meaning(err)
	}
	return a
}

var errDry = errors.New("rolled back: it was only asked for its rows")

// held is the barrier's decision that a step has no effect.
type held barrier.Decision

func (h held) Error() string { return "the barrier says " + string(h) }

// heldAs is what a decision without an effect means for the step.
func heldAs(d barrier.Decision) outcome {
	switch d {
	case barrier.Duplicate:
		return already
	case barrier.Suspended:
		return refused // it was cancelled before it came
	}
	return done // a cancel that found nothing to undo
}

func (t Target) executePostgres(ctx context.Context, s *Statement, in Inputs, m barrier.Mark, dry bool) (rows int64, err error) {
	text, args, err := s.bind(s.Text, in, func(n int) string { return fmt.Sprintf("$%d", n) }, Inputs{})
	if err != nil {
		return 0, err
	}
	decision := barrier.Applied
	err = pgx.BeginFunc(ctx, t.Postgres, func(tx pgx.Tx) error {
		if !dry {
			if decision, err = barrier.Enter(ctx, tx, m); err != nil || !decision.Applies() {
				return err
			}
		}
		tag, err := tx.Exec(ctx, text, args...)
		if err != nil {
			return err
		}
		rows = tag.RowsAffected()
		return verdictOn(rows, s.Rows, dry)
	})
	if err == nil && !decision.Applies() {
		err = held(decision) // committed: an empty cancel keeps its try out
	}
	return rows, err
}

func (t Target) executeMySQL(ctx context.Context, s *Statement, in Inputs, m barrier.Mark, dry bool) (rows int64, err error) {
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
		decision, err := barrier.EnterMySQL(ctx, tx, m)
		if err == nil && !decision.Applies() {
			err = errors.Join(tx.Commit(), held(decision))
		}
		if err != nil {
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

func verdictOn(rows, want int64, dry bool) error {
	switch {
	case dry:
		return errDry
	case rows != want:
		return fmt.Errorf("%w: %d, not %d", errRows, rows, want)
	}
	return nil
}

// stands asks whether the step has been executed.
func (t Target) stands(ctx context.Context, m barrier.Mark) (bool, error) {
	if t.MySQL != nil {
		return barrier.StandsMySQL(ctx, t.MySQL, m)
	}
	return barrier.Stands(ctx, t.Postgres, m)
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
	for _, never := range []error{errRows, ErrInput, barrier.ErrMark, barrier.ErrConfirmed, barrier.ErrCancelled} {
		if errors.Is(err, never) {
			return refused
		}
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
