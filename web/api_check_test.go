package web_test

import (
	"fmt"
	"testing"
	"time"

	"oncemore/internal/access"
	"oncemore/internal/check"
)

func TestChecksOverTheAPI(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.token(t, access.Viewer)
	if got := s.items(t, token, "/api/v1/checks"); len(got) != 0 {
		t.Errorf("findings before the first run: %v", got)
	}
	now := time.Now()
	err := check.NewStore(s.pool).Save(t.Context(), []check.Finding{
		{Code: "console.reached", Area: "console", Subject: "console", Severity: check.Passed, Sentence: check.Text{En: "Fine."}, CheckedAt: now},
		{Code: "topic.missing", Area: "topic", Subject: "topic/order.paid", Severity: check.Critical, Sentence: check.Text{En: "It is missing."},
			Mend: check.Text{En: "Make it."}, Evidence: []string{"no such topic"}, CheckedAt: now},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := s.items(t, token, "/api/v1/checks")
	if len(got) != 2 || got[0]["severity"] != "critical" || got[0]["mend"] != "Make it." || got[0]["meaning"] != nil || got[1]["severity"] != "passed" {
		t.Errorf("findings %v", got)
	}
	operator := s.token(t, access.Operator)
	body := func(reason string, until time.Time) string {
		return fmt.Sprintf(`{"code":"topic.missing","subject":"topic/order.paid","until":%q,"reason":%q}`, until.UTC().Format(time.RFC3339), reason)
	}
	for _, c := range []struct {
		token, path, body string
		status            int
	}{
		{token, "/api/v1/checks/mute", body("known", now.Add(time.Hour)), 403}, {token, "/api/v1/checks/run", "", 403}, {operator, "/api/v1/checks/run", "", 404},
		{operator, "/api/v1/checks/mute", body("", now.Add(time.Hour)), 422}, {operator, "/api/v1/checks/mute", body("known", now.Add(-time.Hour)), 422},
		{operator, "/api/v1/checks/unmute", `{"code":"topic.missing","subject":"topic/order.paid"}`, 409}, {operator, "/api/v1/checks/mute", body("known", now.Add(time.Hour)), 200},
	} {
		if r := s.checked(t, c.token, "POST", c.path, c.body); r.status != c.status {
			t.Errorf("%s %s: %d, want %d: %s", c.path, c.body, r.status, c.status, r.body)
		}
	}
	if mute, ok := s.items(t, token, "/api/v1/checks")[0]["mute"].(map[string]any); !ok || mute["by"] != "operator" || mute["reason"] != "known" {
		t.Errorf("mute %v", mute)
	}
	if r := s.checked(t, operator, "POST", "/api/v1/checks/unmute", `{"code":"topic.missing","subject":"topic/order.paid"}`); r.status != 200 {
		t.Errorf("unmute: %d %s", r.status, r.body)
	}
}
