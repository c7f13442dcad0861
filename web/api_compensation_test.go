package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"oncemore/compensate"
	"oncemore/internal/access"
)

type proposed struct {
	IDs    []int64
	Totals []struct{ Currency, Amount string }
	Items  []struct {
		BreakID int64 `json:"break_id"`
		Hash    string
		Problem *string
		Counted []struct{ Rows, Expected int64 }
	}
}

type shownCompensation struct {
	ID        int64
	State     string
	Hash      string
	Approvals int
	Why       *string
	Tried     []struct {
		Outcome *string
		Answer  map[string]any
	}
	Steps   []struct{ Op, Step, State string }
	Present *struct{ Changed bool }
}

// A missing credit is tried, proposed, approved by somebody else, executed and
// verified: each answer as the document says.
func TestCompensationThroughTheAPI(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	operator, approver, viewer := r.token(t, access.Operator), r.token(t, access.Approver), r.token(t, access.Viewer)
	id := r.missing(t, "e-2")
	body := fmt.Sprintf(`{"action": "credit", "break_ids": [%d], "reason": "the customer called"`, id)
	read(t, r.checked(t, viewer, "POST", "/api/v1/compensations", body+"}"), http.StatusForbidden, nil)
	var p proposed
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations", body+`, "dry_run": true}`), http.StatusOK, &p)
	if len(p.IDs) != 0 || len(p.Items) != 1 || p.Items[0].Problem != nil || p.Items[0].Counted[0].Rows != 1 || p.Totals[0].Amount != "7.5" {
		t.Fatalf("dry run %+v", p)
	}
	tried := p.Items[0].Hash
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations", `{"action": "credit", "filter": {"event_id": "e-2"}, "reason": "the customer called"}`), http.StatusCreated, &p)
	one := fmt.Sprintf("/api/v1/compensations/%d", p.IDs[0])
	var c shownCompensation
	read(t, r.checked(t, viewer, "GET", one, ""), http.StatusOK, &c)
	if c.State != "awaiting_approval" || c.Present == nil || c.Present.Changed || c.Hash != tried {
		t.Errorf("proposed: %+v", c)
	}
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations", body+"}"), http.StatusConflict, nil)
	approve := fmt.Sprintf(`{"hash": %q, "reason": "right"}`, c.Hash)
	read(t, r.checked(t, operator, "POST", one+"/approve", approve), http.StatusForbidden, nil)
	read(t, r.checked(t, approver, "POST", one+"/approve", strings.Replace(approve, "right", "", 1)), http.StatusUnprocessableEntity, nil)
	read(t, r.checked(t, approver, "POST", one+"/approve", `{"hash": "`+strings.Repeat("0", 64)+`", "reason": "right"}`), http.StatusConflict, nil)
	read(t, r.checked(t, approver, "POST", one+"/approve", approve), http.StatusOK, &c)
	if c.State != "approved" || c.Approvals != 1 {
		t.Errorf("approved: %+v", c)
	}
	read(t, r.checked(t, operator, "POST", one+"/pause", `{"reason": "wait"}`), http.StatusOK, &c)
	if c.State != "paused" {
		t.Errorf("paused: %s", c.State)
	}
	read(t, r.checked(t, operator, "POST", one+"/resume", `{"reason": "go on"}`), http.StatusOK, nil)
	r.work(t)
	r.comesTo(t, c.ID, compensate.Verified)
	read(t, r.checked(t, viewer, "GET", one, ""), http.StatusOK, &c)
	if c.State != "verified" || len(c.Tried) != 1 || *c.Tried[0].Outcome != "done" || len(c.Steps) != 1 || c.Present != nil {
		t.Errorf("verified: %+v", c)
	}
	for _, list := range []string{"compensations?state=verified&action=credit&currency=CNY&amount_min=7.50&asked_by=operator&job=points&limit=5", "sagas", "actions", "actions/credit",
		fmt.Sprintf("compensations?break_id=%d&event_id=e-2&older_than=1h", id)} {
		read(t, r.checked(t, viewer, "GET", "/api/v1/"+list, ""), http.StatusOK, nil)
	}
	read(t, r.checked(t, operator, "POST", one+"/retry", `{"reason": "again"}`), http.StatusConflict, nil)
	read(t, r.checked(t, operator, "POST", one+"/check", `{"reason": "really?"}`), http.StatusConflict, nil)
	var kill struct {
		Stopped bool
		By      *string `json:"stopped_by"`
	}
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations/stop", `{}`), http.StatusUnprocessableEntity, nil)
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations/stop", `{"reason": "the service credits twice"}`), http.StatusOK, &kill)
	if !kill.Stopped || *kill.By != "operator" {
		t.Errorf("switch %+v", kill)
	}
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations/allow", `{"reason": "mended"}`), http.StatusForbidden, nil)
	read(t, r.checked(t, approver, "POST", "/api/v1/compensations/allow", `{"reason": "mended"}`), http.StatusOK, nil)
	read(t, r.checked(t, viewer, "GET", "/api/v1/compensations/switch", ""), http.StatusOK, &kill)
	if kill.Stopped {
		t.Error("it is still stopped")
	}
}

// Many are approved at once, each as it was shown; a saga stops, its step is
// skipped by two people.
func TestBatchesAndSagasThroughTheAPI(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	operator, approver := r.token(t, access.Operator), r.token(t, access.Approver)
	r.consumed(t, 5, "20")
	var p proposed
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations", `{"action": "credit", "filter": {"job": "points", "type": "missing_effect"}, "reason": "closing"}`), http.StatusCreated, &p)
	if len(p.IDs) != 6 || p.Totals[0].Amount != "107.5" {
		t.Fatalf("proposed %+v", p)
	}
	var batch struct {
		Totals []struct{ Amount string }
		Items  []struct {
			ID           int64
			Hash, Amount string
		}
		Own     []int64
		Results []struct{ Problem *string }
	}
	read(t, r.checked(t, approver, "POST", "/api/v1/compensations/approve", `{"filter": {"state": "awaiting_approval"}, "dry_run": true}`), http.StatusOK, &batch)
	if len(batch.Items) != 6 || batch.Totals[0].Amount != "107.5" || batch.Items[0].Amount != "20" {
		t.Fatalf("batch %+v", batch)
	}
	var seen []string
	for i, item := range batch.Items {
		if i == 0 {
			item.Hash = strings.Repeat("0", 64)
		}
		seen = append(seen, fmt.Sprintf(`{"id": %d, "hash": %q}`, item.ID, item.Hash))
	}
	body := fmt.Sprintf(`{"approve": [%s], "reason": "closing"}`, strings.Join(seen, ","))
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations/approve", body), http.StatusForbidden, nil)
	read(t, r.checked(t, approver, "POST", "/api/v1/compensations/approve", body), http.StatusOK, &batch)
	if len(batch.Results) != 6 || batch.Results[0].Problem == nil || batch.Results[5].Problem != nil {
		t.Errorf("results %+v", batch.Results)
	}

	r.consumed(t, 1, "3")
	r.answers("/settle/m-3-1", http.StatusUnprocessableEntity)
	r.answers("/release/m-3-1", http.StatusUnprocessableEntity)
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations", `{"action": "take-back", "filter": {"event_id": "m-3-1"}, "reason": "too much"}`), http.StatusCreated, &p)
	one := fmt.Sprintf("/api/v1/sagas/%d", p.IDs[0])
	var c shownCompensation
	read(t, r.checked(t, operator, "GET", one, ""), http.StatusOK, &c)
	read(t, r.checked(t, approver, "POST", fmt.Sprintf("/api/v1/compensations/%d/approve", c.ID), fmt.Sprintf(`{"hash": %q, "reason": "right"}`, c.Hash)), http.StatusOK, nil)
	r.work(t)
	r.comesTo(t, c.ID, compensate.NeedsAttention)
	read(t, r.checked(t, operator, "GET", one, ""), http.StatusOK, &c)
	if last := c.Steps[len(c.Steps)-1]; last.Op != "compensate" || last.Step != "reserve" || last.State != "failed" {
		t.Fatalf("steps %+v", c.Steps)
	}
	skip := one + "/steps/compensate/0/"
	read(t, r.checked(t, operator, "POST", one+"/steps/forward/9/retry", `{"reason": "x"}`), http.StatusConflict, nil)
	read(t, r.checked(t, operator, "POST", skip+"skip", `{"reason": "it was released by hand"}`), http.StatusOK, nil)
	read(t, r.checked(t, operator, "POST", skip+"approve-skip", `{"reason": "so it is"}`), http.StatusForbidden, nil)
	r.answers("/release/m-3-1", http.StatusCreated)
	read(t, r.checked(t, operator, "POST", skip+"retry", `{"reason": "the service is back"}`), http.StatusOK, nil)
	testedUndone(t, r, c.ID)
}

// testedUndone waits until what was done is undone.
func testedUndone(t *testing.T, r *repairs, id int64) {
	t.Helper()
	r.comesTo(t, id, compensate.NeedsAttention)
	steps, err := r.Steps(t.Context(), id)
	if err != nil || steps[len(steps)-1].State != compensate.StepDone {
		t.Errorf("steps %+v, %v", steps, err)
	}
}

func TestCompensationRefusesBadInput(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	operator, approver := r.token(t, access.Operator), r.token(t, access.Approver)
	for _, c := range []struct {
		token, method, path, body string
		status                    int
	}{
		{operator, "GET", "compensations/99", "", 404},
		{operator, "GET", "compensations?state=lost", "", 400},
		{operator, "GET", "compensations?sort=amount", "", 400},
		{operator, "GET", "compensations?letter_id=x", "", 400},
		{operator, "GET", "compensations?amount_min=much", "", 400},
		{operator, "GET", "actions/none", "", 404},
		{operator, "POST", "compensations", `{"action": "credit"}`, 422},
		{operator, "POST", "compensations", `{"break_ids": [1]}`, 422},
		{operator, "POST", "compensations", `{"action": "credit", "break_ids": [1], "filter": {}}`, 422},
		{operator, "POST", "compensations", `{"action": "credit", "filter": {"colour": "blue"}, "reason": "x"}`, 400},
		{operator, "POST", "compensations", `{"action": "credit", "break_ids": [99], "reason": "x"}`, 404},
		{operator, "POST", "compensations", `{"action": "none", "break_ids": [1], "reason": "x"}`, 404},
		{operator, "POST", "compensations", `{"action": "credit", "break_ids": [1]}`, 422},
		{operator, "POST", "compensations", `{"action": "release", "break_ids": [1], "dry_run": 1}`, 400},
		{approver, "POST", "compensations/approve", `{"reason": "x"}`, 422},
		{approver, "POST", "compensations/approve", `{"approve": [{"id": 1, "hash": "zz"}], "reason": "x"}`, 422},
		{approver, "POST", "compensations/approve", `{"dry_run": true}`, 422},
		{approver, "POST", "compensations/99/reject", `{"reason": "x"}`, 404},
		{operator, "POST", "sagas/1/steps/sideways/0/retry", `{"reason": "x"}`, 400},
		{operator, "POST", "sagas/1/steps/forward/x/retry", `{"reason": "x"}`, 400},
		{approver, "POST", "actions/credit/trust", `{}`, 422},
	} {
		got := r.call(t, c.token, c.method, "/api/v1/"+c.path, c.body)
		if got.status != c.status {
			t.Errorf("%s %s %s: %d, want %d: %s", c.method, c.path, c.body, got.status, c.status, got.body)
		}
		got.problem(t)
	}
}
