package web_test

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
)

// The first page says what is not reconciled, who has to sign, and what is
// somebody's; green only where every job is known to agree.
func TestOverviewSpeaksOfMoney(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	viewer, reviewer := k.as(access.Viewer), k.as(access.Reviewer)
	page := viewer.get("/")
	says(t, page, "Unreconciled Not known 1 job not known", "Not everything could be looked at")
	lacks(t, page, "All quiet", "agrees")

	k.everywhere("ok-1", "100.00", "CNY")
	k.usual()
	run := k.run("ledger")
	page = viewer.get("/")
	says(t, page, "Unreconciled", "CNY", "and 0.90 USD", "breaks are open", "ledger", "matched")
	lacks(t, page, "Sign off run")
	page = reviewer.get("/")
	says(t, page, fmt.Sprintf("Sign off run %d of ledger", run.ID), "Asia/Shanghai", "prepared by operator", "1 sign-off")

	reviewer.post("/breaks/act", url.Values{"do": {"assign"}, "owner": {"reviewer"}, "break": {fmt.Sprint(k.breakOf("missing"))}, "from": {"/breaks"}})
	says(t, reviewer.get("/"), "One break is assigned to you", "1,268.00 CNY, without signs", "1 sign-off, 1 break")
}

// A letter shows what hangs on it in every job, open money first.
func TestLetterShowsTheMoneyAtStake(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.fail(t, "payment-7", points)
	id := k.letters(t, k.token(t, access.Operator), 1)["payment-7 "+points]["id"].(string)
	viewer := k.as(access.Viewer)
	lacks(t, viewer.get("/letters/"+id), "Money at stake")
	k.add("published", "payment-7", "264.00", "CNY", 2)
	k.run("ledger")
	page := viewer.get("/letters/" + id)
	says(t, page, "Money at stake 264.00 CNY", "Published, not consumed", "Open", "ledger")
	contains(t, page, 200, fmt.Sprintf(`href="/breaks/%d"`, k.breakOf("payment-7")))
	for _, side := range []string{"consumed", "effect"} {
		k.add(side, "payment-7", "264.00", "CNY", 2)
	}
	k.run("ledger")
	says(t, viewer.get("/letters/"+id), "Nothing is open any more", "Closed")
}

// What Prometheus reads of reconciliation.
func TestMetricsOfReconciliation(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	if _, err := k.pool.Exec(t.Context(), "update reconcile_job_version set loaded_at = @at", pgx.NamedArgs{"at": k.clock.Now().Add(-3 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	k.add("published", "lost", "264.50", "CNY", 2)
	k.run("ledger")
	r := k.get(t, k.browser(t), "/metrics")
	contains(t, r, 200, `oncemore_reconcile_runs{job="ledger",state="complete"} 1`, `oncemore_reconcile_open_breaks{job="ledger"} 1`,
		`oncemore_reconcile_amount_at_risk{currency="CNY",job="ledger"} 264.5`, `oncemore_reconcile_overdue_seconds{job="ledger"}`)
}
