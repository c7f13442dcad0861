// Package migrations holds the console's tables as embedded SQL and brings a
// database up to date.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Files are the goose migrations, named by time.
//
//go:embed *.sql
var Files embed.FS

// lockID is the advisory lock that lets several replicas start at once.
const lockID = 7_113_204_001

// ErrNewer means that a newer console has migrated the database. This one does
// not know what its tables mean.
var ErrNewer = errors.New("the database was migrated by a newer version of the console: run that one")

// Up applies every migration that is missing, River's own included. It may be
// called by several processes at once; each waits for the one before. Errors:
// ErrNewer.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	return locked(ctx, db, func() error {
		provider, err := known(ctx, db)
		if err != nil {
			return err
		}
		if err := upRiver(ctx, pool); err != nil {
			return err
		}
		if _, err := provider.Up(ctx); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		return nil
	})
}

// known gives the migrations of this console, unless the database is ahead of them.
func known(ctx context.Context, db *sql.DB) (*goose.Provider, error) {
	provider, err := goose.NewProvider(goose.DialectPostgres, db, Files)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	at, last, err := provider.GetVersions(ctx)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	if at > last {
		return nil, fmt.Errorf("migration %d: %w", at, ErrNewer)
	}
	return provider, nil
}

// Pending says how many migrations the database lacks. River's count as one.
// Errors: ErrNewer.
func Pending(ctx context.Context, pool *pgxpool.Pool) (int, error) {
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	provider, err := known(ctx, db)
	if err != nil {
		return 0, err
	}
	states, err := provider.Status(ctx)
	if err != nil {
		return 0, fmt.Errorf("read migration status: %w", err)
	}
	n := 0
	for _, s := range states {
		if s.State == goose.StatePending {
			n++
		}
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return 0, fmt.Errorf("river migrator: %w", err)
	}
	river, err := migrator.Validate(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("read status of river's migrations: %w", err)
	}
	if !river.OK {
		n++
	}
	return n, nil
}

func upRiver(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return fmt.Errorf("river migrator: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate river: %w", err)
	}
	return nil
}

func locked(ctx context.Context, db *sql.DB, do func() error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "select pg_advisory_lock($1)", lockID); err != nil {
		return fmt.Errorf("lock migrations: %w", err)
	}
	err = do()
	_, unlockErr := conn.ExecContext(context.WithoutCancel(ctx), "select pg_advisory_unlock($1)", lockID)
	return errors.Join(err, unlockErr)
}
