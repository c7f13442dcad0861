package web_test

import (
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
}
