package web_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"oncemore/internal/access"
	"oncemore/internal/testkit"
)

type shownSelection struct {
	ID         int64
	State      string
	Total      int
	Proposed   int
	PassedOver int `json:"passed_over"`
	Totals     []struct{ Currency, Amount string }
}

// A search is frozen, proposed step by step, and says what was passed over; the
// same key makes no second one.
func TestSelectionThroughTheAPI(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	operator, viewer := r.token(t, access.Operator), r.token(t, access.Viewer)
	first := r.missing(t, "e-2")
	r.consumed(t, 2, "7.25")
	var p proposed
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations", fmt.Sprintf(`{"action": "credit", "break_ids": [%d], "reason": "first"}`, first)), http.StatusCreated, &p)
	const path = "/api/v1/compensations/selections"
	const search = `{"action": "credit", "filter": {"type": "missing_effect"}, "reason": "closing"}`
	read(t, r.checked(t, viewer, "POST", path, search), http.StatusForbidden, nil)
	read(t, r.checked(t, operator, "POST", path, `{"action": "credit", "reason": "closing"}`), http.StatusUnprocessableEntity, nil)
	read(t, r.checked(t, operator, "POST", path, `{"action": "credit", "filter": {"type": "missing_effect"}}`), http.StatusUnprocessableEntity, nil)
	var s shownSelection
	read(t, r.checked(t, operator, "POST", path, search), http.StatusAccepted, &s)
	one := fmt.Sprintf("%s/%d", path, s.ID)
	r.work(t)
	testkit.Eventually(t, 30*time.Second, func() bool {
		read(t, r.checked(t, viewer, "GET", one, ""), http.StatusOK, &s)
		return s.State == "done"
	}, "the selection is not proposed")
	if s.Total != 3 || s.Proposed != 2 || s.PassedOver != 1 || len(s.Totals) != 1 || s.Totals[0].Amount != "14.5" {
		t.Errorf("selection %+v", s)
	}
	var passed struct {
		Items []struct {
			BreakID int64 `json:"break_id"`
			Why     string
		}
	}
	read(t, r.checked(t, viewer, "GET", one+"/passed-over", ""), http.StatusOK, &passed)
	if len(passed.Items) != 1 || passed.Items[0].BreakID != first || passed.Items[0].Why == "" {
		t.Errorf("passed over %+v", passed)
	}
	read(t, r.checked(t, viewer, "GET", path+"/99", ""), http.StatusNotFound, nil)
}

// The kill switch says who threw it, when and why.
func TestSwitchThroughTheAPI(t *testing.T) {
	t.Parallel()
	r := setupRepairs(t)
	operator, approver := r.token(t, access.Operator), r.token(t, access.Approver)
	var now struct {
		Stopped   bool
		StoppedBy *string `json:"stopped_by"`
		Reason    *string
	}
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations/stop", `{}`), http.StatusUnprocessableEntity, nil)
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations/stop", `{"reason": "the ledger is down"}`), http.StatusOK, &now)
	if !now.Stopped || *now.StoppedBy != "operator" || *now.Reason != "the ledger is down" {
		t.Errorf("stopped: %+v", now)
	}
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations/stop", `{"reason": "again"}`), http.StatusConflict, nil)
	read(t, r.checked(t, operator, "POST", "/api/v1/compensations/allow", `{"reason": "it is back"}`), http.StatusForbidden, nil)
	read(t, r.checked(t, approver, "POST", "/api/v1/compensations/allow", `{"reason": "it is back"}`), http.StatusOK, nil)
	read(t, r.checked(t, operator, "GET", "/api/v1/compensations/switch", ""), http.StatusOK, &now)
	if now.Stopped || now.StoppedBy != nil {
		t.Errorf("allowed: %+v", now)
	}
}
