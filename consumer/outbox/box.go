package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Row is a message as it is stored. Lists come without Key, Value and Headers.
type Row struct {
	ID int64
	Message
	OrderKey  []byte // what order is kept for
	State     State
	Attempts  int // that the broker refused since it was added or last tried again by hand
	CreatedAt time.Time
	NextAt    *time.Time // of Failing
	DoneAt    *time.Time // of Sent and Skipped
	LastError string
	Age       time.Duration // since CreatedAt, by the database's clock
	HeldBy    *int64        // the earlier row of its key that holds it back
}

// Box is an outbox in one database, for relays and for people.
type Box struct {
	table Table
	db    database
}

// Postgres is an outbox in PostgreSQL. A relay takes a connection out of the
// pool for as long as it runs: it holds session locks, so a pooler between must
// not share sessions (PgBouncer: session mode).
func Postgres(pool *pgxpool.Pool, table Table) (*Box, error) {
	if err := table.Validate(); err != nil {
		return nil, err
	}
	return &Box{table, &postgres{pool: pool, table: table}}, nil
}

// MySQLBox is an outbox in MySQL or MariaDB. The pool needs parseTime=true and
// UTC, as go-sql-driver/mysql has it by default (loc=UTC).
func MySQLBox(db *sql.DB, table Table) (*Box, error) {
	if err := table.Validate(); err != nil {
		return nil, err
	}
	return &Box{table, &mysql{db: db, table: table}}, nil
}

// Table is the outbox's name.
func (b *Box) Table() Table { return b.table }

// Stats is an outbox at one moment, by the database's clock.
type Stats struct {
	Pending       int64         // Pending and Failing rows, counted up to CountLimit
	Oldest        time.Duration // age of the oldest of them; 0 with none
	SentPerMinute int64         // in the last minute, counted up to CountLimit
	Failing       int64
	Dead          int64
}

// Dead counts the dead rows.
func (b *Box) Dead(ctx context.Context) (int64, error) {
	n, err := b.db.dead(ctx)
	if err != nil {
		return 0, fmt.Errorf("dead rows of %s: %w", b.table, err)
	}
	return n, nil
}

// CountLimit is where counting ends: a count of that size means "or more".
const CountLimit = 100_000

// Stats reads the figures, each by an index.
func (b *Box) Stats(ctx context.Context) (Stats, error) {
	s, err := b.db.stats(ctx)
	if err != nil {
		return Stats{}, fmt.Errorf("figures of %s: %w", b.table, err)
	}
	return s, nil
}

// Filter chooses rows that are not done.
type Filter struct {
	State     State // Pending, Failing, Dead; 0 all of these
	Target    string
	Key       []byte        // order key; nil any
	OlderThan time.Duration // 0 any
	After     int64         // id of the last row of the page before
	Limit     int           // 0 is 100
}

// List returns rows that are not done, by id, without their contents.
func (b *Box) List(ctx context.Context, f Filter) ([]Row, error) {
	if f.Limit == 0 {
		f.Limit = 100
	}
	rows, err := b.db.list(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", b.table, err)
	}
	return rows, nil
}

// Get returns one row with its contents. Errors: ErrNotFound.
func (b *Box) Get(ctx context.Context, id int64) (Row, error) {
	rows, err := b.db.load(ctx, []int64{id})
	if err == nil && len(rows) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Row{}, fmt.Errorf("row %d of %s: %w", id, b.table, err)
	}
	return rows[0], nil
}

// Behind counts the rows that a row holds back, up to CountLimit.
func (b *Box) Behind(ctx context.Context, id int64) (int64, error) {
	n, err := b.db.behind(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("rows behind %d of %s: %w", id, b.table, err)
	}
	return n, nil
}

// Retry has a dead row tried again, with all attempts anew; the later rows of its
// key go on waiting for it. Errors: ErrNotFound, ErrNotDead.
func (b *Box) Retry(ctx context.Context, id int64) error {
	return b.move(ctx, "retry", id, b.db.retry)
}

// Skip gives a dead row up: it is never sent, and the later rows of its key go
// on. Errors: ErrNotFound, ErrNotDead.
func (b *Box) Skip(ctx context.Context, id int64) error {
	return b.move(ctx, "skip", id, b.db.skip)
}

func (b *Box) move(ctx context.Context, what string, id int64, do func(context.Context, int64) (int64, error)) error {
	n, err := do(ctx, id)
	if err == nil && n == 0 {
		if _, err = b.Get(ctx, id); err == nil {
			err = ErrNotDead
		}
	}
	if err != nil {
		return fmt.Errorf("%s row %d of %s: %w", what, id, b.table, err)
	}
	return nil
}

// Sweep removes rows that were sent or skipped longer ago than keep, by the
// database's clock, in transactions of at most limit rows. It returns how many.
func (b *Box) Sweep(ctx context.Context, keep time.Duration, limit int) (int64, error) {
	total := int64(0)
	for {
		n, err := b.db.sweep(ctx, keep, limit)
		total += n
		if err != nil {
			return total, fmt.Errorf("sweep %s: %w", b.table, err)
		}
		if n < int64(limit) {
			return total, nil
		}
	}
}

// database is what a kind of database does for a Box.
type database interface {
	session(ctx context.Context) (session, error)
	stats(ctx context.Context) (Stats, error)
	dead(ctx context.Context) (int64, error)
	list(ctx context.Context, f Filter) ([]Row, error)
	load(ctx context.Context, ids []int64) ([]Row, error)
	behind(ctx context.Context, id int64) (int64, error)
	retry(ctx context.Context, id int64) (int64, error)
	skip(ctx context.Context, id int64) (int64, error)
	sweep(ctx context.Context, keep time.Duration, limit int) (int64, error)
}

// session is the connection that holds the locks of a relay. What it reads and
// marks is fenced by that: without the connection there are neither locks nor
// answers. After an error it is not used again.
type session interface {
	members(ctx context.Context) (int, error)                            // relays that share the outbox, this one included
	lock(ctx context.Context, shards []int16, most int) ([]int16, error) // of these, those that were free
	unlock(ctx context.Context, shards []int16) error
	candidates(ctx context.Context, shards []int16, depth int) ([]candidate, error)
	load(ctx context.Context, ids []int64) ([]Row, error)
	mark(ctx context.Context, sent []int64, failed []failure) error
	wait(ctx context.Context, d time.Duration) error // until a hint, or d is over
	ping(ctx context.Context) error
	close()
}

// candidate is a row that may be published.
type candidate struct {
	id    int64
	shard int16
	key   string
	bytes int
}

// failure is an attempt that the broker refused.
type failure struct {
	id    int64
	state State // Failing or Dead
	after time.Duration
	err   string
}
