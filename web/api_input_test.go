package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"oncemore/internal/access"
)

const someID = "01932f00-0000-7000-8000-000000000000"

func TestBadInputIsRefusedByName(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.token(t, access.Admin)
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"GET", "letters?colour=blue", "", 400, "colour"},
		{"GET", "letters?cursor=%00zz", "", 400, "cursor"},
		{"GET", "letters?cursor=zz", "", 400, "cursor"},
		{"GET", "letters?limit=0", "", 400, "limit"},
		{"GET", "letters?limit=201", "", 400, "limit"},
		{"GET", "letters?limit=1e2", "", 400, "limit"},
		{"GET", "letters?limit=5&limit=5", "", 400, "limit"},
		{"GET", "letters?state=lost", "", 400, "state"},
		{"GET", "letters?state=Open", "", 400, "state"},
		{"GET", "letters?fault_id=x", "", 400, "fault_id"},
		{"GET", "letters?fault_id=-1", "", 400, "fault_id"},
		{"GET", "letters?fault_id=99999999999999999999", "", 400, "fault_id"},
		{"GET", "letters?since=yesterday", "", 400, "since"},
		{"GET", "letters?since=2026-11-30", "", 400, "since"},
		{"GET", "letters?until=0000-01-01T00:00:00Z", "", 400, "until"},
		{"GET", "letters?event_id=a%00b", "", 400, "event_id"},
		{"GET", "letters?event_id=%ff", "", 400, "event_id"},
		{"GET", "letters?event_id=" + strings.Repeat("x", 2001), "", 400, "event_id"},
		{"GET", "letters?%zz", "", 400, "query"},
		{"GET", "letters?a;b", "", 400, "query"},
		{"GET", "letters/abc", "", 400, "id"},
		{"GET", "letters/%7B" + someID + "%7D", "", 400, "id"},
		{"GET", "letters/01932f00000070008000000000000000", "", 400, "id"},
		{"GET", "letters/" + someID + "?expand=1", "", 400, "expand"},
		{"GET", "letters/" + someID + "/verdicts?target=nowhere", "", 400, "target"},
		{"GET", "faults?sort=age", "", 400, "sort"},
		{"GET", "faults?state=x", "", 400, "state"},
		{"GET", "faults?cursor=x", "", 400, "cursor"},
		{"GET", "faults/0", "", 400, "id"},
		{"GET", "faults/1.0", "", 400, "id"},
		{"GET", "faults/99999999999", "", 400, "id"},
		{"GET", "replays?state=x", "", 400, "state"},
		{"GET", "replays?cursor=x", "", 400, "cursor"},
		{"GET", "replays/x", "", 400, "id"},
		{"GET", "audit?cursor=x!", "", 400, "cursor"},
		{"GET", "audit?who=ada", "", 400, "who"},
		{"GET", "sources?x=1", "", 400, "x"},
		{"GET", "consumers?x=1", "", 400, "x"},
		{"POST", "replays", ``, 400, "body"},
		{"POST", "replays", `{`, 400, ""},
		{"POST", "replays", `[]`, 400, "body"},
		{"POST", "replays", `null`, 422, "target"},
		{"POST", "replays", `"x"`, 400, "body"},
		{"POST", "replays", `{"target":"group"} x`, 400, "body"},
		{"POST", "replays", `{"target":"group"}{}`, 400, "body"},
		{"POST", "replays", `{"colour":"blue"}`, 400, "colour"},
		{"POST", "replays", `{"Target":"group"}`, 400, "Target"},
		{"POST", "replays", `{"target":"group","target":"origin"}`, 400, "target"},
		{"POST", "replays", `{"target":"nowhere"}`, 422, "target"},
		{"POST", "replays", `{"target":1}`, 400, "target"},
		{"POST", "replays", `{"target":"group"}`, 422, "letter_ids"},
		{"POST", "replays", `{"target":"group","letter_ids":[]}`, 422, "letter_ids"},
		{"POST", "replays", `{"target":"group","letter_ids":"x"}`, 400, "letter_ids"},
		{"POST", "replays", `{"target":"group","letter_ids":["x"]}`, 400, "letter_ids/0"},
		{"POST", "replays", `{"target":"group","letter_ids":[1]}`, 400, "letter_ids/0"},
		{"POST", "replays", `{"target":"group","letter_ids":["` + someID + `"],"filter":{}}`, 422, "letter_ids"},
		{"POST", "replays", `{"target":"group","filter":{"limit":5}}`, 400, "filter/limit"},
		{"POST", "replays", `{"target":"group","filter":{"cursor":"x"}}`, 400, "filter/cursor"},
		{"POST", "replays", `{"target":"group","filter":{"state":"resolved"}}`, 422, "filter/state"},
		{"POST", "replays", `{"target":"group","filter":{"fault_id":1.5}}`, 400, "filter/fault_id"},
		{"POST", "replays", `{"target":"group","filter":{"fault_id":-1}}`, 400, "filter/fault_id"},
		{"POST", "replays", `{"target":"group","filter":{"fault_id":99999999999}}`, 400, "filter/fault_id"},
		{"POST", "replays", `{"target":"group","filter":{"since":"yesterday"}}`, 400, "filter/since"},
		{"POST", "replays", `{"target":"group","filter":{"event_id":"a\u0000b"}}`, 400, "filter/event_id"},
		{"POST", "replays", "{\"target\":\"group\",\"reason\":\"\xff\"}", 400, ""},
		{"POST", "replays", `{"target":"group","reason":"\ud800"}`, 400, ""},
		{"POST", "replays", `{"target":"group","reason":"` + strings.Repeat("x", 2001) + `"}`, 400, "reason"},
		{"POST", "replays", `{"dry_run":"yes"}`, 400, "dry_run"},
		{"POST", "replays", `{"start":"now","filter":{}}`, 422, "start"},
		{"POST", "replays", `{"start":"safe","target":"group","filter":{}}`, 422, "target"},
		{"POST", "replays", `{"start":"safe","filter":{}}`, 422, "reason"},
		{"POST", "replays", `{"target":"group","filter":{},"overrides":[{"letter_id":"x"}]}`, 400, "overrides/0/letter_id"},
		{"POST", "replays", `{"target":"group","filter":{},"overrides":[{"letter_id":"` + someID + `","verdict":"fine"}]}`, 422, "overrides/0/verdict"},
		{"POST", "replays", `{"target":"group","filter":{},"overrides":[{"letter_id":"` + someID + `","verdict":"expired"}]}`, 422, "overrides/0/reason"},
		{"POST", "replays", `{"target":"group","filter":{},"overrides":{}}`, 400, "overrides"},
		{"POST", "replays?dry_run=1", `{}`, 400, "dry_run"},
		{"POST", "replays/1/start", `{"why":"x"}`, 400, "why"},
		{"POST", "replays/0/start", ``, 400, "id"},
		{"POST", "consumers/a%00b/pause", ``, 400, "group"},
		{"POST", "replays", strings.Repeat("[", 20_000), 400, ""},
	} {
		r := s.checked(t, token, c.method, "/api/v1/"+c.path, c.body)
		name := fmt.Sprintf("%s %.60s %.80s", c.method, c.path, c.body)
		if r.status != c.status {
			t.Errorf("%s: %d, want %d: %s", name, r.status, c.status, r.body)
			continue
		}
		p := r.problem(t)
		if c.field != "" && p["field"] != c.field {
			t.Errorf("%s: field %v, want %s: %v", name, p["field"], c.field, p["detail"])
		}
		if field, ok := p["field"].(string); ok && !strings.Contains(p["detail"].(string), field) {
			t.Errorf("%s: the detail %q does not name %s", name, p["detail"], field)
		}
	}
}

func TestOtherMediaTypesAreRefused(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	token := s.token(t, access.Admin)
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"} {
		req := s.request(t, http.MethodPost, "/api/v1/replays", `{"target":"group"}`)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", media)
		if r := s.do(t, http.DefaultClient, req); r.status != http.StatusUnsupportedMediaType {
			t.Errorf("Content-Type %q: %d, want 415", media, r.status)
		}
	}
}

// Whatever is sent, nobody gets a 500, and everything refused says so as a problem.
func FuzzAPI(f *testing.F) {
	s := setupFuzz(f)
	for _, seed := range [][2]string{
		{"state=open&limit=5", `{"letter_ids":["` + someID + `"],"target":"group","reason":"x"}`},
		{"cursor=%00&since=x", `{"filter":{"since":"2026-01-01T00:00:00Z"},"start":"safe","reason":"x"}`},
		{"fault_id=2147483648", `{"overrides":[{"letter_id":null}]}`},
		{"cursor=AAAA&event_id=%F0%9F%98%80", `{"a":{"b":[[[]]]}}`},
		{"until=9999-12-31T23:59:59Z", `{"filter":{"until":"9999-12-31T23:59:59+14:00"},"target":"origin","dry_run":true}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, query, body string) {
		for _, path := range []string{"letters", "faults", "replays", "audit", "replays/1/items", "letters/" + url.PathEscape(query)} {
			s.survives(t, http.MethodGet, "/api/v1/"+path, query, "")
		}
		for _, path := range []string{"replays", "replays/1/start", "consumers/points/pause"} {
			s.survives(t, http.MethodPost, "/api/v1/"+path, "", body)
		}
	})
}

// survives sends a request whose query is taken as it is.
func (s *fuzzed) survives(t *testing.T, method, path, query, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.http.URL+path, strings.NewReader(body))
	if err != nil {
		return // no request that a client could send
	}
	if strings.ContainsFunc(query, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		query = url.QueryEscape(query)
	}
	r.URL.RawQuery = query
	r.Header.Set("Authorization", "Bearer "+s.admin)
	r.Header.Set("Content-Type", "application/json")
	got := s.do(t, http.DefaultClient, r)
	if got.status >= 500 {
		t.Errorf("%s %s?%q %q: %d %s\n%s", method, path, query, body, got.status, got.body, s.log.String())
	}
	if got.status >= 400 {
		got.problem(t)
	}
}

// Every route of the API by every role: the document, the policy and what
// happens have to agree.
func TestAuthMatrix(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	s.fail(t, "payment-1", points)
	admin := s.token(t, access.Admin)
	id := s.letters(t, admin, 1)["payment-1 "+points]["id"].(string)
	acts := map[string]access.Act{ // what is not named here is Read
		"GET /api/v1/letters/:id/body":                          access.ReadPayload,
		"GET /api/v1/letters/:id/revisions/:no/body":            access.ReadPayload,
		"POST /api/v1/letters/:id/revisions":                    access.EditLetter,
		"POST /api/v1/letters/:id/unpark":                       access.PlanReplay,
		"POST /api/v1/letters/discard":                          access.DiscardLetters,
		"POST /api/v1/letters/restore":                          access.DiscardLetters,
		"POST /api/v1/letters/assign":                           access.TriageFaults,
		"POST /api/v1/commands/:id/undo":                        access.DiscardLetters,
		"POST /api/v1/faults/:id/mute":                          access.TriageFaults,
		"POST /api/v1/faults/:id/assign":                        access.TriageFaults,
		"POST /api/v1/faults/:id/note":                          access.TriageFaults,
		"POST /api/v1/faults/:id/comments":                      access.Comment,
		"POST /api/v1/saved-searches":                           access.SaveSearch,
		"POST /api/v1/replays":                                  access.PlanReplay,
		"POST /api/v1/replays/:id/start":                        access.StartReplay,
		"POST /api/v1/replays/:id/pace":                         access.StartReplay,
		"POST /api/v1/replays/:id/approve":                      access.ApproveReplay,
		"POST /api/v1/replays/:id/reject":                       access.ApproveReplay,
		"POST /api/v1/replays/:id/pause":                        access.StartReplay,
		"POST /api/v1/replays/:id/resume":                       access.StartReplay,
		"POST /api/v1/replays/:id/cancel":                       access.StartReplay,
		"POST /api/v1/consumers/:group/pause":                   access.PauseConsumer,
		"POST /api/v1/consumers/:group/resume":                  access.PauseConsumer,
		"POST /api/v1/reconciliations/:job/pause":               access.RunJob,
		"POST /api/v1/reconciliations/:job/resume":              access.RunJob,
		"POST /api/v1/reconciliations/:job/runs":                access.RunJob,
		"POST /api/v1/job-proposals":                            access.ProposeJob,
		"POST /api/v1/job-proposals/:id/approve":                access.ApproveJob,
		"POST /api/v1/job-proposals/:id/reject":                 access.ApproveJob,
		"POST /api/v1/job-proposals/:id/withdraw":               access.ProposeJob,
		"POST /api/v1/runs/:id/sign-off":                        access.SignOff,
		"POST /api/v1/breaks/assign":                            access.RunJob,
		"POST /api/v1/breaks/explain":                           access.ExplainBreak,
		"POST /api/v1/breaks/:id/comments":                      access.RunJob,
		"POST /api/v1/breaks/:id/unexplain":                     access.ExplainBreak,
		"POST /api/v1/breaks/:id/recheck":                       access.RunJob,
		"POST /api/v1/breaks/:id/files":                         access.RunJob,
		"POST /api/v1/compensations":                            access.ProposeCompensation,
		"POST /api/v1/compensations/approve":                    access.ApproveCompensation,
		"POST /api/v1/compensations/selections":                 access.ProposeCompensation,
		"POST /api/v1/compensations/stop":                       access.ControlCompensation,
		"POST /api/v1/compensations/allow":                      access.ApproveCompensation,
		"POST /api/v1/compensations/:id/check":                  access.ControlCompensation,
		"POST /api/v1/compensations/:id/approve":                access.ApproveCompensation,
		"POST /api/v1/compensations/:id/reject":                 access.ApproveCompensation,
		"POST /api/v1/compensations/:id/retry":                  access.ControlCompensation,
		"POST /api/v1/compensations/:id/cancel":                 access.ControlCompensation,
		"POST /api/v1/compensations/:id/pause":                  access.ControlCompensation,
		"POST /api/v1/compensations/:id/resume":                 access.ControlCompensation,
		"POST /api/v1/sagas/:id/cancel":                         access.ControlCompensation,
		"POST /api/v1/sagas/:id/steps/:op/:no/retry":            access.ControlCompensation,
		"POST /api/v1/sagas/:id/steps/:op/:no/skip":             access.ControlCompensation,
		"POST /api/v1/sagas/:id/steps/:op/:no/approve-skip":     access.ApproveCompensation,
		"POST /api/v1/actions/:action/trust":                    access.ApproveCompensation,
		"POST /api/v1/actions/:action/distrust":                 access.ApproveCompensation,
		"POST /api/v1/checks/run":                               access.RunChecks,
		"POST /api/v1/outbox/:connection/:table/rows/:id/retry": access.RetryOutbox,
		"POST /api/v1/outbox/:connection/:table/rows/:id/skip":  access.SkipOutbox,
		"POST /api/v1/outbox/commands/:id/approve":              access.ApproveOutbox,
		"POST /api/v1/outbox/commands/:id/reject":               access.ApproveOutbox,
		"POST /api/v1/alerts/acknowledge":                       access.AckAlert,
		"POST /api/v1/alerts/:id/acknowledge":                   access.AckAlert,
		"POST /api/v1/alerts/channels/:channel/test":            access.TestAlert,
		"POST /api/v1/checks/mute":                              access.MuteCheck,
		"POST /api/v1/checks/unmute":                            access.MuteCheck,
	}
	s.object(t, admin, "POST", "/api/v1/replays", planBody(id, ""))
	seen := 0
	for _, role := range access.Roles {
		token := s.token(t, role)
		for _, route := range s.server.Routes() {
			if !strings.HasPrefix(route.Path, "/api/v1/") || !slices.Contains([]string{"GET", "POST"}, route.Method) {
				continue
			}
			key := route.Method + " " + route.Path
			act, named := acts[key]
			if !named {
				if act = access.Read; route.Method == "POST" {
					t.Fatalf("%s changes something, and this test does not know which act it is", key)
				}
			}
			path := strings.NewReplacer("/letters/:id", "/letters/"+id, ":id", "1", ":group", points, ":job", "points", ":no", "1", ":op", "forward", ":action", "credit").Replace(route.Path)
			body := ""
			if route.Method == "POST" {
				if body = `{"reason":"matrix"}`; route.Path == "/api/v1/replays" {
					body = planBody(id, `,"dry_run":true`)
				}
			}
			seen++
			r := s.checked(t, token, route.Method, path, body)
			allowed := access.Actor{Role: role}.May(act)
			if allowed == (r.status == http.StatusForbidden) || r.status >= 500 || r.status == http.StatusUnauthorized {
				if own := strings.Contains(r.body, "own-approval"); own && role == access.Admin {
					continue // nobody approves their own, whatever the role
				}
				t.Errorf("%s as %s: %d, allowed %v: %s", key, role, r.status, allowed, r.body)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d combinations were tried", seen)
	}
}
