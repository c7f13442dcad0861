package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"oncemore/compensate"
	"oncemore/internal/access"
)

const (
	letterAction = `
action: credit-letter
applies_to: [letter]
kind: http
url: "{{points-api}}/letter/{{event_id}}"
body: {eventId: "{{event_id}}"}
attempts: {max: 1}
`
	probedAction = `
action: probed
applies_to: [missing_effect]
kind: http
url: "{{points-api}}/probed/{{key.event_id}}"
probe: {url: "{{points-api}}/was/{{key.event_id}}", applied_when: {status: 200}}
attempts: {max: 1}
`
)

// asked proposes a repair of an event's break.
func (r *repairs) asked(t *testing.T, action, event string) *compensate.Compensation {
	t.Helper()
	operator := access.Actor{User: "operator", Role: access.Operator, Via: "test", Reason: "closing"}
	ids, err := r.Propose(t.Context(), operator, action, []int64{r.missing(t, event)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Get(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// approved proposes a repair and agrees to it.
func (r *repairs) approved(t *testing.T, action, event string) *compensate.Compensation {
	t.Helper()
	c := r.asked(t, action, event)
	approver := access.Actor{User: "approver", Role: access.Approver, Via: "test", Reason: "closing"}
	if err := r.Approve(t.Context(), approver, c.ID, c.Hash); err != nil {
		t.Fatal(err)
	}
	return c
}

// A letter leads to the form, the form to a compensation, and that back from the
// letter, which says at last what repaired it.
func TestLetterIsRepairedByForm(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	r.define(t, letterAction)
	r.fail(t, "evt-9", points)
	r.fail(t, "evt-9", legacy)
	found := r.letters(t, r.operator(t), 2)
	letter, other := fmt.Sprint(found["evt-9 "+points]["id"]), fmt.Sprint(found["evt-9 "+legacy]["id"])
	operator, approver, viewer := r.signIn(t, access.Operator), r.signIn(t, access.Approver), r.signIn(t, access.Viewer)
	page, form := "/letters/"+letter, "/compensations/new?letter="+letter
	contains(t, r.get(t, operator, page), http.StatusOK, `href="`+form+`"`)
	lacks(t, r.get(t, viewer, page), form)
	contains(t, r.get(t, operator, form), http.StatusOK, "credit-letter", "/letter/evt-9", `name="letter" value="`+letter+`"`, `id="propose-reason"`)
	lacks(t, r.get(t, viewer, form), `id="propose-reason"`)

	values := url.Values{"action": {"credit-letter"}, "letter": {letter}}
	contains(t, r.post(t, operator, "/compensations", values), http.StatusUnprocessableEntity, "Enter a reason", "/letter/evt-9")
	values.Set("reason", "the points never came")
	values.Set("letter", "x")
	if got := r.post(t, operator, "/compensations", values); got.status < 400 || got.status >= 500 {
		t.Errorf("no letter: %d", got.status)
	}
	values.Set("letter", letter)
	if got := r.post(t, viewer, "/compensations", values); got.status != http.StatusForbidden {
		t.Errorf("a viewer proposes: %d", got.status)
	}
	at := r.post(t, operator, "/compensations", values).header.Get("Location")
	id := r.theOnly(t, "credit-letter")
	name := fmt.Sprintf("C-%d", id)
	if at != fmt.Sprintf("/compensations/%d", id) {
		t.Fatalf("proposed at %q", at)
	}
	contains(t, r.get(t, operator, at), http.StatusOK, `href="`+page+`"`, "the points never came", "You asked for this")
	contains(t, r.get(t, viewer, page), http.StatusOK, `href="`+at+`">Compensation `+name, "Awaiting approval")
	contains(t, r.post(t, operator, "/compensations", values), http.StatusConflict, "This is being repaired")

	c, err := r.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	r.post(t, approver, at+"/approve", url.Values{"hash": {fmt.Sprintf("%x", c.Hash)}, "reason": {"right"}})
	r.work(t)
	r.comesTo(t, id, compensate.Verified)
	contains(t, r.get(t, viewer, page), http.StatusOK, `href="`+at+`">Compensated by `+name)
	lacks(t, r.get(t, viewer, "/letters/"+other), `href="`+at+`"`) // whose effect is another
}

// The kill switch says who threw it and why; letting go takes an approver. Dead
// outbox rows stand below what needs attention.
func TestKillSwitchAndDeadRowsAreShown(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t, withOutbox(postgresOutbox(t)))
	operator, approver, viewer := r.signIn(t, access.Operator), r.signIn(t, access.Approver), r.signIn(t, access.Viewer)
	const list = "/compensations?state=all"
	lacks(t, r.get(t, viewer, list), `action="/compensations/stop"`)
	contains(t, r.get(t, operator, list), http.StatusOK, `action="/compensations/stop"`)
	contains(t, r.post(t, operator, "/compensations/stop", url.Values{}), http.StatusUnprocessableEntity, "Enter a reason")
	why := url.Values{"reason": {"it credits <twice>"}}
	for _, c := range []struct {
		who    *http.Client
		path   string
		status int
	}{
		{viewer, "stop", http.StatusForbidden}, {approver, "allow", http.StatusConflict},
		{operator, "stop", http.StatusSeeOther}, {operator, "stop", http.StatusConflict}, {operator, "allow", http.StatusForbidden},
	} {
		if got := r.post(t, c.who, "/compensations/"+c.path, why); got.status != c.status {
			t.Errorf("%s: %d, want %d", c.path, got.status, c.status)
		}
	}
	says(t, r.get(t, viewer, list), "All scheduled compensations are stopped by operator", "it credits <twice>")
	lacks(t, r.get(t, operator, list), `action="/compensations/allow"`)
	contains(t, r.get(t, approver, list), http.StatusOK, `action="/compensations/allow"`)
	if got := r.post(t, approver, "/compensations/allow", why); got.status != http.StatusSeeOther {
		t.Errorf("allow: %d", got.status)
	}
	lacks(t, r.get(t, viewer, list), "are stopped by")

	for _, state := range []string{"all", "needs_attention"} {
		page := r.get(t, operator, "/compensations?state="+state)
		contains(t, page, http.StatusOK, `id="dead-rows"`, "evt-dead", "too &lt;large&gt;", `/retry"`)
		lacks(t, page, "evt-behind")
	}
	lacks(t, r.get(t, operator, "/compensations?state=verified"), "evt-dead")
	page := r.get(t, viewer, list)
	contains(t, page, http.StatusOK, "evt-dead")
	lacks(t, page, `/retry"`)
}

// What nobody knows is said to be unknown: with a probe it can be checked, without
// one it can only be tried again.
func TestUnknownOutcomeIsShown(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	r.define(t, probedAction)
	r.consumed(t, 2, "20")
	for path, status := range map[string]int{"/credit/m-20-1": cut, "/probed/m-20-2": cut, "/was/m-20-2": http.StatusServiceUnavailable} {
		r.answers(path, status)
	}
	blind, probed := r.approved(t, "call", "m-20-1"), r.approved(t, "probed", "m-20-2")
	r.work(t)
	operator := r.signIn(t, access.Operator)
	for _, c := range []*compensate.Compensation{blind, probed} {
		r.comesTo(t, c.ID, compensate.NeedsAttention)
		page := r.get(t, operator, fmt.Sprintf("/compensations/%d", c.ID))
		says(t, page, "Outcome unknown", "It may have worked. Check before you retry.")
		contains(t, page, http.StatusOK, fmt.Sprintf("/compensations/%d/retry", c.ID))
	}
	check := "/compensations/%d/check"
	lacks(t, r.get(t, operator, fmt.Sprintf("/compensations/%d", blind.ID)), fmt.Sprintf(check, blind.ID))
	contains(t, r.get(t, operator, fmt.Sprintf("/compensations/%d", probed.ID)), http.StatusOK, fmt.Sprintf(check, probed.ID))
	r.exec(t, "INSERT INTO effect VALUES ('m-20-2', 20, 'CNY', '2026-11-30 12:06Z')") // it had worked
	r.answers("/was/m-20-2", http.StatusOK)
	if got := r.post(t, operator, fmt.Sprintf(check, probed.ID), url.Values{"reason": {"the service is back"}}); got.status != http.StatusSeeOther {
		t.Fatalf("check: %d", got.status)
	}
	r.comesTo(t, probed.ID, compensate.Verified)
	sent := 0
	for _, path := range r.calls() {
		if path == "/probed/m-20-2" {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("sent %d times", sent)
	}
}

// calls are the paths that were called.
func (r *repairs) calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.called...)
}

// An approval that comes too late is refused, and the page says so.
func TestExpiredApprovalIsRefused(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	c := r.asked(t, "credit", "e-2")
	if _, err := r.pool.Exec(t.Context(), "UPDATE compensation SET expires_at = now() - interval '1 second' WHERE id = $1", c.ID); err != nil {
		t.Fatal(err)
	}
	approver, at := r.signIn(t, access.Approver), fmt.Sprintf("/compensations/%d", c.ID)
	got := r.post(t, approver, at+"/approve", url.Values{"hash": {fmt.Sprintf("%x", c.Hash)}, "reason": {"right"}})
	contains(t, got, http.StatusConflict, "The proposal has expired")
	page := r.get(t, approver, at)
	says(t, page, "Expired", "Nobody approved or started it in time. Nothing was executed. Propose it anew.")
	lacks(t, page, `id="decide-reason"`, at+"/cancel")
	if waits := plainText(r.get(t, approver, "/approvals")); !strings.Contains(waits, "Nothing waits for you.") {
		t.Errorf("still to approve: %s", waits)
	}
}

// A step that stopped a saga is left out when somebody else agrees, wherever the
// saga stands among those that need attention.
func TestSkipIsApprovedByAnother(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	for _, path := range []string{"/settle/e-2", "/release/e-2"} {
		r.answers(path, http.StatusUnprocessableEntity)
	}
	c := r.approved(t, "take-back", "e-2")
	r.work(t)
	r.comesTo(t, c.ID, compensate.NeedsAttention)
	operator, approver, viewer := r.signIn(t, access.Operator), r.signIn(t, access.Approver), r.signIn(t, access.Viewer)
	saga := fmt.Sprintf("/sagas/%d", c.ID)
	step, task := saga+"/steps/compensate/0/", fmt.Sprintf("C-%d: skip reserve", c.ID)
	lacks(t, r.get(t, approver, "/approvals"), task)
	contains(t, r.post(t, operator, step+"skip", url.Values{}), http.StatusUnprocessableEntity, "Enter a reason")
	if got := r.post(t, operator, step+"skip", url.Values{"reason": {"released by hand"}}); got.status != http.StatusSeeOther {
		t.Fatalf("skip: %d", got.status)
	}
	says(t, r.get(t, operator, "/approvals"), "Nothing waits for you.", "You asked, others decide", task)
	says(t, r.get(t, approver, "/approvals"), "Steps to skip", task, "operator asked to skip it: released by hand")
	lacks(t, r.get(t, viewer, "/approvals"), task)
	lacks(t, r.get(t, operator, saga), step+"approve-skip")
	if got := r.post(t, operator, step+"approve-skip", url.Values{"reason": {"so it is"}}); got.status != http.StatusForbidden {
		t.Errorf("the maker agrees: %d", got.status)
	}
	contains(t, r.get(t, approver, saga), http.StatusOK, step+"approve-skip")
	if got := r.post(t, approver, step+"approve-skip", url.Values{"reason": {"so it is"}}); got.status != http.StatusSeeOther {
		t.Fatalf("approve-skip: %d", got.status)
	}
	r.comesTo(t, c.ID, compensate.NeedsAttention) // everything is undone
	says(t, r.get(t, viewer, saga), "Skipped by operator, approved by approver: released by hand", "Everything that was done is undone.")
	lacks(t, r.get(t, approver, "/approvals"), task)
}
