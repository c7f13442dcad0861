package main

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"oncemore/cmd/console/shop"
	"oncemore/internal/testkit"
)

// repairWalk: what the ledger missed is credited, and what it has twice is taken
// back by a saga whose second step fails once. One person asks, another agrees.
func (r *running) repairWalk(browser context.Context) {
	r.Helper()
	maker, checker := r.at(browser, "operator"), r.at(browser, "approver")

	missing, credit := maker.proposes("payment-success-9074", "390.06 CNY", "/credit")
	maker.shows("You asked for this. Someone else must approve", "Nothing has changed.")
	checker.agrees(credit)
	r.verified(credit)
	maker.visit(credit)
	maker.shows("both sides are equal")
	maker.visit(missing)
	maker.shows("Verified", "390.06")

	r.stumble(shop.StumbleAnnounce)
	excess, saga := maker.proposes("payment-success-9030", "505.70 USD", "/reverse", "/announce")
	checker.agrees(saga)
	r.verified(saga)
	maker.visit("/sagas/" + regexp.MustCompile(`\d+$`).FindString(saga))
	maker.shows("Every step is done, and it was verified.", "reverse", "announce", "2 attempts", "HTTP 503")
	maker.visit(excess)
	maker.shows("Verified")
}

// proposes asks for the only repair that there is for an event's break, once the
// page has shown what would be done. It returns the paths of both.
func (d *desk) proposes(event string, preview ...string) (found, repair string) {
	d.Helper()
	id := d.breaks("&event_id=" + event)[0].ID
	found = fmt.Sprintf("/breaks/%d", id)
	d.visit(found)
	link := fmt.Sprintf(`a[href="/compensations/new?break=%d"]`, id)
	d.do(chromedp.WaitReady(link))
	d.press(link)
	d.shows(preview...)
	d.do(chromedp.SendKeys("#propose-reason", "seen in the ledger"), chromedp.Click(`form[action="/compensations"] button`))
	repair = d.leaves("/compensations/new")
	if !regexp.MustCompile(`^/compensations/\d+$`).MatchString(repair) {
		d.Fatalf("proposing leads to %s, which says %.400q", repair, d.text())
	}
	return found, repair
}

// agrees finds a repair among the approvals, and approves it as it is shown.
func (d *desk) agrees(repair string) {
	d.Helper()
	d.visit("/approvals")
	d.do(chromedp.Click(`.todo a.t[href="` + repair + `"]`))
	d.shows("What exactly will happen")
	d.do(chromedp.SendKeys("#decide-reason", "so it is"), chromedp.Click(`form[action$="/approve"] .btn-primary`))
	d.shows("so it is")
}

func (r *running) verified(repair string) {
	r.Helper()
	var now struct {
		State string
		Why   *string
	}
	testkit.Eventually(r, 60*time.Second, func() bool {
		r.get("/api/v1"+repair, &now)
		return now.State == "verified"
	}, "%s is verified: %+v", repair, &now)
}

// stumble makes a handler of the shop fail once.
func (r *running) stumble(handler string) {
	r.Helper()
	db, err := pgx.Connect(r.Context(), r.info.Database)
	if err == nil {
		_, err = db.Exec(r.Context(), "insert into broken_handler (name) values ($1)", handler)
		db.Close(r.Context())
	}
	if err != nil {
		r.Fatal(err)
	}
}
