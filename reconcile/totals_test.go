package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Both engines add up the same, whether a side has one currency or several, and
// whoever brought the second one in.
func TestControlTotals(t *testing.T) {
	t.Parallel()
	b := openBooks(t)
	for n, c := range map[string]struct{ rows, control, keyless string }{
		"nothing":                             {"", "", ""},
		"one currency":                        {"'a', 1.10, 'CNY'; 'b', 2, 'CNY'", "CNY 2 3.1", ""},
		"two currencies":                      {"'a', 1, 'CNY'; 'b', 2, 'EUR'; 'c', 4, 'CNY'", "CNY 2 5, EUR 1 2", ""},
		"currencies that differ in case":      {"'a', 1, 'CNY'; 'b', 2, 'cny'", "CNY 1 1, cny 1 2", ""},
		"one that only rows without key have": {"'a', 1, 'CNY'; null, 2, 'EUR'", "CNY 1 1", "EUR 1 2"},
		"rows without key only":               {"null, 2, 'EUR'; null, null, 'EUR'", "", "EUR 2 2"},
		"none and an empty one":               {"'a', 1, null; 'b', 2, ''; null, 4, null; null, 8, ''", " 2 3", " 2 12"},
		"a padded one":                        {"'a', 1, 'CNY'; 'b', 2, 'CNY  '", "CNY 2 3", ""},
		"no amount":                           {"'a', null, 'CNY'", "CNY 1 0", ""},
	} {
		t.Run(n, func(t *testing.T) {
			table := "t" + strings.Map(func(r rune) rune {
				if r < 'a' || r > 'z' {
					return -1
				}
				return r
			}, n)
			create := "CREATE TABLE " + table + " (event_id varchar(64), amount decimal(18,2), currency char(8), at timestamp%s)"
			b.exec(fmt.Sprintf(create, "tz"))
			b.execMySQL(fmt.Sprintf(create, "(6) NULL"))
			for row := range strings.SplitSeq(c.rows, "; ") {
				if row == "" {
					continue
				}
				b.exec("INSERT INTO "+table+" SELECT "+row+", $1::timestamptz", noon)
				b.execMySQL("INSERT INTO "+table+" SELECT "+row+", ?", noon)
			}
			b.readable()
			for _, by := range [][2]string{{"pg", PlanMerge}, {"my", PlanMerge}, {"pg", PlanJoin}} {
				db, plan := by[0], by[1]
				text := strings.ReplaceAll(strings.ReplaceAll(jobText(db, db, matchOne), "from consumed", "from "+table), "from effect", "from "+table)
				found, err := Compare(t.Context(), parseJob(t, text), b.named, plan, noon, noon.Add(time.Hour), noon.Add(100*time.Hour), 10)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range []Party{Consumed, Effect} {
					if got := totalsText(found.Tally.Control[p]); got != c.control {
						t.Errorf("%s of %s: %s has %q, want %q", plan, db, p, got, c.control)
					}
					if got := totalsText(found.Tally.Keyless[p]); got != c.keyless {
						t.Errorf("%s of %s: %s has %q without a key, want %q", plan, db, p, got, c.keyless)
					}
				}
			}
		})
	}
}

func totalsText(totals map[string]Total) string {
	var parts []string
	for currency, total := range totals {
		parts = append(parts, fmt.Sprintf("%s %d %s", currency, total.Rows, total.Amount))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
