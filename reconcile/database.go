package reconcile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Database is a named business database; one of its pools is set. Nothing is
// written to it.
type Database struct {
	Name     string
	Postgres *pgxpool.Pool
	MySQL    *sql.DB // by mysqlstore.OpenPool, which reads times as they stand

	gate *gate
}

// ErrWritable is returned where a connection could change what it reads. A role
// that only reads is the guard that does not depend on this program.
var ErrWritable = errors.New("reconcile: the connection can write")

// reader asks one database.
type reader interface {
	dialect() dialect
	// describe gives the columns of a statement, without running it.
	describe(ctx context.Context, st bound) ([]column, error)
	// writable names a table that the credential could change; empty: none.
	writable(ctx context.Context) (string, error)
	// instant writes a time as an argument to be compared with a column.
	instant(at time.Time, c column, zone *time.Location) any
	// snapshot runs read in a transaction that only reads and sees one state.
	snapshot(ctx context.Context, l Limits, read func(snapshot) error) error
}

// snapshot is one state of a database.
type snapshot interface {
	// scan hands out the rows of what dialect.ordered wrote.
	scan(ctx context.Context, st bound, s shape, kinds []kind, zone *time.Location, emit func(record) error) error
	// texts gives rows of any statement as text, nil for NULL.
	texts(ctx context.Context, st bound, row func(values []*string) error) error
}

func (d Database) reader() reader {
	if d.MySQL != nil {
		return mysqlReader{d.MySQL}
	}
	return postgresReader{d.Postgres}
}

// CheckReadOnly returns ErrWritable, with a table, for a connection that could
// change data.
func (d Database) CheckReadOnly(ctx context.Context) error {
	table, err := d.reader().writable(ctx)
	if err != nil {
		return fmt.Errorf("ask connection %s for its rights: %w", d.Name, err)
	}
	if table != "" {
		return fmt.Errorf("connection %s may change %s: %w; give it a role with select alone", d.Name, table, ErrWritable)
	}
	return nil
}
