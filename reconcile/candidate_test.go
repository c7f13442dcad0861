package reconcile

import (
	"strings"
	"testing"
	"time"
)

// A look-up that does not see what the query sees would let a key pass for whole:
// nobody would know what is wrong with it.
func TestLookupThatSeesLessIsRefused(t *testing.T) {
	t.Parallel()
	rowsAlone := strings.Replace(matchOne, "amount: amount, currency: currency", "amount: none, currency: none", 1)
	blind := func(text string, sides ...string) string {
		for _, table := range sides {
			text = strings.Replace(text, "from "+table+" where event_id in (:keys)", "from "+table+" where amount < 5 and event_id in (:keys)", 1)
		}
		return text
	}
	for name, text := range map[string]string{
		"join, both sides":  blind(jobText("pg", "pg", rowsAlone), "consumed", "effect"),
		"merge, both sides": blind(jobText("pg", "my", rowsAlone), "consumed", "effect"),
		"merge, one row":    blind(jobText("pg", "my", rowsAlone), "effect"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openOffice(t, "")
			o.exec("CREATE TABLE effect (LIKE consumed)")
			o.readable()
			o.define(text)
			o.consume("twice", "1.00", time.Minute)
			for _, amount := range []string{"1.00", "9.00"} {
				o.credit("twice", amount, time.Minute)
				o.exec("INSERT INTO effect VALUES ('twice', $1::numeric, 'CNY', $2)", amount, noon.Add(time.Minute))
			}
			o.consume("gone", "9.00", time.Minute)
			run := o.run(0, 1)
			if run.State != Partial || !strings.Contains(said(run), "the look-up has to give every row that the query gives") || !strings.Contains(said(run), "of key ") {
				t.Errorf("run is %s: %s", run.State, said(run))
			}
		})
	}
}
