package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// slow makes each consumed row of a query take so long.
func slow(seconds string) string {
	text := strings.Replace(jobText("pg", "my", matchOne), "at < :to\n", "at < :to and pg_sleep("+seconds+") is not null\n", 1)
	return strings.Replace(text, "overlap: 10m", "overlap: 0s", 1)
}

func (o *office) ask(from, to int) int64 {
	o.Helper()
	id, err := o.runs.Ask(o.Context(), ada, Request{Job: "points", From: noon.Add(time.Duration(from) * time.Hour), To: noon.Add(time.Duration(to) * time.Hour)})
	if err != nil {
		o.Fatal(err)
	}
	return id
}

func (o *office) wholeHours(hours, each int) {
	for h := range hours {
		for i := range each {
			id, at := fmt.Sprintf("%d-%d", h, i), time.Duration(h)*time.Hour+time.Duration(i)*5*time.Minute
			o.consume(id, "1.00", at)
			o.credit(id, "1.00", at)
		}
	}
}

// A replica that cancels a query costs that segment a try, and no other.
func TestCancelledQueryIsReadAgain(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*office) (cancelWaiting func() (bool, error), release func() error, err error){
		"PostgreSQL": (*office).holdPostgres,
		"MariaDB":    (*office).holdMariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openOffice(t, "\nlimits: {parallel: 1}\n")
			o.wholeHours(3, 2)
			id := o.ask(0, 3)
			var cancelling errgroup.Group
			clock, began := o.runs.opts.Clock, false
			o.runs.opts.Clock = func() time.Time { // asked for when a segment begins
				if !began {
					began = true
					cancelWaiting, release, err := hold(o)
					cancelling.Go(func() error {
						if err == nil {
							err = errors.Join(until(cancelWaiting), release())
						}
						return err
					})
				}
				return clock()
			}
			run, err := o.runs.Do(t.Context(), id)
			if err := errors.Join(err, cancelling.Wait()); err != nil {
				t.Fatal(err)
			}
			if run.State != Complete || run.Tally.Matched != 6 || !run.Tally.Foots() {
				t.Fatalf("run is %s: %v", run.State, run.Error)
			}
			same(t, "tries", fmt.Sprint(o.count("SELECT sum(tries) FROM reconcile_segment"), o.count("SELECT max(tries) FROM reconcile_segment")), "1 1")
			same(t, "log", o.count("SELECT count(*) FROM reconcile_run_log WHERE text LIKE 'segment % could not be compared:%'"), 1)
		})
	}
}

func until(done func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if ok, err := done(); ok || err != nil {
			return err
		}
		<-tick.C
	}
	return errors.New("nobody waits for the table")
}

const sqlCancelWaiting = `
SELECT coalesce(bool_or(pg_cancel_backend(pid)), false) FROM pg_stat_activity WHERE usename = $1 AND wait_event_type = 'Lock'`

// holdPostgres locks the table of consumed. cancelWaiting cancels who waits for
// it.
func (o *office) holdPostgres() (cancelWaiting func() (bool, error), release func() error, err error) {
	ctx := o.Context()
	tx, err := o.pg.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, err = tx.Exec(ctx, "LOCK consumed")
	return func() (cancelled bool, err error) {
		err = o.pg.QueryRow(ctx, sqlCancelWaiting, o.role()).Scan(&cancelled)
		return cancelled, err
	}, func() error { return tx.Rollback(ctx) }, err
}

const sqlWaitingMariaDB = `
SELECT coalesce(max(id), 0) FROM information_schema.processlist WHERE user = ? AND state LIKE 'Waiting for table metadata lock%'`

// holdMariaDB is the same for effect.
func (o *office) holdMariaDB() (cancelWaiting func() (bool, error), release func() error, err error) {
	ctx := o.Context()
	conn, err := o.my.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	_, err = conn.ExecContext(ctx, "LOCK TABLES effect WRITE")
	return func() (bool, error) {
			var id int64
			if err := o.my.QueryRowContext(ctx, sqlWaitingMariaDB, o.reader.User).Scan(&id); err != nil || id == 0 {
				return false, err
			}
			_, err := o.my.ExecContext(ctx, fmt.Sprintf("KILL QUERY %d", id))
			return true, err
		}, func() error {
			_, err := conn.ExecContext(ctx, "UNLOCK TABLES")
			return errors.Join(err, conn.Close())
		}, err
}

// A segment whose statement takes too long is cut in two until it fits.
func TestSlowSegmentIsSplit(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.define(slow("0.25") + "limits: {statement: 2s}\n")
	o.wholeHours(1, 12)
	run, err := o.runs.Do(t.Context(), o.ask(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "state and matched", fmt.Sprint(run.State, run.Tally.Matched, run.Tally.Foots()), fmt.Sprint(Complete, 12, true))
	same(t, "rows", run.Tally.Totals[Consumed]["CNY"], Total{12, amountOf(12)})
	if n := o.count("SELECT count(*) FROM reconcile_segment WHERE state = 1"); n < 2 {
		t.Errorf("%d segment", n)
	}
	if n := o.count("SELECT count(*) FROM reconcile_run_log WHERE text LIKE '%is cut in two%'"); n < 1 {
		t.Error("the log does not say so")
	}
}

// Where a segment takes most of a step's time, those that wait become shorter.
func TestWaitingSegmentsBecomeShorter(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.define(slow("0.05") + "limits: {parallel: 1}\n")
	o.runs.opts.StepTime = time.Second
	o.wholeHours(2, 12)
	run, err := o.runs.Do(t.Context(), o.ask(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "state and matched", fmt.Sprint(run.State, run.Tally.Matched, run.Tally.Foots()), fmt.Sprint(Complete, 24, true))
	same(t, "rows", run.Tally.Totals[Consumed]["CNY"], Total{24, amountOf(24)})
	same(t, "longest of those after the first", o.count("SELECT max(extract(epoch FROM seg_to - seg_from))::int FROM reconcile_segment WHERE no > 0"), 1800)
}

// limits.run ends a segment under way: what was compared counts, the run is
// partial.
func TestRunEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.define(slow("20") + "limits: {run: 1s, parallel: 1}\n")
	o.consume("slow", "1.00", time.Hour)
	began := time.Now()
	run, err := o.runs.Do(t.Context(), o.ask(0, 2))
	if err != nil {
		t.Fatal(err)
	}
	if run.State != Partial || run.Error == nil || !strings.Contains(*run.Error, "limits.run") {
		t.Errorf("%s: %v", run.State, run.Error)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A step that reads for longer than its lease is still the only one.
func TestSlowSegmentKeepsItsLease(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	o.define(slow("4"))
	o.consume("slow", "1.00", time.Minute)
	o.runs.opts.Lease = 3 * time.Second
	id := o.ask(0, 1)
	var replicas errgroup.Group
	for range 2 {
		replicas.Go(func() error {
			_, err := o.runs.Do(t.Context(), id)
			return err
		})
	}
	if err := replicas.Wait(); err != nil {
		t.Fatal(err)
	}
	same(t, "steps", o.count("SELECT epoch FROM reconcile_run"), 1)
	same(t, "breaks", o.breaks(), map[string]string{"slow missing_effect": "1 1"})
}
