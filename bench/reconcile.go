package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/mysqlstore"
	"oncemore/reconcile"
)

// ledgers are two copies of a ledger, in PostgreSQL and in MySQL, of which the
// latter differs in some rows.
type ledgers struct {
	pg     *pgxpool.Pool
	my     *sql.DB
	myConf *mysql.Config
	named  map[string]reconcile.Database
	key    string
	rows   int
	drop   []func()
}

// Reconcile compares ledgers of so many rows across engines, beside a diff tool
// on the same data if tool names it, and within one database beside a bare
// anti-join.
func (e Env) Reconcile(ctx context.Context, mysqlURL, tool string, rows int) error {
	for _, key := range []string{"id", "event_id"} {
		l, err := e.openLedgers(ctx, mysqlURL, key, rows)
		if err != nil {
			return err
		}
		for _, permille := range []int{0, 1, 10} {
			if err := l.spoil(ctx, permille); err != nil {
				return err
			}
			if err := e.compareLedgers(ctx, l, tool, permille); err != nil {
				return err
			}
		}
		if err := e.joinLedgers(ctx, l); err != nil {
			return err
		}
		l.close()
	}
	return nil
}

var ledgerTypes = map[string]string{"id": "bigint", "event_id": "varchar(64)"}

func (e Env) openLedgers(ctx context.Context, mysqlURL, key string, rows int) (*ledgers, error) {
	l := &ledgers{key: key, rows: rows, named: map[string]reconcile.Database{}}
	var err error
	var drop func()
	if l.pg, drop, err = e.database(ctx); err != nil {
		return nil, err
	}
	l.drop = append(l.drop, drop)
	if err := l.openMySQL(ctx, mysqlURL); err != nil {
		return nil, err
	}
	value := "n"
	if key == "event_id" {
		value = "'payment-success-' || n"
	}
	for _, table := range []string{"ledger", "mirror"} {
		fill := fmt.Sprintf("insert into %s select %s, (n %% 10000) / 100.0, 'CNY', timestamptz '2026-11-01 00:00:00Z' + n * interval '1 millisecond' from generate_series(1, %d) n", table, value, rows)
		create := fmt.Sprintf("create table %s (%s %s primary key, amount numeric(18,2), currency char(3), at timestamptz)", table, key, ledgerTypes[key])
		for _, st := range []string{create, fill, "create index on " + table + " (at)", "vacuum analyze " + table} {
			if _, err := l.pg.Exec(ctx, st); err != nil {
				return nil, fmt.Errorf("%s: %w", st, err)
			}
		}
	}
	myValue := "seq"
	if key == "event_id" {
		myValue = "concat('payment-success-', seq)"
	}
	for _, st := range []string{
		fmt.Sprintf("create table ledger (%s %s primary key, amount decimal(18,2), currency char(3), at timestamp(6) null, key (at))", key, ledgerTypes[key]),
		fmt.Sprintf("insert into ledger select %s, (seq %% 10000) / 100.0, 'CNY', timestamp('2026-11-01 00:00:00') + interval seq * 1000 microsecond from seq_1_to_%d", myValue, rows),
		"analyze table ledger",
	} {
		if _, err := l.my.ExecContext(ctx, st); err != nil {
			return nil, fmt.Errorf("%s: %w", st, err)
		}
	}
	return l, l.openReaders(ctx)
}

func (l *ledgers) openMySQL(ctx context.Context, url string) error {
	conf, err := mysqlstore.ParseURL(url)
	if err != nil {
		return err
	}
	admin, err := mysqlstore.OpenPool(conf, mysqlstore.PoolOptions{StatementTimeout: time.Hour})
	if err != nil {
		return err
	}
	name := unique("bench")
	if _, err := admin.ExecContext(ctx, "create database `"+name+"` character set utf8mb4"); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	l.myConf = conf.Clone()
	l.myConf.DBName = name
	if l.my, err = mysqlstore.OpenPool(l.myConf, mysqlstore.PoolOptions{StatementTimeout: time.Hour}); err != nil {
		return err
	}
	l.drop = append(l.drop, func() { // a failure leaves a database of the bench behind, and nothing else
		_, _ = admin.Exec("drop database `" + name + "`")
		_ = l.my.Close()
		_ = admin.Close()
	})
	return nil
}

// openReaders makes roles that only read: others are refused.
func (l *ledgers) openReaders(ctx context.Context) error {
	role := strings.ReplaceAll(unique("reader"), "-", "_")
	for _, st := range []string{"create role " + role + " login password 'reader'", "grant select on all tables in schema public to " + role} {
		if _, err := l.pg.Exec(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", st, err)
		}
	}
	conf := l.pg.Config().Copy()
	conf.ConnConfig.User, conf.ConnConfig.Password = role, "reader"
	pool, err := pgxpool.NewWithConfig(ctx, conf)
	if err != nil {
		return err
	}
	for _, st := range []string{"create user " + role + "@'%' identified by 'reader'", "grant select on `" + l.myConf.DBName + "`.* to " + role + "@'%'"} {
		if _, err := l.my.ExecContext(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", st, err)
		}
	}
	reader := l.myConf.Clone()
	reader.User, reader.Passwd = role, "reader"
	my, err := mysqlstore.OpenPool(reader, mysqlstore.PoolOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	l.named["pg"], l.named["my"] = reconcile.Database{Name: "pg", Postgres: pool}, reconcile.Database{Name: "my", MySQL: my}
	l.drop = append([]func(){func() { // the same
		pool.Close()
		_ = my.Close()
		_, _ = l.my.Exec("drop user " + role + "@'%'")
		_, _ = l.pg.Exec(context.WithoutCancel(ctx), "drop owned by "+role)
		_, _ = l.pg.Exec(context.WithoutCancel(ctx), "drop role "+role)
	}}, l.drop...)
	return nil
}

func (l *ledgers) close() {
	for _, drop := range l.drop {
		drop()
	}
}

// spoil makes so many of a thousand rows differ.
func (l *ledgers) spoil(ctx context.Context, permille int) error {
	if permille == 0 {
		return nil
	}
	_, err := l.my.ExecContext(ctx, fmt.Sprintf("update ledger set amount = (microsecond(at) div 1000 + second(at) * 1000) %% 10000 / 100.0 + 1 where (microsecond(at) div 1000) < %d", permille))
	return err
}

func (l *ledgers) job(effect, table string) (*reconcile.Job, error) {
	side := func(connection, table string) string {
		return fmt.Sprintf("{connection: %s, query: 'select %[2]s, amount, currency, at from %[3]s where at >= :from and at < :to', lookup: 'select %[2]s, amount, currency, at from %[3]s where %[2]s in (:keys)'}", connection, l.key, table)
	}
	return reconcile.ParseJob("bench", []byte(fmt.Sprintf(`
job: ledger
window: {size: 24h, overlap: 10m, grace: 5m}
consumed: %s
effect: %s
key: [%s]
match: {mode: one_to_one, amount: amount, currency: currency, consumed_time: at, effect_time: at}
limits: {statement: 10m, breaks: 1000000}
`, side("pg", "ledger"), side(effect, table), l.key)))
}

var (
	ledgerFrom = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	ledgerNow  = ledgerFrom.Add(90 * 24 * time.Hour)
)

func (l *ledgers) compare(ctx context.Context, effect, table, plan string) (rate, int, error) {
	job, err := l.job(effect, table)
	if err != nil {
		return rate{}, 0, err
	}
	began := time.Now()
	c, err := reconcile.Compare(ctx, job, l.named, plan, ledgerFrom, ledgerFrom.Add(30*24*time.Hour), ledgerNow, 1_000_000)
	if err != nil {
		return rate{}, 0, err
	}
	if !c.Tally.Foots() {
		return rate{}, 0, fmt.Errorf("the proof does not foot: %s", c.Tally.Unexplained("CNY"))
	}
	return rate{l.rows, time.Since(began)}, len(c.Findings), nil
}

// compareLedgers measures across engines, beside the tool.
func (e Env) compareLedgers(ctx context.Context, l *ledgers, tool string, permille int) error {
	name := fmt.Sprintf("reconcile-%s-%dpermille", l.key, permille)
	if tool == "" {
		r, found, err := l.compare(ctx, "my", "ledger", reconcile.PlanMerge)
		if err == nil {
			_, err = fmt.Fprintf(e.Out, "%s: %.0f rows/s, %d differences\n", name, r.perSecond(), found)
		}
		return err
	}
	var peak, theirs int64
	ours := func() (rate, error) {
		if err := resetPeak(); err != nil {
			return rate{}, err
		}
		r, found, err := l.compare(ctx, "my", "ledger", reconcile.PlanMerge)
		if err == nil {
			peak, err = peakMemory()
		}
		fmt.Fprintf(e.Out, "  ours %s, %d differences, peak %d MB\n", r.took.Round(10*time.Millisecond), found, peak>>20)
		return r, err
	}
	err := e.ratio(name, 5, ours, func() (rate, error) {
		r, memory, err := l.tool(ctx, tool)
		theirs = memory
		fmt.Fprintf(e.Out, "  %s %s, peak %d MB\n", tool, r.took.Round(10*time.Millisecond), memory>>20)
		return r, err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.Out, "RATIO %s-memory %.2f goal < 1\n", name, float64(peak)/float64(theirs))
	return err
}

// tool runs a diff tool of reladiff's command line as a process of its own.
func (l *ledgers) tool(ctx context.Context, tool string) (rate, int64, error) {
	pg := l.pg.Config().ConnConfig
	cmd := exec.CommandContext(ctx, tool,
		fmt.Sprintf("postgresql://%s:%s@%s:%d/%s", pg.User, pg.Password, pg.Host, pg.Port, pg.Database), "ledger",
		fmt.Sprintf("mysql://%s:%s@%s/%s", l.myConf.User, l.myConf.Passwd, l.myConf.Addr, l.myConf.DBName), "ledger",
		"-k", l.key, "-c", "amount")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return rate{}, 0, fmt.Errorf("%s: %w: %s", tool, err, out[max(0, len(out)-500):])
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return rate{l.rows, time.Since(began)}, usage.Maxrss << 10, nil
}

const sqlBareJoin = `
select count(*) from (
  select 1 from ledger c where at >= $1 and at < $2 and not exists (select from mirror e where e.%[1]s = c.%[1]s and e.amount = c.amount and e.at >= $1 and e.at < $2)
  union all
  select 1 from mirror e where at >= $1 and at < $2 and not exists (select from ledger c where c.%[1]s = e.%[1]s and c.amount = e.amount and c.at >= $1 and c.at < $2)
) d`

// joinLedgers measures two tables of one database, beside a bare anti-join in
// both directions.
func (e Env) joinLedgers(ctx context.Context, l *ledgers) error {
	ours := func() (rate, error) {
		r, _, err := l.compare(ctx, "pg", "mirror", reconcile.PlanJoin)
		return r, err
	}
	return e.ratio("reconcile-join-"+l.key, 1/1.3, ours, func() (rate, error) {
		began := time.Now()
		var n int
		err := l.pg.QueryRow(ctx, fmt.Sprintf(sqlBareJoin, l.key), ledgerFrom, ledgerFrom.Add(30*24*time.Hour)).Scan(&n)
		return rate{l.rows, time.Since(began)}, err
	})
}
