package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/consumer/mysqlstore"
	"oncemore/internal/testkit"
)

const childEnv = "ONCEMORE_RECONCILE_CHILD"

// child is a console that carries out one run.
type child struct {
	Console, Postgres, MySQL string
	Run                      int64
}

func runChild(spec string) {
	if err := carryOut(spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func carryOut(spec string) error {
	var c child
	if err := json.Unmarshal([]byte(spec), &c); err != nil {
		return err
	}
	ctx := context.Background()
	console, err := pgxpool.New(ctx, c.Console)
	if err != nil {
		return err
	}
	pg, err := pgxpool.New(ctx, c.Postgres)
	if err != nil {
		return err
	}
	conf, err := driver.ParseDSN(c.MySQL)
	if err != nil {
		return err
	}
	my, err := mysqlstore.OpenPool(conf, mysqlstore.PoolOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	named := map[string]Database{"pg": {Name: "pg", Postgres: pg}, "my": {Name: "my", MySQL: my}}
	runs, err := NewRuns(console, NewJobs(console), named, Options{Lease: time.Second, Clock: func() time.Time { return noon.Add(100 * time.Hour) }, Log: quiet()})
	if err != nil {
		return err
	}
	_, err = runs.Do(ctx, c.Run)
	return err
}

// readerURL is the reading role's way into the books.
func (b *books) readerURL() string {
	c := b.pg.Config().ConnConfig
	return fmt.Sprintf("postgres://%s:reader@%s:%d/%s?sslmode=disable", b.role(), c.Host, c.Port, c.Database)
}

// A process that is killed while it reads a segment leaves whole segments. The
// next one goes on after them, and finds nothing twice.
func TestKilledInTheMiddleOfASegment(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.exec("CREATE TABLE brake AS SELECT 60 AS seconds")
	o.readable()
	o.define(strings.Replace(jobText("pg", "my", matchOne+"\nlimits: {parallel: 1}\n"), "at < :to\n",
		"at < :to and (event_id <> 'h3' or (select pg_sleep(seconds) from brake) is not null)\n", 1))
	for i := range 6 {
		o.consume(fmt.Sprintf("h%d", i), "1.00", time.Duration(i)*time.Hour+30*time.Minute)
	}
	id, err := o.runs.Ask(t.Context(), ada, Request{Job: "points", From: noon, To: noon.Add(6 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(child{o.console.Config().ConnString(), o.readerURL(), o.reader.FormatDSN(), id})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), childEnv+"="+string(spec)), os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 60*time.Second, func() bool { return o.asleep() }, "nobody reads the fourth segment")
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("it ended by itself: %v", cmd.ProcessState)
	}
	same(t, "segments done", o.count("SELECT count(*) FROM reconcile_segment WHERE state = 1"), 3)
	o.exec("UPDATE brake SET seconds = 0")
	o.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND query LIKE '%pg_sleep%'", o.role())

	run, err := o.runs.Do(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "state and proof", fmt.Sprint(run.State, run.Tally.Foots(), run.Tally.Lines[string(MissingEffect)]["CNY"].Keys), fmt.Sprint(Complete, true, 6))
	same(t, "opened", run.Roll.Currencies["CNY"].Moved[MovedOpened], Line{6, amountOf(6)})
	same(t, "breaks and what the run says of them", fmt.Sprint(o.count("SELECT count(*) FROM reconcile_break"), o.count("SELECT count(*) FROM reconcile_run_break")), "6 6")
	same(t, "segments read again", o.count("SELECT count(*) FROM reconcile_segment WHERE tries > 0"), 0)
}

// asleep reports whether the reading role is in a pg_sleep.
func (b *books) asleep() bool {
	b.Helper()
	var n int
	err := b.pg.QueryRow(b.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep'", b.role()).Scan(&n)
	if err != nil {
		b.Fatal(err)
	}
	return n > 0
}

// count asks the console's database.
func (o *office) count(sql string, args ...any) (n int) {
	o.Helper()
	if err := o.console.QueryRow(o.Context(), sql, args...).Scan(&n); err != nil {
		o.Fatal(err)
	}
	return n
}
