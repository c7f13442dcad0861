package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A snapshot reads within its limits and writes nothing, even by a credential
// that may.
func TestSnapshotsOnlyRead(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	b.exec("CREATE TABLE consumed (n int)")
	b.execMySQL("CREATE TABLE consumed (n int)")
	limits := Limits{Statement: 7 * time.Second}
	for _, c := range []struct {
		database       Database
		settings, want string
	}{
		{Database{Name: "pg", Postgres: b.pg}, "select current_setting('statement_timeout') || ' ' || current_setting('lock_timeout') || ' ' || current_setting('transaction_isolation') || ' ' || current_setting('timezone')", "7s 5s repeatable read UTC"},
		{Database{Name: "my", MySQL: b.my}, "select concat_ws(' ', @@max_statement_time, @@lock_wait_timeout, @@tx_isolation, @@time_zone)", "7.000000 5 REPEATABLE-READ +00:00"},
	} {
		var have string
		err := c.database.reader().snapshot(t.Context(), limits, func(state snapshot) error {
			return state.texts(t.Context(), bound{text: c.settings}, func(v []*string) error {
				have = *v[0]
				return nil
			})
		})
		if err != nil || have != c.want {
			t.Errorf("%s: %q, want %q: %v", c.database.Name, have, c.want, err)
		}
		err = c.database.reader().snapshot(t.Context(), limits, func(state snapshot) error {
			return state.texts(t.Context(), bound{text: "insert into consumed values (1)"}, func([]*string) error { return nil })
		})
		if err == nil {
			t.Errorf("%s let a write pass", c.database.Name)
		}
	}
	var rows int
	if err := b.pg.QueryRow(t.Context(), "SELECT count(*) FROM consumed").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows written to PostgreSQL: %v", rows, err)
	}
	if err := b.my.QueryRowContext(t.Context(), "SELECT count(*) FROM consumed").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows written to MariaDB: %v", rows, err)
	}
}

// More differences than may be listed: every plan says so, and counts what it saw
// all the same.
func TestEveryPlanSaysThatItWasCut(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for _, side := range []string{"consumed", "effect"} {
		b.exec(fmt.Sprintf(tableConsumed, side, "timestamptz"))
	}
	b.exec("INSERT INTO consumed SELECT 'e' || n, 1, 'CNY', $1 FROM generate_series(1, 9) n", noon)
	b.exec("INSERT INTO effect SELECT 'e' || n, 1, 'CNY', $1 FROM generate_series(1, 4) n", noon)
	b.readable()
	for _, plan := range []string{PlanMerge, PlanJoin} {
		for most, cut := range map[int]bool{0: true, 3: true, 5: false} {
			found, err := Compare(t.Context(), parseJob(t, jobText("pg", "pg", matchOne)), b.named, plan, noon, noon.Add(time.Hour), noon.Add(100*time.Hour), most)
			if err != nil {
				t.Fatal(err)
			}
			if found.Cut != cut || len(found.Findings) != most || found.Tally.Matched != 4 || found.Tally.Totals[Consumed]["CNY"].Rows != 9 {
				t.Errorf("%s, at most %d: cut %v, %d found, %d match of %v", plan, most, found.Cut, len(found.Findings), found.Tally.Matched, found.Tally.Totals[Consumed])
			}
		}
	}
}

// A query that does not filter by its window is refused by every plan.
func TestEveryPlanRefusesAQueryThatIgnoresItsWindow(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for _, side := range []string{"consumed", "effect"} {
		b.exec(fmt.Sprintf(tableConsumed, side, "timestamptz"))
		b.exec("INSERT INTO "+side+" VALUES ('a', 1, 'CNY', $1)", noon.Add(30*time.Hour))
	}
	b.readable()
	for _, side := range []string{"consumed", "effect"} {
		text := strings.Replace(jobText("pg", "pg", matchOne), "from "+side+" where at >= :from and at < :to", "from "+side+" where :from < :to", 1)
		for _, plan := range []string{PlanMerge, PlanJoin} {
			_, err := Compare(t.Context(), parseJob(t, text), b.named, plan, noon, noon.Add(time.Hour), noon.Add(100*time.Hour), 10)
			if !errors.Is(err, errIgnoresWindow) || !strings.Contains(err.Error(), side) {
				t.Errorf("%s of %s: %v", plan, side, err)
			}
		}
	}
}
