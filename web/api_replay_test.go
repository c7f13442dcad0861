package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/testkit"
)

func planBody(id any, more string) string {
	return fmt.Sprintf(`{"letter_ids":[%q],"target":"group","reason":"repaired"%s}`, id, more)
}

func TestReplayFromDryRunToOutcome(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	s.consume(t)
	s.fail(t, "payment-1", points)
	id := s.letters(t, token, 1)["payment-1 "+points]["id"]

	dry := s.ok(t, token, "POST", "/api/v1/replays", planBody(id, `,"dry_run":true`))
	if dry.status != http.StatusOK || strings.Contains(dry.body, `"id":`) || !strings.Contains(dry.body, `"verdicts":{"safe":1}`) {
		t.Errorf("dry run: %d %s", dry.status, dry.body)
	}
	if got := len(s.items(t, token, "/api/v1/replays")); got != 0 {
		t.Errorf("a dry run kept %d replays", got)
	}
	made := s.checked(t, token, "POST", "/api/v1/replays", planBody(id, ""))
	if made.status != http.StatusCreated || made.header.Get("Location") != "/api/v1/replays/1" || !strings.Contains(made.body, `"state":"planned"`) {
		t.Fatalf("plan: %d to %q: %s", made.status, made.header.Get("Location"), made.body)
	}
	s.ok(t, token, "POST", "/api/v1/replays/1/start", "")
	var replay map[string]any
	testkit.Eventually(t, 60*time.Second, func() bool {
		replay = s.object(t, token, "GET", "/api/v1/replays/1", "")
		return replay["state"] == "done"
	}, "the replay is done")
	if outcomes := replay["outcomes"].(map[string]any); replay["sent"] != 1.0 || replay["total"] != 1.0 || outcomes["applied"] != 1.0 {
		t.Errorf("the replay ends as %v", replay)
	}
	items := s.items(t, token, "/api/v1/replays/1/items")
	if len(items) != 1 || items[0]["event_id"] != "payment-1" || items[0]["sent_at"] == nil {
		t.Errorf("items %v", items)
	}
	letter := s.object(t, token, "GET", fmt.Sprintf("/api/v1/letters/%s", id), "")
	if outcomes := letter["outcomes"].([]any); letter["state"] != "resolved" || len(outcomes) != 1 || outcomes[0].(map[string]any)["outcome"] != "applied" {
		t.Errorf("the letter afterwards: %v, %v", letter["state"], letter["outcomes"])
	}
	if got := s.audited(t, "replay.started"); len(got) != 1 || got[0] != "operator replay.started replay/1" {
		t.Errorf("audit of the start: %v", got)
	}
}

func TestOneClickOverTheAPI(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	s.fail(t, "payment-1", points)
	s.fail(t, "payment-2", points)
	s.fail(t, "coupon-1", legacy)
	s.fail(t, "", points)
	s.letters(t, token, 4)
	plan := s.object(t, token, "POST", "/api/v1/replays", `{"filter":{},"start":"safe","reason":"repaired"}`)
	if plan["total"] != 2.0 || len(plan["refused"].([]any)) != 2 || plan["state"] == "planned" {
		t.Errorf("one click: %v", plan)
	}
	if verdicts := plan["verdicts"].(map[string]any); verdicts["safe"] != 2.0 || verdicts["unprotected"] != 1.0 || verdicts["no_event_id"] != 1.0 {
		t.Errorf("verdicts %v", verdicts)
	}
	if got := len(s.items(t, token, fmt.Sprintf("/api/v1/replays/%v/refused", plan["id"]))); got != 2 {
		t.Errorf("%d refusals listed, want 2", got)
	}
}

// A second click, or a client that did not hear the answer, is one replay.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	s.fail(t, "payment-1", points)
	id := s.letters(t, token, 1)["payment-1 "+points]["id"]
	ask := func(token, key, body string) string {
		req := s.request(t, http.MethodPost, "/api/v1/replays", body)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
		r := s.do(t, http.DefaultClient, req)
		if r.status != http.StatusCreated {
			return fmt.Sprint(r.status)
		}
		return r.header.Get("Location")
	}
	plan := func(token, key string) string { return ask(token, key, planBody(id, "")) }
	first := plan(token, "k1")
	if again := plan(token, "k1"); again != first {
		t.Errorf("the same key made %s, then %s", first, again)
	}
	if got := ask(token, "k1", strings.Replace(planBody(id, ""), `"group"`, `"origin"`, 1)); got != "422" {
		t.Errorf("the same key with another body: %s, want 422", got)
	}
	if other := plan(token, "k2"); other == first {
		t.Errorf("another key gives the same replay %s", other)
	}
	if theirs := plan(s.token(t, access.Admin), "k1"); theirs == first {
		t.Errorf("somebody else's key gives the replay %s", theirs)
	}
	for _, bad := range []string{strings.Repeat("k", 201), "with space", "ké"} {
		if got := plan(token, bad); got != "400" {
			t.Errorf("key %q: %s, want 400", bad, got)
		}
	}
}

func TestFourEyes(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	operator, approver, admin := s.operator(t), s.token(t, access.Approver), s.token(t, access.Admin)
	s.fail(t, "coupon-1", legacy)
	id := s.letters(t, operator, 1)["coupon-1 "+legacy]["id"]
	override := fmt.Sprintf(`{"letter_ids":[%q],"target":"origin","reason":"r","overrides":[{"letter_id":%q,"consumer_group":%q,"verdict":"unprotected","reason":"seen"}]}`, id, id, legacy)
	for who, token := range map[string]string{"operator": operator, "admin": admin} {
		plan := s.object(t, token, "POST", "/api/v1/replays", override)
		if plan["state"] != "awaiting_approval" {
			t.Fatalf("%s: a plan with an override is %v", who, plan["state"])
		}
		path := fmt.Sprintf("/api/v1/replays/%v", plan["id"])
		if r := s.checked(t, token, "POST", path+"/approve", `{"reason":"mine"}`); r.status != http.StatusForbidden {
			t.Errorf("%s approves their own: %d %s", who, r.status, r.body)
		}
		if r := s.checked(t, token, "POST", path+"/start", ""); r.status != http.StatusConflict {
			t.Errorf("%s starts without approval: %d %s", who, r.status, r.body)
		}
		if r := s.checked(t, approver, "POST", path+"/approve", ""); r.status != http.StatusUnprocessableEntity {
			t.Errorf("approve without a reason: %d %s", r.status, r.body)
		}
		if got := s.object(t, approver, "POST", path+"/approve", `{"reason":"agreed"}`); got["state"] != "planned" || got["approved_by"] != "approver" {
			t.Errorf("approved: %v", got)
		}
		if r := s.checked(t, approver, "POST", path+"/reject", `{"reason":"after all"}`); r.status != http.StatusConflict {
			t.Errorf("rejected after the approval: %d %s", r.status, r.body)
		}
		s.object(t, token, "POST", path+"/cancel", `{"reason":"next"}`)
	}
}

// Whoever is second is told who was first.
func TestConflictsNameTheOther(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	operator, admin := s.operator(t), s.token(t, access.Admin)
	s.fail(t, "payment-1", points)
	id := s.letters(t, operator, 1)["payment-1 "+points]["id"]
	first := s.object(t, operator, "POST", "/api/v1/replays", planBody(id, ""))
	second := s.object(t, admin, "POST", "/api/v1/replays", planBody(id, ""))
	s.ok(t, operator, "POST", fmt.Sprintf("/api/v1/replays/%v/start", first["id"]), "")
	testkit.Eventually(t, 30*time.Second, func() bool {
		return s.object(t, operator, "GET", fmt.Sprintf("/api/v1/replays/%v", first["id"]), "")["sent"] == 1.0
	}, "the first replay sends")
	r := s.checked(t, admin, "POST", fmt.Sprintf("/api/v1/replays/%v/start", second["id"]), "")
	if r.status == http.StatusConflict {
		if p := r.problem(t); p["replay_id"] != first["id"] || p["by"] != "operator" {
			t.Errorf("the second start is told %s", r.body)
		}
		return
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		got := s.object(t, admin, "GET", fmt.Sprintf("/api/v1/replays/%v", second["id"]), "")
		return got["state"] == "done" && got["sent"] == 0.0 && got["left_out"] == 1.0
	}, "the second replay leaves the letter out")
}

func TestCommandsOnWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.token(t, access.Admin)
	for _, act := range []string{"start", "approve", "reject", "pause", "resume", "cancel"} {
		if r := s.checked(t, token, "POST", "/api/v1/replays/999/"+act, `{"reason":"x"}`); r.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", act, r.status, r.body)
		}
	}
	absent := "01932f00-0000-7000-8000-000000000000"
	for _, path := range []string{"letters/" + absent, "letters/" + absent + "/body", "letters/" + absent + "/verdicts", "faults/999", "replays/999", "replays/999/items", "replays/999/refused"} {
		if r := s.checked(t, token, "GET", "/api/v1/"+path, ""); r.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	r := s.checked(t, token, "POST", "/api/v1/replays", planBody(absent, ""))
	if p := r.problem(t); r.status != http.StatusNotFound || fmt.Sprint(p["letter_ids"]) != "["+absent+"]" {
		t.Errorf("a plan of a letter that is not there: %d %s", r.status, r.body)
	}
}

func TestAReplayTakesEveryFilterOfTheList(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	s.fail(t, "payment-1", points)
	s.fail(t, "payment-2", points)
	operator := s.token(t, access.Operator)
	s.letters(t, operator, 2)
	if n, err := dlq.IndexTokens(t.Context(), s.pool, -time.Minute); err != nil || n != 2 {
		t.Fatalf("indexed %d, %v", n, err)
	}
	plan := func(filter string, status int) map[string]any {
		t.Helper()
		var out map[string]any
		read(t, s.checked(t, operator, "POST", "/api/v1/replays", `{"target":"group","reason":"repaired","dry_run":true,"filter":`+filter+`}`), status, &out)
		return out
	}
	for _, filter := range []string{`{"text":"PAYMENT-2","text_case":"any","within":"1h"}`, `{"q":"event_id:payment-2"}`, `{"event_id":"payment-2","owner":"none"}`} {
		if got := plan(filter, 200)["letters"]; got != 1.0 {
			t.Errorf("%s plans %v letters, want one", filter, got)
		}
	}
	for _, filter := range []string{`{"attempts_min":1000}`, `{"older_than":"1h"}`, `{"verdict":"collides"}`, `{"owner":"me"}`} {
		if got := plan(filter, 200)["letters"]; got != 0.0 {
			t.Errorf("%s plans %v letters, want none", filter, got)
		}
	}
	plan(`{"text":"x"}`, 400)
	plan(`{"verdict":"nice"}`, 400)
}
