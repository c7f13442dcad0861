package reconcile

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/mysqlstore"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
)

// books are two business databases with the sides of a job, each with a role
// that only reads.
type books struct {
	*testing.T
	pg    *pgxpool.Pool // may write
	my    *sql.DB       // may write
	named map[string]Database

	reader *driver.Config // of named["my"]
}

func openBooks(t *testing.T) *books {
	t.Helper()
	b := &books{T: t, named: map[string]Database{}}
	var err error
	if b.pg, err = pgxpool.New(t.Context(), pgtest.Empty(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.pg.Close)
	b.exec("CREATE ROLE " + b.role() + " LOGIN PASSWORD 'reader'")
	t.Cleanup(func() {
		for _, drop := range []string{"DROP OWNED BY ", "DROP ROLE "} {
			if _, err := b.pg.Exec(context.Background(), drop+b.role()); err != nil {
				t.Errorf("%s: %v", drop, err)
			}
		}
	})
	conf := b.pg.Config().Copy()
	conf.ConnConfig.User, conf.ConnConfig.Password = b.role(), "reader"
	reading, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reading.Close)
	b.named["pg"] = Database{Name: "pg", Postgres: reading}
	b.openMySQL()
	return b
}

func (b *books) role() string { return "r_" + b.pg.Config().ConnConfig.Database[:20] }

func (b *books) openMySQL() {
	b.Helper()
	cfg := testkit.MySQL(b.T)
	var err error
	if b.my, err = mysqlstore.OpenPool(cfg, mysqlstore.PoolOptions{}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { b.my.Close() })
	user := "r_" + cfg.DBName[2:22]
	b.execMySQL("CREATE USER " + user + "@'%' IDENTIFIED BY 'reader'")
	b.execMySQL("GRANT SELECT ON " + cfg.DBName + ".* TO " + user + "@'%'")
	b.Cleanup(func() {
		if _, err := b.my.Exec("DROP USER " + user + "@'%'"); err != nil {
			b.Error(err)
		}
	})
	reader := cfg.Clone()
	reader.User, reader.Passwd = user, "reader"
	pool, err := mysqlstore.OpenPool(reader, mysqlstore.PoolOptions{ReadOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { pool.Close() })
	b.reader = reader
	b.named["my"] = Database{Name: "my", MySQL: pool}
}

func (b *books) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.pg.Exec(b.Context(), sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

func (b *books) execMySQL(sql string, args ...any) {
	b.Helper()
	if _, err := b.my.ExecContext(b.Context(), sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

// readable lets the reading role see what was created since.
func (b *books) readable() {
	b.exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO " + b.role())
}

func sideText(connection, table string) string {
	return fmt.Sprintf(`
  connection: %[1]s
  query: select event_id, amount, currency, at from %[2]s where at >= :from and at < :to
  lookup: select event_id, amount, currency, at from %[2]s where event_id in (:keys)`, connection, table)
}

// jobText is a job over tables named after their sides.
func jobText(consumed, effect, extra string) string {
	return `
job: points
window: {size: 1h, overlap: 10m, grace: 5m}
consumed:` + sideText(consumed, "consumed") + `
effect:` + sideText(effect, "effect") + `
key: [event_id]
` + strings.TrimLeft(extra, "\n")
}

const matchOne = `
match: {mode: one_to_one, amount: amount, currency: currency, consumed_time: at, effect_time: at}
`

func parseJob(t testing.TB, text string) *Job {
	t.Helper()
	j, err := ParseJob("job.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (b *books) compare(j *Job) *comparison {
	b.Helper()
	c, err := prepare(b.Context(), j, b.named)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func hour(from time.Time) interval {
	return interval{from.UnixMicro(), from.Add(time.Hour).UnixMicro()}
}
