package effect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"oncemore/consumer"
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

	// Key is the name of the unique key that tells the event, for ByUniqueKey in
	// MySQL, PRIMARY included. PostgreSQL's statement names it itself.
	Key string
}

// guard is an SQL effect whose own tables recognise duplicates, in a database
// whose transactions are T.
type guard[T any] struct {
	on         engine[T]
	statement  statement
	expectRows *int64
	strategy   consumer.Strategy
	verify     statement
}

// engine runs statements in one kind of database. Its errors are marked with
// what the runtime shall do.
type engine[T any] interface {
	// insert hands read the row count of a statement that writes nothing for a
	// key that is there; it may do so later, before the commit.
	insert(ctx context.Context, tx T, ev consumer.Event, read func(rows int64) error) error
	// exec returns the row count. more are parameters that the event does not have.
	exec(ctx context.Context, tx T, st statement, ev consumer.Event, more map[string]any) (int64, error)
	// ask scans the query's first row; errNoRow where there is none.
	ask(ctx context.Context, tx T, st statement, ev consumer.Event, into ...any) error
}

// errNoRow is returned for a query without rows.
var errNoRow = errors.New("effect: verify has no row")

// newGuard checks what holds in every database.
func newGuard[T any](c GuardConfig, st statement, parse func(string) (statement, error)) (g guard[T], err error) {
	g = guard[T]{statement: st, expectRows: c.ExpectRows, strategy: c.Strategy}
	if err := c.validate(st); err != nil {
		return g, err
	}
	if c.Verify != "" {
		if g.verify, err = parse(c.Verify); err != nil {
			return g, fmt.Errorf("verify: %w", err)
		}
	}
	return g, nil
}

var (
	doNothing = regexp.MustCompile(`(?is)\bon\s+conflict\s*(\(|on\s+constraint\b).*\bdo\s+nothing\b`)
	isQuery   = regexp.MustCompile(`(?i)^\s*(select|with)\b`)
)

func (c GuardConfig) validate(st statement) error {
	switch c.Strategy {
	case consumer.ByUniqueKey:
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
	if c.Strategy == consumer.ByVersion && !slices.Contains(st.params, "version") {
		return errors.New("strategy version: the statement has to compare with :version, which verify has read")
	}
	return nil
}

// BatchSize is 0: any number of events may share a transaction.
func (g *guard[T]) BatchSize() int { return 0 }

// Handler runs the statement and reads its zero rows as the strategy does. Errors
// have the outcomes of SQL.Handler; an anomaly is a *consumer.AnomalyError.
func (g *guard[T]) Handler() consumer.Handler[T] {
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

func (g *guard[T]) insert(ctx context.Context, tx T, ev consumer.Event) error {
	return g.on.insert(ctx, tx, ev, func(rows int64) error {
		if !consumer.Inserted(ctx, rows) {
			return nil
		}
		return expect(g.expectRows, rows)
	})
}

// transition asks at once: the answer may need a second question.
func (g *guard[T]) transition(ctx context.Context, tx T, ev consumer.Event) error {
	rows, err := g.on.exec(ctx, tx, g.statement, ev, nil)
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
	return expect(g.expectRows, rows)
}

func (g *guard[T]) locked(ctx context.Context, tx T, ev consumer.Event) error {
	switch processed, err := g.ask(ctx, tx, ev); {
	case ignoreNoRows(err) != nil:
		return err
	case processed:
		consumer.Duplicate(ctx)
		return nil
	}
	rows, err := g.on.exec(ctx, tx, g.statement, ev, nil)
	if err != nil {
		return err
	}
	return expect(g.expectRows, rows)
}

func (g *guard[T]) versioned(ctx context.Context, tx T, ev consumer.Event) error {
	var version any
	var rows int64
	done, err := consumer.Versioned(ctx,
		func() (processed bool, err error) {
			processed, err = g.ask(ctx, tx, ev, &version)
			if errors.Is(err, errNoRow) {
				err = &consumer.AnomalyError{Reason: "there is no row to read a version of"}
			}
			return processed, err
		},
		func() (_ int64, err error) {
			rows, err = g.on.exec(ctx, tx, g.statement, ev, map[string]any{"version": version})
			return rows, err
		})
	if !done {
		return err
	}
	return expect(g.expectRows, rows)
}

// ask runs the verify query. Columns after the first go into more.
func (g *guard[T]) ask(ctx context.Context, tx T, ev consumer.Event, more ...any) (bool, error) {
	var processed *bool
	err := g.on.ask(ctx, tx, g.verify, ev, append([]any{&processed}, more...)...)
	return err == nil && processed != nil && *processed, err
}

func ignoreNoRows(err error) error {
	if errors.Is(err, errNoRow) {
		return nil
	}
	return err
}

// columns is how many verify needs.
func (g *guard[T]) columns() int {
	if g.strategy == consumer.ByVersion {
		return 2
	}
	return 1
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
