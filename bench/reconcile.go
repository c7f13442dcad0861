package bench

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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

// Reconciling is what Env.Reconcile measures.
type Reconciling struct {
	MySQL string // URL of a server whose user may create databases and users
	Tool  string // a diff tool of reladiff's command line; empty: figures only
	Rows  int    // of each ledger
	Large int    // of ledgers with which only time and memory are measured; 0: none
}

// Reconcile compares ledgers across engines, beside the tool on the same data,
// and within one database beside a bare anti-join.
func (e Env) Reconcile(ctx context.Context, r Reconciling) error {
	beside := &besideTool{file: r.Tool, peaks: map[string]int64{}, rates: map[string]rate{}}
	for _, key := range []string{"id", "event_id"} {
		err := e.withLedgers(ctx, r.MySQL, key, r.Rows, func(l *ledgers) error {
			for _, differences := range []int{0, 150, r.Rows / 100} {
				if err := l.spoil(ctx, differences); err != nil {
					return err
				}
				if err := e.compareLedgers(ctx, l, beside, differences); err != nil {
					return err
				}
				if err := e.joinLedgers(ctx, l, differences); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if r.Large == 0 {
		return nil
	}
	return e.withLedgers(ctx, r.MySQL, "id", r.Large, func(l *ledgers) error { return e.compareLarge(ctx, l) })
}

func (e Env) withLedgers(ctx context.Context, mysqlURL, key string, rows int, measure func(*ledgers) error) error {
	l := &ledgers{key: key, rows: rows, named: map[string]reconcile.Database{}}
	defer l.close()
	if err := e.openLedgers(ctx, l, mysqlURL); err != nil {
		return err
	}
	return measure(l)
}

var ledgerTypes = map[string]string{"id": "bigint", "event_id": "varchar(64)"}

func (e Env) openLedgers(ctx context.Context, l *ledgers, mysqlURL string) error {
	var err error
	var drop func()
	if l.pg, drop, err = e.database(ctx); err != nil {
		return err
	}
	l.drop = append(l.drop, drop)
	if err := l.openMySQL(ctx, mysqlURL); err != nil {
		return err
	}
	return errors.Join(l.fillPostgres(ctx), l.fillMySQL(ctx), l.openReaders(ctx))
}

func (l *ledgers) fillPostgres(ctx context.Context) error {
	key, rows, value := l.key, l.rows, "n"
	if key == "event_id" {
		value = "'payment-success-' || n"
	}
	for _, table := range []string{"ledger", "mirror"} {
		fill := fmt.Sprintf("insert into %s select %s, (n %% 10000) / 100.0, 'CNY', timestamptz '2026-11-01 00:00:00Z' + n * interval '1 millisecond' from generate_series(1, %d) n", table, value, rows)
		create := fmt.Sprintf("create table %s (%s %s primary key, amount numeric(18,2), currency char(3), at timestamptz)", table, key, ledgerTypes[key])
		for _, st := range []string{create, fill, "create index on " + table + " (at)", "vacuum analyze " + table} {
			if _, err := l.pg.Exec(ctx, st); err != nil {
				return fmt.Errorf("%s: %w", st, err)
			}
		}
	}
	return nil
}

func (l *ledgers) fillMySQL(ctx context.Context) error {
	key, rows, value := l.key, l.rows, "seq"
	if key == "event_id" {
		value = "concat('payment-success-', seq)"
	}
	for _, st := range []string{
		fmt.Sprintf("create table ledger (%s %s primary key, amount decimal(18,2), currency char(3), at timestamp(6) null, key (at))", key, ledgerTypes[key]),
		fmt.Sprintf("insert into ledger select %s, (seq %% 10000) / 100.0, 'CNY', timestamp('2026-11-01 00:00:00') + interval seq * 1000 microsecond from seq_1_to_%d", value, rows),
		"analyze table ledger",
	} {
		if _, err := l.my.ExecContext(ctx, st); err != nil {
			return fmt.Errorf("%s: %w", st, err)
		}
	}
	return nil
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

const (
	sqlSpoilMySQL    = `update ledger set amount = -1 where (timestampdiff(microsecond, '2026-11-01', at) div 1000) %% %d = 0`
	sqlSpoilPostgres = `update mirror set amount = -1 where (extract(epoch from at - timestamptz '2026-11-01 00:00:00Z') * 1000)::bigint %% %d = 0`
)

// spoil makes so many rows differ, at even distances.
func (l *ledgers) spoil(ctx context.Context, differences int) error {
	if differences == 0 {
		return nil
	}
	distance := l.rows / differences
	if _, err := l.my.ExecContext(ctx, fmt.Sprintf(sqlSpoilMySQL, distance)); err != nil {
		return fmt.Errorf("spoil: %w", err)
	}
	if _, err := l.pg.Exec(ctx, fmt.Sprintf(sqlSpoilPostgres, distance)); err != nil {
		return fmt.Errorf("spoil: %w", err)
	}
	_, err := l.pg.Exec(ctx, "vacuum analyze mirror")
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

// besideTool is the tool, with what it did.
type besideTool struct {
	file  string
	rates map[string]rate  // by number of differences
	peaks map[string]int64 // the same, bytes
}

// compareLedgers measures across engines, beside the tool. Where it refuses the
// key, what it did with integers is the limit.
func (e Env) compareLedgers(ctx context.Context, l *ledgers, beside *besideTool, differences int) error {
	name, n := fmt.Sprintf("reconcile-%s-%d", l.key, differences), strconv.Itoa(differences)
	var peak int64
	ours := func() (rate, error) {
		if err := resetPeak(); err != nil {
			return rate{}, err
		}
		held := watchOwn("self")
		r, found, err := l.compare(ctx, "my", "ledger", reconcile.PlanMerge)
		peak = held()
		if err != nil {
			return rate{}, err
		}
		fmt.Fprintf(e.Out, "  ours %s, %d differences, at most %d MB of its own\n", r.took.Round(10*time.Millisecond), found, peak>>20)
		return r, err
	}
	if beside.file == "" {
		r, err := ours()
		if err == nil {
			_, err = fmt.Fprintf(e.Out, "%s: %.0f rows/s\n", name, r.perSecond())
		}
		return err
	}
	err := e.ratio(name, 5, ours, func() (rate, error) {
		r, memory, err := l.tool(ctx, beside.file)
		if errors.Is(err, errRefused) {
			fmt.Fprintf(e.Out, "  %v; its figure with integers: %s\n", err, beside.rates[n].took.Round(10*time.Millisecond))
			return beside.rates[n], nil
		}
		beside.rates[n], beside.peaks[n] = r, memory
		fmt.Fprintf(e.Out, "  %s %s, at most %d MB of its own\n", filepath.Base(beside.file), r.took.Round(10*time.Millisecond), memory>>20)
		return r, err
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.Out, "RATIO %s-memory %.2f goal < 1\n", name, float64(peak)/float64(beside.peaks[n]))
	return err
}

// compareLarge measures what many rows take.
func (e Env) compareLarge(ctx context.Context, l *ledgers) error {
	if err := resetPeak(); err != nil {
		return err
	}
	r, _, err := l.compare(ctx, "my", "ledger", reconcile.PlanMerge)
	if err != nil {
		return err
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(e.Out, "MEMORY reconcile-%d %d MB goal < 100; %.0f rows/s\n", l.rows, peak>>20, r.perSecond())
	return err
}

var errRefused = errors.New("the tool refuses the key")

// tool runs the diff tool as a process of its own, on the columns that the job
// compares.
func (l *ledgers) tool(ctx context.Context, file string) (rate, int64, error) {
	pg := l.pg.Config().ConnConfig
	cmd := exec.CommandContext(ctx, file,
		fmt.Sprintf("postgresql://%s:%s@%s:%d/%s", pg.User, pg.Password, pg.Host, pg.Port, pg.Database), "ledger",
		fmt.Sprintf("mysql://%s:%s@%s/%s", l.myConf.User, l.myConf.Passwd, l.myConf.Addr, l.myConf.DBName), "ledger",
		"-k", l.key, "-c", "amount", "-c", "currency")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return rate{}, 0, err
	}
	peak := watchOwn(strconv.Itoa(cmd.Process.Pid))
	err := cmd.Wait()
	took, memory := time.Since(began), peak()
	switch text := out.String(); {
	case strings.Contains(text, "as a key"):
		return rate{}, 0, errRefused
	case err != nil:
		return rate{}, 0, fmt.Errorf("%s: %w: %s", file, err, text[max(0, len(text)-500):])
	}
	return rate{l.rows, took}, memory, nil
}

var ownMemory = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

// watchOwn follows what a process holds for itself until peak is asked for, in
// bytes. The files of its program, which the system keeps once for all, do not
// count: ours is one program for everything.
func watchOwn(pid string) (peak func() int64) {
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		var highest int64
		for {
			select {
			case <-done:
				most <- highest
				return
			case <-tick.C:
				if now, err := memoryOf(pid, ownMemory); err == nil { // it may have just ended
					highest = max(highest, now)
				}
			}
		}
	}()
	return func() int64 { close(done); return <-most }
}

const sqlBareJoin = `
select count(*) from (
  select 1 from ledger c where at >= $1 and at < $2 and not exists (select from mirror e where e.%[1]s = c.%[1]s and e.amount = c.amount and e.at >= $1 and e.at < $2)
  union all
  select 1 from mirror e where at >= $1 and at < $2 and not exists (select from ledger c where c.%[1]s = e.%[1]s and c.amount = e.amount and c.at >= $1 and c.at < $2)
) d`

// joinLedgers measures two tables of one database, beside a bare anti-join in
// both directions.
func (e Env) joinLedgers(ctx context.Context, l *ledgers, differences int) error {
	ours := func() (rate, error) {
		r, _, err := l.compare(ctx, "pg", "mirror", reconcile.PlanJoin)
		return r, err
	}
	return e.ratio(fmt.Sprintf("reconcile-join-%s-%d", l.key, differences), 0.77, ours, func() (rate, error) {
		began := time.Now()
		var n int
		err := l.pg.QueryRow(ctx, fmt.Sprintf(sqlBareJoin, l.key), ledgerFrom, ledgerFrom.Add(30*24*time.Hour)).Scan(&n)
		return rate{l.rows, time.Since(began)}, err
	})
}
