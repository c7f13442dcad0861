package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/mysqlstore"
	"oncemore/consumer/pgstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// Handlers of both stores can add.
var (
	_ Tx    = pgstore.Tx(nil)
	_ SQLTx = mysqlstore.Tx(nil)
)

const patience = 20 * time.Second

// bundle is an outbox in a database of the test's own.
type bundle struct {
	t     *testing.T
	box   *Box
	table Table
	pool  *pgxpool.Pool // PostgreSQL, or nil
	db    *sql.DB       // the same, or MySQL
	url   string
}

// eachFlavour runs the test on PostgreSQL and on MySQL or MariaDB.
func eachFlavour(t *testing.T, test func(t *testing.T, b bundle)) {
	t.Parallel()
	t.Run("PostgreSQL", func(t *testing.T) { t.Parallel(); test(t, setupPostgres(t)) })
	t.Run("MySQL", func(t *testing.T) { t.Parallel(); test(t, setupMySQL(t)) })
}

func setupPostgres(t *testing.T) bundle {
	t.Helper()
	url := pgtest.Empty(t)
	pool := pgtest.Open(t, url)
	if err := DefaultTable.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	box, err := Postgres(pool, DefaultTable)
	if err != nil {
		t.Fatal(err)
	}
	return bundle{t: t, box: box, table: DefaultTable, pool: pool, url: url}
}

func setupMySQL(t *testing.T) bundle {
	t.Helper()
	cfg := testkit.MySQL(t)
	cfg.ParseTime, cfg.Logger = true, &driver.NopLogger{} // cut connections are what the tests are about
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	if err := DefaultTable.MigrateMySQL(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	box, err := MySQLBox(db, DefaultTable)
	if err != nil {
		t.Fatal(err)
	}
	return bundle{t: t, box: box, table: DefaultTable, db: db, url: cfg.FormatDSN()}
}

// open begins a transaction and adds to it; the returned function commits.
func (b bundle) open(messages ...Message) (commit func()) {
	b.t.Helper()
	ctx := context.WithoutCancel(b.t.Context())
	if b.pool == nil {
		tx, err := b.db.BeginTx(ctx, nil)
		b.must(err)
		b.must(b.table.AddSQL(ctx, tx, MySQL, messages...))
		return func() { b.t.Helper(); b.must(tx.Commit()) }
	}
	tx, err := b.pool.Begin(ctx)
	b.must(err)
	b.must(b.table.Add(ctx, tx, messages...))
	return func() { b.t.Helper(); b.must(tx.Commit(ctx)) }
}

// add commits the messages.
func (b bundle) add(messages ...Message) { b.t.Helper(); b.open(messages...)() }

func (b bundle) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// exec runs a statement of the test's.
func (b bundle) exec(query string) {
	b.t.Helper()
	if b.pool == nil {
		_, err := b.db.ExecContext(b.t.Context(), query)
		b.must(err)
		return
	}
	_, err := b.pool.Exec(b.t.Context(), query)
	b.must(err)
}

// count asks for one number.
func (b bundle) count(query string) (n int) {
	b.t.Helper()
	if b.pool == nil {
		b.must(b.db.QueryRowContext(b.t.Context(), query).Scan(&n))
		return n
	}
	b.must(b.pool.QueryRow(b.t.Context(), query).Scan(&n))
	return n
}

func (b bundle) inState(s State) int {
	b.t.Helper()
	return b.count(fmt.Sprintf("SELECT count(*) FROM outbox_message WHERE state = %d", s))
}

// cutSessions ends the connections that hold locks.
func (b bundle) cutSessions() {
	b.t.Helper()
	if b.pool != nil {
		b.exec(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
		return
	}
	probe := &mysqlSession{mysql: &mysql{table: b.table}}
	conn, err := b.db.Conn(b.t.Context())
	b.must(err)
	defer conn.Close()
	probe.conn = conn
	b.must(probe.nameLocks(b.t.Context()))
	owners := map[int64]bool{}
	for shard := range int16(Shards) {
		var owner sql.NullInt64
		b.must(conn.QueryRowContext(b.t.Context(), `SELECT IS_USED_LOCK(?)`, probe.shard(shard)).Scan(&owner))
		if owner.Valid {
			owners[owner.Int64] = true
		}
	}
	for id := range owners {
		b.db.ExecContext(b.t.Context(), fmt.Sprintf("KILL %d", id)) //nolint:errcheck // it may have ended by itself
	}
}

// fast are options for tests: everything soon.
func fast() Options {
	return Options{Attempts: 3, Initial: 10 * time.Millisecond, Max: 40 * time.Millisecond, Poll: 20 * time.Millisecond, Keep: -1,
		Logger: slog.New(slog.DiscardHandler)}
}

// start runs a relay until the returned function, or the end of the test, stops it.
func (b bundle) start(to Publisher, o Options) (*Relay, func()) {
	b.t.Helper()
	relay, err := NewRelay(b.box, to, o)
	b.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("relay: %v", err)
		}
	})
	b.t.Cleanup(stop)
	return relay, stop
}

func message(id, key string) Message {
	return Message{EventID: id, Target: "orders", AggregateKey: key, Value: []byte(`{"id":"` + id + `"}`)}
}

// broker is a Publisher that remembers, and refuses and waits as told.
type broker struct {
	mu     sync.Mutex
	got    []Row
	most   int                                // that were on their way at once
	now    int                                //
	answer func(r Row) error                  // nil: all are confirmed
	hold   func(r Row) (free <-chan struct{}) // nil: nothing waits
}

func (b *broker) Publish(_ context.Context, r Row, done func(error)) {
	b.mu.Lock()
	b.now++
	b.most = max(b.most, b.now)
	hold, answer := b.hold, b.answer
	b.mu.Unlock()
	go func() {
		if hold != nil {
			if free := hold(r); free != nil {
				<-free
			}
		}
		var err error
		if answer != nil {
			err = answer(r)
		}
		b.mu.Lock()
		b.now--
		if err == nil {
			b.got = append(b.got, r)
		}
		b.mu.Unlock()
		done(err)
	}()
}

func (b *broker) Close() {}

// ids are the event ids that arrived, in order.
func (b *broker) ids() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.got {
		ids = append(ids, r.EventID)
	}
	return ids
}

func (b *broker) has(id string) bool { return slices.Contains(b.ids(), id) }
