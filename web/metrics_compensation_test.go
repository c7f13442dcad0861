package web_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"oncemore/compensate"
	"oncemore/internal/access"
)

// noonZone is a zone in which it is about noon: the day does not end while a test runs.
func noonZone() string { return fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12) }

// The figures of repairs, before and after they are carried out.
func TestMetricsOfRepairs(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	capped := strings.Replace(creditAction, "action: credit", "action: capped", 1)
	r.define(t, strings.Replace(capped, "{per_batch: 200}", `{amount_per_day: "50.50"}`, 1)+"timezone: "+noonZone()+"\n")
	r.consumed(t, 3, "20")
	scrape := func(there []string, absent ...string) {
		t.Helper()
		page := r.get(t, http.DefaultClient, "/metrics")
		contains(t, page, http.StatusOK, there...)
		for _, a := range absent {
			if regexp.MustCompile("(?m)^" + a).MatchString(page.body) {
				t.Errorf("there is %s", a)
			}
		}
	}
	paid, more := r.approved(t, "capped", "e-2"), r.approved(t, "capped", "m-20-1")
	waits := r.asked(t, "credit", "m-20-3")
	if _, err := r.pool.Exec(t.Context(), "UPDATE compensation SET asked_at = $2 WHERE id = $1", waits.ID, r.clock.Now().Add(-90*time.Second)); err != nil {
		t.Fatal(err)
	}
	scrape([]string{
		`oncemore_compensations{action="capped",state="approved"} 2`, `oncemore_compensations{action="capped",state="proposed"} 0`,
		`oncemore_compensations{action="credit",state="proposed"} 1`, `oncemore_compensation_oldest_seconds{action="credit",state="proposed"} 90`,
		`oncemore_compensation_amount_at_work{currency="CNY"} 27.5`, "\noncemore_compensation_stopped 0\n",
	}, "oncemore_compensation_day_", `oncemore_compensation_oldest_seconds{action="capped",state="proposed"}`, "oncemore_compensation_attempts_total")

	r.answers("/credit/m-20-2", http.StatusUnprocessableEntity)
	refused := r.approved(t, "call", "m-20-2")
	r.work(t)
	for id, state := range map[int64]compensate.State{paid.ID: compensate.Verified, more.ID: compensate.Verified, refused.ID: compensate.NeedsAttention} {
		r.comesTo(t, id, state)
	}
	if err := r.Stop(t.Context(), access.Actor{User: "operator", Role: access.Operator, Via: "test", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	scrape([]string{
		`oncemore_compensations{action="call",state="needs_attention"} 1`, "\noncemore_compensation_stopped 1\n",
		`oncemore_compensation_attempts_total{direction="forward",kind="sql",outcome="done"} 2`, `oncemore_compensation_attempts_total{direction="forward",kind="http",outcome="refused"} 1`,
		`oncemore_compensation_day_amount{action="capped",currency="CNY"} 27.5`, `oncemore_compensation_day_limit{action="capped",currency="CNY"} 50.5`,
		`oncemore_compensation_day_amount{action="call",currency="CNY"} 20`,
	}, `oncemore_compensation_day_limit{action="call"`, `oncemore_compensations{action="capped"`, "oncemore_compensation_amount_at_work")
}
