package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"oncemore/dlq"
	"oncemore/internal/access"
)

// field reads the value of a hidden field.
func field(t *testing.T, page, name string) string {
	t.Helper()
	m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("the page has no field %s", name)
	}
	return m[1]
}

func TestAPlanHasAPace(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.consume()
	s.seed()
	operator := s.signIn(t, access.Operator)
	fault := s.faultOf(points, "DataIntegrityViolationException")
	id := replayAt(t, s.post(t, operator, "/replays", url.Values{"action": {"plan"}, "fault_id": {fmt.Sprint(fault.ID)}, "target": {"group"}}))
	plan := fmt.Sprintf("/replays/%d/plan", id)
	page := s.get(t, operator, plan)
	contains(t, page, http.StatusOK, `name="ladder"`, `name="window_from"`, "still grows", "Pace")
	bad := s.post(t, operator, fmt.Sprintf("/replays/%d/start", id), url.Values{"pace": {"1"}, "ladder": {"1, x"}, "reason": {"it was mended"}})
	contains(t, bad, http.StatusUnprocessableEntity, "A ladder is whole numbers", `value="1, x"`, "it was mended")
	bad = s.post(t, operator, fmt.Sprintf("/replays/%d/pace", id), url.Values{"pace": {"1"}, "window_from": {"22:00"}, "window_to": {"06:00"}, "zone": {"Mars/Olympus"}})
	contains(t, bad, http.StatusUnprocessableEntity, "time zone")
	if r := s.post(t, operator, fmt.Sprintf("/replays/%d/pace", id), url.Values{"pace": {"1"}, "window_from": {"22:00"}, "window_to": {"06:00"}, "zone": {"Asia/Shanghai"}, "rate": {"2"}}); r.header.Get("Location") != plan {
		t.Fatalf("%d to %q: %.300s", r.status, r.header.Get("Location"), r.body)
	}
	contains(t, s.get(t, operator, plan), http.StatusOK, `value="22:00"`, `value="Asia/Shanghai"`)
	start := url.Values{"pace": {"1"}, "ladder": {"1, 2"}, "stop_share": {"50"}, "zone": {"UTC"}, "reason": {"it was mended"}}
	if r := s.post(t, operator, fmt.Sprintf("/replays/%d/start", id), start); r.status != http.StatusSeeOther {
		t.Fatalf("%d: %.300s", r.status, r.body)
	}
	s.paused(id, 1)
	progress := s.get(t, operator, fmt.Sprintf("/replays/%d", id))
	contains(t, progress, http.StatusOK, "Paused after a rung", "Rung 1 was sent", `class="ladder"`, "Rest 4", "Stops by itself at 50% failures", "Go on")
	for range 2 {
		s.post(t, operator, fmt.Sprintf("/replays/%d/resume", id), url.Values{})
		if s.get(t, operator, fmt.Sprintf("/replays/%d", id)); s.state(id) != dlq.Done {
			s.settledOrPaused(id)
		}
	}
	s.finished(id)
	contains(t, s.get(t, operator, fmt.Sprintf("/replays/%d", id)), http.StatusOK, "passed", "Done: 5 applied, 2 duplicates")
	var n int
	s.must(nil, s.pool.QueryRow(t.Context(), "select count(*) from dead_letter").Scan(&n))
	s.fail(failure{event: "payment-success-10008", group: points, class: columnTooLong, message: "value too long for column user_points.remark (64)", stack: javaStack})
	s.stored(n + 1)
	contains(t, s.get(t, operator, fmt.Sprintf("/replays/%d", id)), http.StatusOK, "joined fault", "See them")
}

func (s *pageShop) state(id int64) dlq.ReplayState {
	s.t.Helper()
	r, err := s.replays.Get(s.t.Context(), id)
	s.must(nil, err)
	return r.State
}

func (s *pageShop) settledOrPaused(id int64) {
	s.t.Helper()
	s.waitFor(id, "is paused or done", func(r dlq.Replay) bool { return r.State == dlq.Paused || r.State == dlq.Done })
}

func (s *pageShop) paused(id int64, sent int) {
	s.t.Helper()
	s.waitFor(id, "is paused", func(r dlq.Replay) bool { return r.State == dlq.Paused && r.Sent == sent })
}

func TestAnApproverIsBoundToWhatWasSeen(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.seed()
	operator, approver := s.signIn(t, access.Operator), s.signIn(t, access.Approver)
	letter := s.letterOf("coupon-issued-20001")
	override := letter.ID.String() + "|unprotected|" + legacy
	id := replayAt(t, s.post(t, operator, "/replays", url.Values{"action": {"override"}, "target": {"origin"}, "override": {override}, "reason": {"once more is harmless"}}))
	plan := fmt.Sprintf("/replays/%d/plan", id)
	page := s.get(t, approver, plan)
	contains(t, page, http.StatusOK, "Bound to", `name="bound"`)
	seen := field(t, page.body, "bound")
	s.post(t, operator, fmt.Sprintf("/replays/%d/pace", id), url.Values{"pace": {"1"}, "rate": {"1"}, "zone": {"UTC"}})
	r := s.post(t, approver, fmt.Sprintf("/replays/%d/approve", id), url.Values{"bound": {seen}, "reason": {"agreed"}, "from": {plan}})
	contains(t, r, http.StatusConflict, "has to approve it anew")
	seen = field(t, s.get(t, approver, plan).body, "bound")
	if r := s.post(t, approver, fmt.Sprintf("/replays/%d/approve", id), url.Values{"bound": {seen}, "reason": {"agreed"}}); r.status != http.StatusSeeOther {
		t.Fatalf("%d: %.300s", r.status, r.body)
	}
	contains(t, s.get(t, operator, plan), http.StatusOK, "Holds until", "takes the approval back")
}

func TestEditingALetter(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.consume()
	s.seed()
	operator := s.signIn(t, access.Operator)
	letter := s.letterOf("payment-success-10001")
	edit := "/letters/" + letter.ID.String() + "/edit"
	contains(t, s.get(t, operator, "/letters/"+letter.ID.String()), http.StatusOK, "Edit and replay…", edit)
	page := s.get(t, operator, edit)
	contains(t, page, http.StatusOK, "payment-success-10001", "7308412990155264513", "says which event it is", "This is the original record")
	form := url.Values{"base": {"0"}, "seen": {"0"}, "action": {"preview"}, "reason": {"the amount was wrong"}, "key": {"order-payment-success-10001"},
		"value": {`{"eventId":"payment-success-10001","orderId":7308412990155264513,"amount":"120.00"}`}}
	contains(t, s.post(t, operator, edit, form), http.StatusOK, "Changes", "120.00", "Plan replay of revision 1", "Safe")
	form.Set("action", "save")
	contains(t, s.post(t, operator, edit, form), http.StatusOK, "Nothing is kept yet") // not previewed in this form
	form.Set("value", `{"eventId":"payment-success-99999"}`)
	contains(t, s.post(t, operator, edit, form), http.StatusUnprocessableEntity, "The event id stands in $.eventId", "payment-success-99999")
	form.Set("value", `{"eventId":"payment-success-10001","amount":"120.00"}`)
	form.Set("action", "preview")
	preview := s.post(t, operator, edit, form)
	form.Set("previewed", field(t, preview.body, "previewed"))
	form.Set("action", "plan")
	id := replayAt(t, s.post(t, operator, edit, form))
	contains(t, s.get(t, operator, "/letters/"+letter.ID.String()), http.StatusOK, "Send revision 1", "Send it as it arrived", "Revision 1 made by operator")
	order := url.Values{"action": {"plan"}, "letter_id": {letter.ID.String()}, "revision": {"0"}, "reason": {"as it was"}}
	older := replayAt(t, s.post(t, operator, "/replays", order))
	var revision int
	if err := s.pool.QueryRow(t.Context(), "SELECT revision FROM replay_item WHERE replay_id = $1", older).Scan(&revision); err != nil || revision != 0 {
		t.Errorf("revision %d is sent, %v: the letter as it arrived was chosen", revision, err)
	}
	order.Set("revision", "2")
	contains(t, s.post(t, operator, "/replays", order), http.StatusBadRequest, "has no revision 2")
	order["letter_id"] = append(order["letter_id"], s.letterOf("payment-success-10002").ID.String())
	contains(t, s.post(t, operator, "/replays", order), http.StatusUnprocessableEntity, "is chosen for one letter")
	if r := s.post(t, operator, fmt.Sprintf("/replays/%d/start", id), url.Values{"reason": {"the amount was wrong"}}); r.status != http.StatusSeeOther {
		t.Fatalf("%d: %.300s", r.status, r.body)
	}
	s.finished(id)
	contains(t, s.get(t, operator, "/letters/"+letter.ID.String()), http.StatusOK, "Revision 1", "the amount was wrong")
	contains(t, s.get(t, operator, "/letters/"+letter.ID.String()+"/revisions/1"), http.StatusOK, "Changes", "120.00", "100.00")
	contains(t, s.get(t, operator, edit), http.StatusOK, "an edited copy would change nothing")
	viewer := s.signIn(t, access.Viewer)
	r := s.get(t, viewer, edit)
	contains(t, r, http.StatusForbidden, "can edit this letter")
	if strings.Contains(r.body, "7308412990155264513") {
		t.Error("a viewer sees the value")
	}
	contains(t, s.get(t, viewer, "/letters/"+letter.ID.String()+"/revisions/1"), http.StatusOK, "Revision 1")
	contains(t, s.get(t, operator, "/letters/"+letter.ID.String()+"/revisions/7"), http.StatusNotFound)
	contains(t, s.get(t, operator, "/letters/"+letter.ID.String()+"/revisions/87701733463"), http.StatusNotFound)
	contains(t, s.get(t, operator, edit+"?revision=9"), http.StatusBadRequest)
}

// A binary value is edited as hex or by upload, and comes back byte for byte.
func TestEditingBytes(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.fail(failure{event: "sms-40009", group: notify, class: "shop.ServiceUnavailable", message: "503", value: []byte{7, 1, 2, 0xff}})
	s.stored(1)
	operator := s.signIn(t, access.Operator)
	letter := s.letterOf("sms-40009")
	edit := "/letters/" + letter.ID.String() + "/edit"
	contains(t, s.get(t, operator, edit), http.StatusOK, "070102ff", "Hexadecimal")
	form := url.Values{"base": {"0"}, "seen": {"0"}, "action": {"preview"}, "value": {"07 zz"}}
	contains(t, s.post(t, operator, edit, form), http.StatusUnprocessableEntity, "not hexadecimal", "07 zz")
	form.Set("value", "07 01 02 fe")
	contains(t, s.post(t, operator, edit, form), http.StatusOK, "070102fe")

	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for name, value := range map[string]string{"base": "0", "seen": "0", "action": "preview", "value": "070102ff", "reason": "r"} {
		if err := w.WriteField(name, value); err != nil {
			t.Fatal(err)
		}
	}
	file, err := w.CreateFormFile("upload", "value.bin")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write([]byte{9, 9, 0, '\r', '\n'})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := s.request(t, http.MethodPost, edit, body.String())
	r.Header.Set("Content-Type", w.FormDataContentType())
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	contains(t, s.do(t, operator, r), http.StatusOK, "0909000d0a")
}

func TestRevisionsInTheAPI(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.seed()
	doc := openDocument(t)
	operator, viewer := s.operator(t), s.token(t, access.Viewer)
	letter := s.letterOf("payment-success-10002")
	at := "/api/v1/letters/" + letter.ID.String() + "/revisions"
	checked := func(token, method, path, body string, status int) map[string]any {
		t.Helper()
		got := s.call(t, token, method, path, body)
		if got.status != status {
			t.Fatalf("%s %s: %d %.400s", method, path, got.status, got.body)
		}
		r := s.request(t, method, path, body)
		if err := doc.check(r, got); err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(got.body), &object); err != nil {
			t.Fatal(err)
		}
		return object
	}
	value := `"value": {"text": "{\"eventId\":\"payment-success-10002\",\"n\":1.50}"}`
	dry := checked(operator, "POST", at, `{`+value+`, "dry_run": true}`, http.StatusOK)
	if dry["revision"] != nil || dry["verdict"] != "safe" || fmt.Sprint(dry["changed"]) != "[value]" {
		t.Errorf("%v", dry)
	}
	checked(operator, "POST", at, `{`+value+`}`, http.StatusUnprocessableEntity)
	made := checked(operator, "POST", at, `{`+value+`, "reason": "wrong amount"}`, http.StatusCreated)
	if rev, _ := made["revision"].(map[string]any); rev["revision"] != float64(1) {
		t.Errorf("%v", made)
	}
	checked(operator, "POST", at, `{"seen": 0, "value": {"text": "{\"eventId\":\"payment-success-10002\"}"}, "reason": "late"}`, http.StatusUnprocessableEntity)
	checked(operator, "POST", at, `{"value": {"text": "{\"eventId\":\"x\"}"}, "reason": "another event"}`, http.StatusUnprocessableEntity)
	checked(operator, "POST", at, `{"value": {}, "reason": "nothing"}`, http.StatusUnprocessableEntity)
	checked(viewer, "POST", at, `{`+value+`, "reason": "r"}`, http.StatusForbidden)
	checked(viewer, "GET", at+"/1/body", "", http.StatusForbidden)
	if body := checked(operator, "GET", at+"/1/body", "", http.StatusOK); body["value_text"] != `{"eventId":"payment-success-10002","n":1.50}` {
		t.Errorf("%v", body)
	}
	if list := checked(viewer, "GET", at, "", http.StatusOK); len(list["items"].([]any)) != 1 {
		t.Errorf("%v", list)
	}
	checked(operator, "GET", at+"/2/body", "", http.StatusNotFound)

	pace := `"pace": {"ladder": [1, 5], "rate": 10, "stop_share": 5, "window": {"from": "22:00", "to": "06:00", "zone": "Asia/Shanghai"}, "start_at": "2030-01-01T00:00:00Z"}`
	plan := checked(operator, "POST", "/api/v1/replays", `{"letter_ids": ["`+letter.ID.String()+`"], "target": "group", "reason": "r", `+pace+`, "revisions": {"`+letter.ID.String()+`": 1}}`, http.StatusCreated)
	replay := fmt.Sprintf("/api/v1/replays/%v", plan["id"])
	got := checked(operator, "GET", replay, "", http.StatusOK)
	if p := got["pace"].(map[string]any); p["rate"] != float64(10) || p["window"].(map[string]any)["from"] != "22:00" {
		t.Errorf("%v", got["pace"])
	}
	if items := checked(operator, "GET", replay+"/items", "", http.StatusOK)["items"].([]any); items[0].(map[string]any)["revision"] != float64(1) {
		t.Errorf("%v", items)
	}
	checked(operator, "GET", replay+"/elders", "", http.StatusOK)
	checked(operator, "POST", replay+"/pace", `{"rate": -1}`, http.StatusUnprocessableEntity)
	if got := checked(operator, "POST", replay+"/pace", `{"rate": 3, "start_at": "2030-01-01T00:00:00Z"}`, http.StatusOK); got["pace"].(map[string]any)["rate"] != float64(3) {
		t.Errorf("%v", got["pace"])
	}
	if got := checked(operator, "POST", replay+"/start", `{"reason": "at night"}`, http.StatusOK); got["state"] != "scheduled" {
		t.Errorf("%v", got["state"])
	}
	checked(operator, "POST", replay+"/cancel", "", http.StatusOK)
	checked(operator, "POST", "/api/v1/replays", `{"redo_of": `+fmt.Sprint(plan["id"])+`, "target": "group"}`, http.StatusConflict)
	checked(operator, "POST", "/api/v1/letters/"+letter.ID.String()+"/unpark", `{}`, http.StatusUnprocessableEntity)
	if got := checked(operator, "POST", "/api/v1/letters/"+letter.ID.String()+"/unpark", `{"reason": "mended"}`, http.StatusOK); got["parked"] != false {
		t.Errorf("%v", got)
	}
}
