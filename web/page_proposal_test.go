package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"oncemore/internal/access"
)

// person is somebody with a browser on the site.
type person struct {
	k      *counting
	client *http.Client
}

func (k *counting) as(role access.Role) person { return person{k, k.signIn(k.T, role)} }

func (p person) get(path string) reply { return p.k.get(p.k.T, p.client, path) }

func (p person) post(path string, form url.Values) reply {
	return p.k.post(p.k.T, p.client, path, form)
}

// json calls the API and reads what it answers.
func (k *counting) json(token, method, path string, body map[string]any) (int, map[string]any) {
	k.Helper()
	text := ""
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			k.Fatal(err)
		}
		text = string(b)
	}
	r := k.call(k.T, token, method, path, text)
	var into map[string]any
	if err := json.Unmarshal([]byte(r.body), &into); err != nil {
		k.Fatalf("%s %s: %s", method, path, r.body)
	}
	return r.status, into
}

// changed is the ledger's job with another schedule.
var changed = strings.Replace(ledgerJob, `"15 * * * *"`, `"30 * * * *"`, 1)

// A change goes from the form over a preview and another person to the next version.
func TestJobIsChangedByForm(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	k.add("consumed", "ok-1", "100.00", "CNY", 1)
	maker, checker, viewer := k.as(access.Operator), k.as(access.Approver), k.as(access.Viewer)
	const path = "/reconciliations/ledger/change"

	page := maker.get(path)
	says(t, page, "Change ledger", "window.size", "Somebody else has to approve it")
	form := url.Values{"as": {"fields"}, "text": {ledgerJob}, "f.schedule": {"30 * * * *"}, "do": {"check"}}
	says(t, maker.post(path, form), "The definition is valid. Nothing was changed yet.", "What changes", "What it would read", "EXPLAIN")
	form.Set("do", "propose")
	if r := maker.post(path, form); r.status != http.StatusUnprocessableEntity || !strings.Contains(plainText(r), "reason") {
		t.Errorf("without a reason: %d", r.status)
	}
	form.Set("reason", "the hour's last rows come late")
	r := maker.post(path, form)
	at := r.header.Get("Location")
	if r.status != http.StatusSeeOther || !strings.HasPrefix(at, "/job-proposals/") {
		t.Fatalf("proposed: %d %s", r.status, plainText(r))
	}
	says(t, maker.get(at), "Waiting for approval", "You proposed this. Someone else must decide.", "the hour's last rows come late")
	says(t, maker.get(path), "has proposed a change of this job")
	says(t, viewer.get(at), "can approve this change")
	says(t, checker.get("/"), "Decide about a change of ledger")
	says(t, checker.get("/approvals"), "Changes of jobs", "Decide about a change of ledger", "the hour's last rows come late")
	contains(t, checker.get("/approvals"), http.StatusOK, `href="`+at+`"`)
	says(t, maker.get("/approvals"), "Nothing waits for you.", "You asked, others decide", "Decide about a change of ledger")
	if text := plainText(viewer.get("/approvals")); strings.Contains(text, "change of ledger") {
		t.Errorf("a viewer decides: %s", text)
	}
	says(t, checker.get(at), "What changes of v1", "Approve this definition…")

	var hash string
	if err := k.pool.QueryRow(t.Context(), "select encode(hash, 'hex') from reconcile_proposal").Scan(&hash); err != nil {
		t.Fatal(err)
	}
	decide := func(c person, do, hash string) reply {
		return c.post(at, url.Values{"do": {do}, "hash": {hash}, "reason": {"agreed"}})
	}
	for name, c := range map[string]struct {
		reply reply
		want  int
	}{
		"a viewer":     {decide(viewer, "approve", hash), http.StatusForbidden},
		"the maker":    {decide(maker, "approve", hash), http.StatusForbidden},
		"another text": {decide(checker, "approve", "00"+hash[2:]), http.StatusConflict},
		"no such act":  {decide(checker, "burn", hash), http.StatusUnprocessableEntity},
	} {
		if c.reply.status != c.want {
			t.Errorf("%s: %d", name, c.reply.status)
		}
	}
	if r := decide(checker, "approve", hash); r.status != http.StatusSeeOther {
		t.Fatalf("approved: %d %s", r.status, plainText(r))
	}
	says(t, maker.get(at), "Approved", "agreed")
	says(t, maker.get("/reconciliations/ledger?tab=definition"), "30 * * * *", "v2")
}

// Each problem stands beside its field, and what was typed stays.
func TestJobFormSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	maker := k.as(access.Reviewer)
	const path = "/reconciliations/ledger/change"
	form := url.Values{"as": {"fields"}, "text": {ledgerJob}, "do": {"check"}, "f.window.size": {"1 hour"}, "f.tolerance.amount": {"a cent"}, "f.consumed.query": {"select 1"}}
	r := maker.post(path, form)
	if r.status != http.StatusUnprocessableEntity {
		t.Fatalf("status %d", r.status)
	}
	for _, name := range []string{"f.window.size", "f.tolerance.amount", "f.consumed.query"} {
		_, after, found := strings.Cut(r.body, `name="`+name+`"`)
		if field, _, _ := strings.Cut(after, "</label>"); !found || !strings.Contains(field, `aria-invalid="true"`) || !strings.Contains(field, "Line ") {
			t.Errorf("%s has no problem beside it: %s", name, field)
		}
	}
	for _, typed := range []string{`value="1 hour"`, `value="a cent"`, "Nothing was changed."} {
		if !strings.Contains(r.body, typed) {
			t.Errorf("%q is gone", typed)
		}
	}
	form = url.Values{"as": {"text"}, "text": {"job: [\n<script>"}, "do": {"check"}}
	if r := maker.post(path, form); r.status != http.StatusUnprocessableEntity || !strings.Contains(r.body, "&lt;script&gt;") || !strings.Contains(plainText(r), "yaml") {
		t.Errorf("no YAML: %d", r.status)
	}
	form = url.Values{"as": {"fields"}, "text": {ledgerJob}, "do": {"check"}, "f.effect.connection": {"elsewhere"}}
	if r := maker.post(path, form); !strings.Contains(plainText(r), "there is no connection elsewhere") {
		t.Errorf("unknown connection: %s", plainText(r))
	}
	form = url.Values{"as": {"text"}, "text": {strings.Repeat("#", 70_000)}, "do": {"check"}}
	if r := maker.post(path, form); r.status != http.StatusUnprocessableEntity || !strings.Contains(plainText(r), "64 KiB") {
		t.Errorf("too long: %d", r.status)
	}
	if r := k.as(access.Viewer).post(path, form); r.status != http.StatusForbidden {
		t.Errorf("a viewer: %d", r.status)
	}
	if r := maker.get("/reconciliations/nobody/change"); r.status != http.StatusNotFound {
		t.Errorf("no such job: %d", r.status)
	}
}

func TestNewJobFromATemplate(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	maker := k.as(access.Operator)
	says(t, maker.get("/reconciliations/new"), "Record ↔ ledger", "Outbox ↔ record ↔ effect", "Letters ↔ records")
	for _, name := range []string{"record-ledger", "outbox-record-effect", "letters-records"} {
		says(t, maker.get("/reconciliations/new?template="+name), "Check and preview")
	}
	if r := maker.get("/reconciliations/new?template=../x"); r.status != http.StatusBadRequest {
		t.Errorf("no such template: %d", r.status)
	}
	text := strings.Replace(ledgerJob, "job: ledger", "job: another", 1)
	r := maker.post("/reconciliations/new", url.Values{"as": {"text"}, "text": {text}, "do": {"propose"}, "reason": {"new shop"}})
	if r.status != http.StatusSeeOther {
		t.Fatalf("proposed: %d %s", r.status, plainText(r))
	}
	page := maker.get(r.header.Get("Location"))
	says(t, page, "Change of another", "Withdraw")
	lacks(t, page, `href="/reconciliations/another"`)
	if r := maker.post(r.header.Get("Location"), url.Values{"do": {"withdraw"}}); r.status != http.StatusSeeOther {
		t.Errorf("withdrawn: %d", r.status)
	}
	r = maker.post("/reconciliations/new", url.Values{"as": {"text"}, "text": {ledgerJob}, "do": {"propose"}, "reason": {"x"}})
	if r.status != http.StatusUnprocessableEntity || !strings.Contains(plainText(r), "ledger is there already") {
		t.Errorf("a name that is taken: %d", r.status)
	}
}

func TestJobProposalsInTheAPI(t *testing.T) {
	t.Parallel()
	k := setupCounting(t)
	maker, checker := k.token(t, access.Operator), k.token(t, access.Approver)
	bad := map[string]any{"job": "ledger", "definition": strings.Replace(ledgerJob, "size: 1h", "size: 1x", 1), "reason": "x"}
	status, answer := k.json(maker, http.MethodPost, "/api/v1/job-proposals", bad)
	if status != http.StatusUnprocessableEntity || !strings.Contains(fmt.Sprint(answer["detail"]), "ledger.yaml:5: window.size") {
		t.Errorf("wrong: %d %v", status, answer)
	}
	status, made := k.json(maker, http.MethodPost, "/api/v1/job-proposals", map[string]any{"job": "ledger", "definition": changed, "reason": "later"})
	if status != http.StatusCreated || made["state"] != "waiting" || made["base"] != float64(1) {
		t.Fatalf("made: %d %v", status, made)
	}
	at := fmt.Sprintf("/api/v1/job-proposals/%v", made["id"])
	if status, _ := k.json(checker, http.MethodPost, at+"/approve", map[string]any{"reason": "unseen"}); status != http.StatusUnprocessableEntity {
		t.Errorf("without a hash: %d", status)
	}
	status, done := k.json(checker, http.MethodPost, at+"/approve", map[string]any{"reason": "agreed", "hash": made["hash"]})
	if status != http.StatusOK || done["state"] != "approved" || done["version"] != float64(2) {
		t.Errorf("approved: %d %v", status, done)
	}
	if status, _ := k.json(checker, http.MethodPost, at+"/reject", map[string]any{"reason": "too late"}); status != http.StatusConflict {
		t.Errorf("rejected afterwards: %d", status)
	}
	status, page := k.json(maker, http.MethodGet, "/api/v1/job-proposals?job=ledger&state=approved", nil)
	if items, _ := page["items"].([]any); status != http.StatusOK || len(items) != 1 {
		t.Errorf("listed: %d %v", status, page)
	}
}
