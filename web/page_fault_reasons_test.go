package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/testkit"
	"oncemore/web"
)

// A fault says why its letters stay and what helps; an event's letters are found
// with the replays that hold them.
func TestFaultReasonsAndReplaysOfAnEvent(t *testing.T) {
	t.Parallel()
	var judge *dlq.Judge
	s := setupShop(t, func(d *web.Deps) { judge = d.Judge })
	token, operator := s.operator(t), s.signIn(t, access.Operator)
	s.fail(t, "e-1", points)
	s.fail(t, "e-1", legacy)
	letters := s.letters(t, token, 2)
	fault := fmt.Sprintf("/faults/%v", letters["e-1 "+legacy]["fault_id"])
	id := uuid.MustParse(letters["e-1 "+legacy]["id"].(string))
	if _, err := judge.LookAgain(t.Context(), []uuid.UUID{id}, dlq.ToSafe); err != nil {
		t.Fatal(err)
	}
	contains(t, s.get(t, operator, fault), http.StatusOK, "1 of 1 letters: "+legacy+" keeps no records", "console evidence find")
	reasons := s.object(t, token, "GET", "/api/v1"+fault, "")["reasons"].(map[string]any)
	if items := reasons["items"].([]any); reasons["looked_at"] != 1.0 || len(items) != 1 || items[0].(map[string]any)["verdict"] != "unprotected" ||
		items[0].(map[string]any)["letters"] != 1.0 || !strings.Contains(items[0].(map[string]any)["reason"].(string), legacy+" keeps no records") {
		t.Errorf("over the API: %v", reasons)
	}

	if r := s.get(t, operator, "/search?q=e-1"); r.status != http.StatusSeeOther || r.header.Get("Location") != "/letters?event_id=e-1" {
		t.Errorf("before a replay: %d to %q", r.status, r.header.Get("Location"))
	}
	plan := s.object(t, token, "POST", "/api/v1/replays", planBody(letters["e-1 "+points]["id"], ""))
	path := fmt.Sprintf("/replays/%v", plan["id"])
	contains(t, s.get(t, operator, "/search?q=e-1"), http.StatusOK, `href="`+path+`?tab=all#items"`, points+".replay", "Waiting", fmt.Sprint(letters["e-1 "+legacy]["id"]))
	s.consume(t)
	s.ok(t, token, "POST", "/api/v1"+path+"/start", "")
	testkit.Eventually(t, 60*time.Second, func() bool {
		return s.object(t, token, "GET", "/api/v1"+path, "")["state"] == "done"
	}, "the replay is done")
	contains(t, s.get(t, s.signIn(t, access.Viewer), "/search?q=e-1"), http.StatusOK, "R-"+fmt.Sprint(plan["id"]), "Applied")
}
