package barrier

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Table is where the barrier is kept.
const Table = "oncemore_barrier"

// DDL creates the table in PostgreSQL. It may run again. put_by is the operation
// that has taken the row. Rows may be deleted once no call of their saga can come
// any more.
const DDL = `
CREATE TABLE IF NOT EXISTS oncemore_barrier (
	saga   varchar(64) COLLATE "C" NOT NULL,
	step   varchar(128) COLLATE "C" NOT NULL,
	op     varchar(8) COLLATE "C" NOT NULL,
	put_by varchar(8) COLLATE "C" NOT NULL,
	at     timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (saga, step, op)
)`

// ddlLock keeps two that race from failing: CREATE TABLE IF NOT EXISTS alone does.
const ddlLock = 7_113_204_019

const sqlLockDDL = `SELECT pg_advisory_xact_lock($1)`

// Migrate creates the table in a business database unless it is there. The user
// needs CREATE on the schema.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockDDL, ddlLock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, DDL)
		return err
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", Table, err)
	}
	return nil
}

// Tx is the part of a transaction that the barrier needs: pgx.Tx and
// pgstore.Tx have it.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const (
	sqlTake = `
INSERT INTO oncemore_barrier (saga, step, op, put_by) SELECT $1, $2, o, $3 FROM unnest($4::text[]) WITH ORDINALITY u(o, n) ORDER BY n
ON CONFLICT DO NOTHING RETURNING op`
	sqlPutBy = `SELECT put_by FROM oncemore_barrier WHERE saga = $1 AND step = $2 AND op = $3`
)

// Enter takes an operation's rows in the caller's transaction and says whether
// the operation may have its effect. A concurrent call of the same step is waited
// for. Errors: ErrMark, ErrNotTried, ErrCancelled, ErrConfirmed, or the database's.
func Enter(ctx context.Context, tx Tx, m Mark) (Decision, error) {
	if err := m.Check(); err != nil {
		return "", err
	}
	rows, err := tx.Query(ctx, sqlTake, m.Saga, m.Step, m.Op, m.Op.takes())
	if err != nil {
		return "", fmt.Errorf("barrier: %s: %w", m, err)
	}
	took, err := pgx.CollectRows(rows, pgx.RowTo[Op])
	if err != nil {
		return "", fmt.Errorf("barrier: %s: %w", m, err)
	}
	return settle(m, took, func(op Op) (by Op, err error) {
		err = tx.QueryRow(ctx, sqlPutBy, m.Saga, m.Step, op).Scan(&by)
		if errors.Is(err, pgx.ErrNoRows) {
			return "", nil
		}
		return by, err
	})
}

// settle decides, and asks who has a row where that matters.
func settle(m Mark, took []Op, putBy func(Op) (Op, error)) (Decision, error) {
	mine := map[Op]bool{}
	for _, op := range took {
		mine[op] = true
	}
	ask := m.Op
	if mine[m.Op] && m.Op == Confirm {
		ask = Try
	}
	var by Op
	if !mine[ask] {
		var err error
		if by, err = putBy(ask); err != nil {
			return "", fmt.Errorf("barrier: %s: %w", m, err)
		}
	}
	if ask == Try && m.Op == Confirm && by != Try {
		return "", fmt.Errorf("%w: %s", ErrNotTried, m)
	}
	d, err := decide(m.Op, mine, by)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, m)
	}
	return d, nil
}

const sqlStands = `SELECT count(*) FROM oncemore_barrier WHERE saga = $1 AND step = $2 AND op = $3 AND put_by = $3`

// Stands reports whether an operation has been committed, with an effect or
// without: for a probe after a call whose answer was lost.
func Stands(ctx context.Context, db Tx, m Mark) (bool, error) {
	var n int
	if err := db.QueryRow(ctx, sqlStands, m.Saga, m.Step, m.Op).Scan(&n); err != nil {
		return false, fmt.Errorf("barrier: look for %s: %w", m, err)
	}
	return n > 0, nil
}
