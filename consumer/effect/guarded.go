package effect

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// Guarded is an SQL effect in PostgreSQL whose own tables recognise duplicates.
// Its consumer needs the same Strategy in consumer.Config.
type Guarded struct {
	guard[pgstore.Tx]
	sql *SQL
}

// NewGuarded checks the declaration. Errors name what is wrong in SQL or Verify.
func NewGuarded(c GuardConfig) (*Guarded, error) {
	sql, err := NewSQL(c.SQL, c.ExpectRows)
	if err != nil {
		return nil, err
	}
	if c.Strategy == consumer.ByUniqueKey && !doNothing.MatchString(c.SQL) {
		return nil, errors.New("strategy unique_key: the statement needs ON CONFLICT (columns of the key) DO NOTHING: " +
			"without it a duplicate is an error, and without the columns any constraint counts as a duplicate")
	}
	if c.Key != "" {
		return nil, errors.New("strategy unique_key: in PostgreSQL the statement names the key, in ON CONFLICT (…)")
	}
	g, err := newGuard[pgstore.Tx](c, sql.statement, parse)
	g.on = postgres{sql}
	return &Guarded{g, sql}, err
}

// postgres is the engine of PostgreSQL.
type postgres struct{ sql *SQL }

func (p postgres) insert(ctx context.Context, tx pgstore.Tx, ev consumer.Event, read func(int64) error) error {
	return p.sql.queue(ctx, tx, ev, read)
}

func (postgres) exec(ctx context.Context, tx pgstore.Tx, st statement, ev consumer.Event, more map[string]any) (int64, error) {
	args, err := st.args(ev, more)
	if err != nil {
		return 0, consumer.Permanent(err)
	}
	tag, err := tx.Exec(ctx, st.text, args...)
	if err != nil {
		return 0, sqlOutcome(err)
	}
	return tag.RowsAffected(), nil
}

func (postgres) ask(ctx context.Context, tx pgstore.Tx, st statement, ev consumer.Event, into ...any) error {
	args, err := st.args(ev, nil)
	if err != nil {
		return consumer.Permanent(err)
	}
	err = tx.QueryRow(ctx, st.text, args...).Scan(into...)
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoRow
	}
	return sqlOutcome(err)
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
	if n := g.columns(); len(described.Fields) != n || described.Fields[0].DataTypeOID != pgtype.BoolOID {
		return fmt.Errorf("verify: strategy %s needs %d columns, the first of them boolean", g.strategy, n)
	}
	return nil
}
