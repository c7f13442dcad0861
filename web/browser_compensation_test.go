package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"oncemore/compensate"
	"oncemore/internal/access"
)

// theOnly is the number of the compensation of an action; there is one.
func (r *repairs) theOnly(t *testing.T, action string) int64 {
	t.Helper()
	all, _, err := r.List(t.Context(), compensate.Filter{Action: action, Limit: 2})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d compensations by %s, %v", len(all), action, err)
	}
	return all[0].ID
}

// because fills in a reason and presses the button beside it.
func (p *tab) because(field, reason, button string) {
	p.Helper()
	p.do(chromedp.WaitVisible(field), chromedp.SendKeys(field, reason), chromedp.Click(button))
}

// The whole loop as two people do it: a missing credit that reconciliation found
// is proposed, previewed, approved by somebody else, executed and verified, which
// closes the break; then an over-credit is taken back by a saga whose second step
// fails once.
func TestBrowserCompensation(t *testing.T) {
	t.Parallel()
	browser := chrome(t)
	r := setupRepairs(t)
	r.work(t)
	maker, checker := open(t, browser, r.http.URL, 1440), open(t, browser, r.http.URL, 1440)
	maker.signIn("operator")
	checker.signIn("approver")

	missing := r.missing(t, "e-2")
	maker.visit(fmt.Sprintf("/breaks/%d", missing))
	maker.press(fmt.Sprintf(`a[href="/compensations/new?break=%d"]`, missing))
	maker.shows("Choose an action")
	maker.press(`.choices a[href*="action=credit"]`)
	maker.shows("affects 1 row")
	maker.because("#propose-reason", "the customer called", `form[action="/compensations"] button`)
	maker.shows("You asked for this. Someone else must approve")
	credit := r.theOnly(t, "credit")
	if maker.text(`button[formaction$="/reject"]`) != "" {
		t.Error("the maker may decide")
	}
	maker.shows("Nothing has changed.")

	checker.visit("/approvals")
	checker.press(fmt.Sprintf(`.todo a[href="/compensations/%d"]`, credit))
	checker.shows("What exactly will happen")
	checker.because("#decide-reason", "it is right", `form[action$="/approve"] .btn-primary`)
	r.comesTo(t, credit, compensate.Verified)
	maker.visit(fmt.Sprintf("/compensations/%d", credit))
	maker.shows("both sides are equal")
	maker.visit(fmt.Sprintf("/breaks/%d", missing))
	maker.shows("Verified")

	r.exec(t, "INSERT INTO effect VALUES ('e-1', 100.00, 'CNY', '2026-11-30 12:02Z')")
	r.reconcile(t)
	r.stumbles("/settle/e-1", 503)
	excess := r.missing(t, "e-1")
	maker.visit(fmt.Sprintf("/compensations/new?break=%d", excess))
	maker.shows("2 steps: reserve and settle") // the only action there is: nothing to choose
	maker.because("#propose-reason", "credited twice", `form[action="/compensations"] button`)
	maker.shows("Someone else must approve")
	saga := r.theOnly(t, "take-back")
	checker.visit("/compensations")
	checker.press(fmt.Sprintf(`input[name="id"][value="%d"]`, saga))
	checker.press(".selbar .btn-primary")
	checker.shows("Totals per currency")
	checker.shows("100.00 CNY")
	checker.because("#batch-reason", "so it is", `form[action="/compensations/approve"] .btn-primary`)
	checker.shows("1 approved.")
	r.comesTo(t, saga, compensate.Verified)
	maker.visit(fmt.Sprintf("/sagas/%d", saga))
	maker.shows("2 attempts")
	maker.shows("Every step is done, and it was verified.")
	maker.visit(fmt.Sprintf("/breaks/%d", excess))
	maker.shows("Verified")
	for _, p := range []*tab{maker, checker} {
		for _, c := range p.complained() {
			t.Errorf("the page complains: %s", c)
		}
	}
}

// Each state as it is shown: both languages, both themes, wide and narrow, by a
// machine's eye for what people with other eyes need.
func TestBrowserCompensationPages(t *testing.T) {
	t.Parallel()
	browser := chrome(t)
	r := setupRepairs(t)
	r.consumed(t, 3, "20")
	operator := access.Actor{User: "operator", Role: access.Operator, Via: "test", Reason: "closing"}
	approver := access.Actor{User: "approver", Role: access.Approver, Via: "test", Reason: "closing"}
	r.answers("/settle/m-20-1", 422)
	r.answers("/release/m-20-1", 422)
	ids, err := r.Propose(t.Context(), operator, "take-back", []int64{r.missing(t, "m-20-1")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Propose(t.Context(), operator, "credit", []int64{r.missing(t, "m-20-2")}); err != nil {
		t.Fatal(err)
	}
	c, err := r.Get(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Approve(t.Context(), approver, c.ID, c.Hash); err != nil {
		t.Fatal(err)
	}
	r.work(t)
	r.comesTo(t, c.ID, compensate.NeedsAttention)
	paths := []string{"/compensations", "/compensations?state=needs_attention", fmt.Sprintf("/compensations/%d", c.ID), fmt.Sprintf("/compensations/%d", c.ID+1), fmt.Sprintf("/sagas/%d", c.ID),
		"/compensations/approve?all=1&filter=state%3Dawaiting_approval", "/approvals", fmt.Sprintf("/compensations/new?break=%d&action=credit", r.missing(t, "m-20-3"))}
	for i, look := range []struct {
		user, language, theme string
		width                 int64
	}{{"admin", "en", "light", 1440}, {"approver", "zh-Hans", "dark", 390}} {
		p := open(t, browser, r.http.URL, look.width)
		p.signIn(look.user)
		p.prefer(look.language, look.theme)
		for _, path := range paths {
			p.visit(path)
			p.do(chromedp.WaitReady("main"))
			if wide := ask[int](p, "document.documentElement.scrollWidth - window.innerWidth"); wide > 0 {
				t.Errorf("%s is %d px too wide at %d", path, wide, look.width)
			}
			if body := p.text("main"); i == 1 && strings.Contains(body, "Approve") {
				t.Errorf("%s speaks English in Chinese: %.200q", path, body)
			}
			ask[bool](p, axe+"; true")
			for _, v := range ask[[]string](p, axeRun) {
				t.Errorf("%s, %s: %s", path, look.theme, v)
			}
			for _, complaint := range p.complained() {
				t.Errorf("%s: %s", path, complaint)
			}
		}
	}
}
