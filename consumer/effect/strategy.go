package effect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// GuardConfig declares an SQL effect whose own tables recognise duplicates. See
// the strategies' comments in package consumer for when that suffices.
type GuardConfig struct {
	Strategy   consumer.Strategy // ByUniqueKey, ByState, ByLock or ByVersion
	SQL        string            // as for NewSQL
	ExpectRows *int64            // where it takes effect; nil does not ask

	// Verify is a query whose first column says whether the event was processed,
	// as a boolean; no row and null mean no. ByState asks it when SQL affects no
	// row, ByLock before SQL. ByVersion reads the version with it, as the second
	// column: SQL knows it as :version (the payload's own field is :$.version),
	// and no row is an anomaly. ByUniqueKey has none.
	Verify string
}

// Guarded is an SQL effect whose own tables recognise duplicates. Its consumer
// needs the same Strategy in consumer.Config.
type Guarded struct {
	sql      *SQL
	strategy consumer.Strategy
	verify   statement
}

var _ Effect = (*Guarded)(nil)

// NewGuarded checks the declaration. Errors name what is wrong in SQL or Verify.
func NewGuarded(c GuardConfig) (*Guarded, error) {
	sql, err := NewSQL(c.SQL, c.ExpectRows)
	if err != nil {
		return nil, err
	}
	g := &Guarded{sql: sql, strategy: c.Strategy}
	if err := c.validate(sql); err != nil {
		return nil, err
	}
	if c.Verify != "" {
		if g.verify, err = parse(c.Verify); err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
	}
	return g, nil
}

var (
	doNothing = regexp.MustCompile(`(?is)\bon\s+conflict\s*(\(|on\s+constraint\b).*\bdo\s+nothing\b`)
	isQuery   = regexp.MustCompile(`(?i)^\s*(select|with)\b`)
)

func (c GuardConfig) validate(sql *SQL) error {
	switch c.Strategy {
	case consumer.ByUniqueKey:
		if !doNothing.MatchString(c.SQL) {
			return errors.New("strategy unique_key: the statement needs ON CONFLICT (columns of the key) DO NOTHING: " +
				"without it a duplicate is an error, and without the columns any constraint counts as a duplicate")
		}
		if c.Verify != "" {
			return errors.New("strategy unique_key has no verify query: zero rows are a duplicate")
		}
		return nil
	case consumer.ByState, consumer.ByLock, consumer.ByVersion:
	default:
		return fmt.Errorf("strategy %q does not rest on the statement's own tables", c.Strategy)
	}
	if !isQuery.MatchString(c.Verify) {
		return fmt.Errorf("strategy %s needs verify, a query that says whether the event was processed", c.Strategy)
	}
	if c.Strategy == consumer.ByVersion && !slices.Contains(sql.statement.params, "version") {
		return errors.New("strategy version: the statement has to compare with :version, which verify has read")
	}
	return nil
}

// BatchSize is 0: any number of events may share a transaction.
func (g *Guarded) BatchSize() int { return 0 }

// Handler runs the statement and reads its zero rows as the strategy does. Errors
// have the outcomes of SQL.Handler; an anomaly is a *consumer.AnomalyError.
func (g *Guarded) Handler() consumer.Handler[pgstore.Tx] {
	switch g.strategy {
	case consumer.ByUniqueKey:
		return g.insert
	case consumer.ByState:
		return g.transition
	case consumer.ByLock:
		return g.locked
	default:
		return g.versioned
	}
}

func (g *Guarded) insert(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	return g.sql.queue(ctx, tx, ev, func(rows int64) error {
		if !consumer.Inserted(ctx, rows) {
			return nil
		}
		return g.sql.expect(rows)
	})
}

// transition asks at once: the answer may need a second question.
func (g *Guarded) transition(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	rows, err := g.exec(ctx, tx, ev, nil)
	if err != nil {
		return err
	}
	done, err := consumer.Transitioned(ctx, rows, func() (bool, error) {
		processed, err := g.ask(ctx, tx, ev)
		return processed, ignoreNoRows(err)
	})
	if !done {
		return err
	}
	return g.sql.expect(rows)
}

func (g *Guarded) locked(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	switch processed, err := g.ask(ctx, tx, ev); {
	case ignoreNoRows(err) != nil:
		return err
	case processed:
		consumer.Duplicate(ctx)
		return nil
	}
	rows, err := g.exec(ctx, tx, ev, nil)
	if err != nil {
		return err
	}
	return g.sql.expect(rows)
}

func (g *Guarded) versioned(ctx context.Context, tx pgstore.Tx, ev consumer.Event) error {
	var version any
	var rows int64
	done, err := consumer.Versioned(ctx,
		func() (processed bool, err error) {
			processed, err = g.ask(ctx, tx, ev, &version)
			if errors.Is(err, pgx.ErrNoRows) {
				err = &consumer.AnomalyError{Reason: "there is no row to read a version of"}
			}
			return processed, err
		},
		func() (_ int64, err error) {
			rows, err = g.exec(ctx, tx, ev, map[string]any{"version": version})
			return rows, err
		})
	if !done {
		return err
	}
	return g.sql.expect(rows)
}

// exec runs the statement now and returns how many rows it affected.
func (g *Guarded) exec(ctx context.Context, tx pgstore.Tx, ev consumer.Event, more map[string]any) (int64, error) {
	args, err := g.sql.statement.args(ev, more)
	if err != nil {
		return 0, consumer.Permanent(err)
	}
	tag, err := tx.Exec(ctx, g.sql.statement.text, args...)
	if err != nil {
		return 0, sqlOutcome(err)
	}
	return tag.RowsAffected(), nil
}

// ask runs the verify query. Columns after the first go into more.
func (g *Guarded) ask(ctx context.Context, tx pgstore.Tx, ev consumer.Event, more ...any) (bool, error) {
	args, err := g.verify.args(ev, nil)
	if err != nil {
		return false, consumer.Permanent(err)
	}
	var processed *bool
	err = tx.QueryRow(ctx, g.verify.text, args...).Scan(append([]any{&processed}, more...)...)
	if err != nil {
		return false, sqlOutcome(err)
	}
	return processed != nil && *processed, nil
}

func ignoreNoRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

// Prepare asks the database whether it understands both statements, and whether
// verify has the columns that it needs. Nothing is executed.
func (g *Guarded) Prepare(ctx context.Context, pool *pgxpool.Pool) error {
	if err := g.sql.Prepare(ctx, pool); err != nil || g.verify.text == "" {
		return err
	}
	described, err := g.verify.prepare(ctx, pool)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	columns := 1
	if g.strategy == consumer.ByVersion {
		columns = 2
	}
	if len(described.Fields) != columns || described.Fields[0].DataTypeOID != pgtype.BoolOID {
		return fmt.Errorf("verify: strategy %s needs %d columns, the first of them boolean", g.strategy, columns)
	}
	return nil
}

// NewKeys declares what an event locks (consumer.Config.Keys): by name, values
// that are text or, with a colon, a field of the event as in NewSQL. The key of
// {"user": [":userId"]} is user/7, whoever asks for it.
func NewKeys(declared map[string][]string) (func(consumer.Event) ([]string, error), error) {
	var keys []keyPart
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		for _, value := range declared[name] {
			literal, field, err := parseValue(value)
			if err != nil {
				return nil, fmt.Errorf("key %s: %w", name, err)
			}
			keys = append(keys, keyPart{name, literal, field})
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("no keys are declared")
	}
	return func(ev consumer.Event) ([]string, error) {
		f := fields{ev: ev}
		all := make([]string, len(keys))
		for i, k := range keys {
			value, err := k.value(&f)
			if err != nil {
				return nil, consumer.Permanent(err)
			}
			all[i] = k.name + "/" + value
		}
		return all, nil
	}, nil
}

type keyPart struct{ name, literal, field string }

func (k keyPart) value(f *fields) (string, error) {
	if k.field == "" {
		return k.literal, nil
	}
	text, err := f.text(k.field)
	if err == nil && text == nil {
		err = &FieldError{k.field, "is null, and a key is to be locked by it"}
	}
	if err != nil {
		return "", err
	}
	return *text, nil
}
