package reconcile

import (
	"fmt"
	"testing"
	"time"
)

const tableConsumed = "CREATE TABLE %s (event_id varchar(64), amount numeric(20,2), currency char(3), at %s)"

func TestEvaluateFindsEachType(t *testing.T) {
	t.Parallel()
	for _, engines := range [][2]string{{"pg", "pg"}, {"pg", "my"}, {"my", "pg"}, {"my", "my"}} {
		t.Run(engines[0]+" "+engines[1], func(t *testing.T) {
			t.Parallel()
			b := openBooks(t)
			exec := map[string]func(string, ...any){"pg": b.exec, "my": b.execMySQL}
			stamp := map[string]string{"pg": "timestamptz", "my": "timestamp(6) null"}
			for i, table := range []string{"consumed", "effect"} {
				exec[engines[i]](fmt.Sprintf(tableConsumed, table, stamp[engines[i]]))
			}
			b.readable()
			add := func(i int, id, amount string, at time.Duration) {
				table := []string{"consumed", "effect"}[i]
				exec[engines[i]](fmt.Sprintf("INSERT INTO %s VALUES ('%s', %s, 'CNY', '%s')", table, id, amount, noon.Add(at).Format("2006-01-02 15:04:05.999999")))
			}
			for i := range 20 {
				id := fmt.Sprintf("whole-%d", i)
				add(0, id, "100.10", time.Duration(i)*time.Minute)
				add(1, id, "100.1", time.Duration(i)*time.Minute+time.Second)
			}
			add(0, "missing", "7.00", time.Minute)
			add(1, "alone", "8.00", time.Minute)
			add(0, "differs", "9.00", time.Minute)
			add(1, "differs", "9.01", time.Minute)
			add(0, "twice", "10.00", time.Minute)
			add(1, "twice", "10.00", time.Minute)
			add(1, "twice", "10.00", 2*time.Minute)
			add(0, "again", "13.00", time.Minute)
			add(1, "again", "13.00", time.Minute)
			add(1, "again", "13.00", 50*time.Hour)
			add(0, "edge", "11.00", 59*time.Minute)
			add(1, "edge", "11.00", 61*time.Minute)
			add(0, "late", "12.00", 59*time.Minute)
			add(1, "late", "12.00", 48*time.Hour)
			c := b.compare(parseJob(t, jobText(engines[0], engines[1], matchOne)))
			o, err := c.evaluate(t.Context(), hour(noon), noon.Add(100*time.Hour), 1000)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]Type{"missing": MissingEffect, "alone": EffectWithoutRecord, "differs": AmountMismatch, "twice": DuplicateEffect, "late": Timing}
			for _, f := range o.findings {
				if want[f.Key[0]] != f.Type {
					t.Errorf("%s: %s, want %s", f.Key[0], f.Type, want[f.Key[0]])
				}
				delete(want, f.Key[0])
			}
			if len(want) != 0 || o.more {
				t.Errorf("not found: %v", want)
			}
			if !o.tally.Foots() || o.tally.Matched != 22 {
				t.Errorf("matched %d, difference %s, unexplained %s: %+v", o.tally.Matched, o.tally.Difference("CNY"), o.tally.Unexplained("CNY"), o.tally.Lines)
			}
			o, err = c.evaluate(t.Context(), hour(noon.Add(50*time.Hour)), noon.Add(100*time.Hour), 1000)
			if err != nil {
				t.Fatal(err)
			}
			if len(o.findings) != 1 || o.findings[0].Type != DuplicateEffect || o.findings[0].Sides[Effect].Rows != 2 || !o.tally.Foots() {
				t.Errorf("a second credit two days later: %+v", o.findings)
			}
		})
	}
}
