package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/testkit"
)

// replayAt is the replay that a redirect leads to.
func replayAt(t *testing.T, r reply) int64 {
	t.Helper()
	m := regexp.MustCompile(`^/replays/(\d+)(/plan)?$`).FindStringSubmatch(r.header.Get("Location"))
	if r.status != http.StatusSeeOther || m == nil {
		t.Fatalf("%d to %q: %.400s", r.status, r.header.Get("Location"), r.body)
	}
	id, _ := strconv.ParseInt(m[1], 10, 64)
	return id
}

func contains(t *testing.T, r reply, status int, words ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("status %d, want %d: %.300s", r.status, status, r.body)
	}
	for _, w := range words {
		if !strings.Contains(r.body, w) {
			t.Errorf("the page does not say %q", w)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.seed()
	operator := s.signIn(t, access.Operator)
	fault := s.faultOf(points, "DataIntegrityViolationException")

	t.Run("every page answers", func(t *testing.T) {
		for _, path := range s.everyPage() {
			r := s.get(t, operator, path)
			if r.status != http.StatusOK || !strings.Contains(r.body, "</html>") {
				t.Errorf("%s answers %d: %.200s", path, r.status, r.body)
			}
			if strings.Contains(r.body, " style=") || strings.Contains(r.body, "<script>") {
				t.Errorf("%s has something inline", path)
			}
		}
	})
	t.Run("unknown keys and values are refused", func(t *testing.T) {
		for _, path := range []string{"/faults?x=1", "/faults?state=broken", "/faults?sort=name", "/letters?state=x", "/letters?within=1y", "/letters?cursor=x", "/letters?fault_id=-1", "/replays?state=x", "/audit?cursor=!", "/?x=1"} {
			if r := s.get(t, operator, path); r.status != http.StatusBadRequest {
				t.Errorf("%s answers %d", path, r.status)
			}
		}
	})
	t.Run("what is not there is a 404 with a way on", func(t *testing.T) {
		for _, path := range []string{"/faults/99999", "/faults/x", "/letters/01a22c88-f78d-7000-9efe-85585e61e786", "/letters/1", "/replays/9999", "/replays/9999/plan", "/consumers/nobody", "/nowhere"} {
			contains(t, s.get(t, operator, path), http.StatusNotFound, `href="/"`)
		}
	})
	t.Run("search opens the one hit", func(t *testing.T) {
		letter := s.letterOf("payment-success-10001")
		for query, want := range map[string]string{
			"payment-success-10001": "/letters/" + letter.ID.String(), letter.ID.String(): "/letters/" + letter.ID.String(), "F-" + fmt.Sprint(fault.ID): "/faults/" + fmt.Sprint(fault.ID),
			"r-7": "/replays/7", "": "/letters", "nobody-knows": "",
		} {
			if r := s.get(t, operator, "/search?q="+url.QueryEscape(query)); r.header.Get("Location") != want {
				t.Errorf("%q leads to %q, want %q", query, r.header.Get("Location"), want)
			}
		}
		contains(t, s.get(t, operator, "/letters?event_id=nobody-knows"), http.StatusOK, "No letter has the event id nobody-knows.")
		contains(t, s.get(t, operator, "/search?q=nobody-knows"), http.StatusOK, "No letter has the event id nobody-knows.", "/letters?text=nobody-knows")
	})
	t.Run("a letter shows its verdict and bytes", func(t *testing.T) {
		r := s.get(t, operator, "/letters/"+s.letterOf("payment-success-10001").ID.String())
		contains(t, r, http.StatusOK, "Safe: the effect will happen once", "7308412990155264513", "双十一跨店满减 &lt;b&gt;", "PointsRepository.credit", "left out", "kept", "Replay safely")
		_, stack, _ := strings.Cut(r.body, ">Stack trace<")
		if own, foreign := strings.Index(stack, "PointsRepository.credit"), strings.Index(stack, "SQLStateConversionDelegate.convert"); own < 0 || own > foreign {
			t.Error("own frames do not stand first")
		}
		contains(t, reply{status: http.StatusOK, body: stack}, http.StatusOK, "6 frames, 2 of yours", "Caused by: org.postgresql.util.PSQLException")
	})
	t.Run("bytes that are no text are hex, null is null", func(t *testing.T) {
		contains(t, s.get(t, operator, "/letters/"+s.letterOf("sms-40001").ID.String()), http.StatusOK, "Not text. Shown as hex.", "00 01 02 ff fe 1f 8b 08")
		contains(t, s.get(t, operator, "/letters/"+s.letterOf("sms-40002").ID.String()), http.StatusOK, "The body is null")
		contains(t, s.get(t, operator, "/letters/"+s.letterOf("").ID.String()+"?view=json"), http.StatusOK, "Not valid JSON: line 1")
	})
	t.Run("original and copy are shown where they differ", func(t *testing.T) {
		contains(t, s.get(t, operator, "/letters/"+s.letterOf("sms-40003").ID.String()), http.StatusOK, "Differs", "rewritten", "sms-40003")
	})
	t.Run("viewers see no payload", func(t *testing.T) {
		viewer := s.signIn(t, access.Viewer)
		id := s.letterOf("payment-success-10001").ID.String()
		r := s.get(t, viewer, "/letters/"+id)
		contains(t, r, http.StatusOK, "sees payloads masked", "payment-success-10001", "•••")
		for _, secret := range []string{"lin.yue@example.com", "双十一"} {
			if strings.Contains(r.body, secret) {
				t.Errorf("a viewer sees %q", secret)
			}
		}
		if r := s.get(t, viewer, "/letters/"+id+"/body"); r.status != http.StatusForbidden {
			t.Errorf("a viewer downloads: %d", r.status)
		}
		if r := s.get(t, viewer, "/letters/"+s.letterOf("sms-40003").ID.String()); strings.Contains(r.body, "rewritten") {
			t.Error("a viewer sees the copy's bytes")
		}
	})
	t.Run("a download is the very bytes, and is written down", func(t *testing.T) {
		r := s.get(t, operator, "/letters/"+s.letterOf("sms-40001").ID.String()+"/body")
		if r.body != string([]byte{0, 1, 2, 0xff, 0xfe, 0x1f, 0x8b, 8, 0, 0, 0, 0}) || !strings.HasPrefix(r.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%q, %v", r.body, r.header)
		}
		if got := s.audited(t, "letter.downloaded"); len(got) != 1 || !strings.HasPrefix(got[0], "operator ") {
			t.Errorf("audit %v", got)
		}
	})
	t.Run("times stand in the browser's zone", func(t *testing.T) {
		r := s.request(t, http.MethodGet, "/letters/"+s.letterOf("payment-success-10001").ID.String(), "")
		r.AddCookie(&http.Cookie{Name: "zone", Value: "Asia%2FShanghai"})
		contains(t, s.do(t, operator, r), http.StatusOK, "+08:00", "Asia/Shanghai, UTC+8")
	})
	t.Run("in Chinese", func(t *testing.T) {
		r := s.request(t, http.MethodGet, "/faults", "")
		r.AddCookie(&http.Cookie{Name: "lang", Value: "zh-Hans"})
		contains(t, s.do(t, operator, r), http.StatusOK, `lang="zh-Hans"`, "可安全重放", "证据已过期")
	})
	t.Run("a page of a list leads to the next and back", func(t *testing.T) {
		first := s.get(t, operator, "/letters?limit=5")
		next := regexp.MustCompile(`href="(/letters\?[^"]*cursor=[^"]*)" rel="next"`).FindStringSubmatch(first.body)
		if next == nil {
			t.Fatal("there is no older page")
		}
		second := s.get(t, operator, strings.ReplaceAll(next[1], "&amp;", "&")+"&limit=5")
		contains(t, second, http.StatusOK, `rel="prev"`)
		if ids := letterLinks(first.body); len(ids) != 5 || strings.Contains(second.body, ids[0]) {
			t.Errorf("first page has %v, and the second repeats them", ids)
		}
	})
}

func letterLinks(body string) []string {
	var ids []string
	for _, m := range regexp.MustCompile(`data-open href="/letters/([0-9a-f-]{36})`).FindAllStringSubmatch(body, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// everyPage lists an address of each page, with letters of every kind.
func (s *pageShop) everyPage() []string {
	paths := []string{"/", "/faults", "/faults?state=all", "/faults?state=muted", "/letters", "/letters?state=open", "/letters?state=resolved", "/letters?state=open&within=1h",
		"/faults?by=source", "/faults?by=frame", "/faults?by=shape", "/commands", "/settings/retention", "/search?q=refused", "/letters?q=refused", "/letters?verdict=safe&owner=none&sort=drained_at",
		"/replays", "/replays?state=awaiting_approval", "/consumers", "/sources", "/checks", "/audit", "/audit?actor=nobody", "/profile"}
	for _, f := range []dlq.Fault{s.faultOf(points, "DataIntegrityViolationException"), s.faultOf(legacy, "SocketTimeoutException")} {
		paths = append(paths, fmt.Sprintf("/faults/%d", f.ID))
	}
	for _, event := range []string{"payment-success-10001", "payment-success-10006", "coupon-issued-20001", "ledger-entry-30001", "", "sms-40001", "sms-40002", "sms-40003"} {
		paths = append(paths, "/letters/"+s.letterOf(event).ID.String())
	}
	first := "/letters/" + s.letterOf("payment-success-10001").ID.String()
	return append(paths, first+"/edit", first+"?target=origin", first+"?view=hex", first+"?view=text", first+"?list="+url.QueryEscape("state=open&within=24h"))
}

func TestReplaySafelyIsOnePost(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.consume()
	s.seed()
	operator := s.signIn(t, access.Operator)
	fault := s.faultOf(points, "DataIntegrityViolationException")
	page := s.get(t, operator, fmt.Sprintf("/faults/%d", fault.ID))
	contains(t, page, http.StatusOK, "Replay 7 safely")
	key := regexp.MustCompile(`name="request_key" value="([^"]+)"`).FindStringSubmatch(page.body)[1]
	form := url.Values{"fault_id": {fmt.Sprint(fault.ID)}, "action": {"safe"}, "reason": {"Replay safely from fault F-1"}, "request_key": {key}}

	var first, second reply
	var both sync.WaitGroup // a double click
	both.Go(func() { first = s.post(t, operator, "/replays", form) })
	both.Go(func() { second = s.post(t, operator, "/replays", form) })
	both.Wait()
	id := replayAt(t, first)
	if again := replayAt(t, second); again != id {
		t.Errorf("a double click made replays %d and %d", id, again)
	}
	r := s.finished(id)
	if r.Outcomes[dlq.Applied] != 5 || r.Outcomes[dlq.Duplicate] != 2 {
		t.Errorf("outcomes %v", r.Outcomes)
	}
	contains(t, s.get(t, operator, fmt.Sprintf("/replays/%d", id)), http.StatusOK, "Done: 5 applied, 2 duplicates.", "payment-success-10001")
	contains(t, s.get(t, operator, "/letters?state=resolved"), http.StatusOK, "payment-success-10007")
	if got := s.audited(t, "replay.started"); len(got) != 1 {
		t.Errorf("audit %v", got)
	}
}

func TestFormsThatAreRefusedKeepWhatWasTyped(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.seed()
	operator := s.signIn(t, access.Operator)
	fault := s.faultOf(points, "DataIntegrityViolationException")
	letter := s.letterOf("payment-success-10001").ID.String()
	from := fmt.Sprintf("/faults/%d", fault.ID)

	t.Run("no reason", func(t *testing.T) {
		r := s.post(t, operator, "/replays", url.Values{"fault_id": {fmt.Sprint(fault.ID)}, "action": {"safe"}, "reason": {"  "}, "from": {from}})
		contains(t, r, http.StatusUnprocessableEntity, "Enter a reason", "Replay 7 safely", `role="alert"`)
	})
	t.Run("nothing selected", func(t *testing.T) {
		r := s.post(t, operator, "/replays", url.Values{"action": {"safe"}, "reason": {"typed by hand"}, "from": {"/letters?state=open"}})
		contains(t, r, http.StatusUnprocessableEntity, "Select at least one row", `value="typed by hand"`)
	})
	t.Run("a page of another site is none of ours", func(t *testing.T) {
		r := s.post(t, operator, "/replays", url.Values{"action": {"safe"}, "reason": {"x"}, "from": {"https://evil.example/letters"}})
		contains(t, r, http.StatusUnprocessableEntity)
	})
	t.Run("an action that there is not", func(t *testing.T) {
		r := s.post(t, operator, "/replays", url.Values{"letter_id": {letter}, "action": {"everything"}, "reason": {"x"}})
		contains(t, r, http.StatusUnprocessableEntity)
	})
	t.Run("ids that are none", func(t *testing.T) {
		for _, form := range []url.Values{{"letter_id": {"x"}}, {"fault_id": {"-1"}}, {"letter_id": {letter, letter + "0"}}} {
			form.Set("action", "plan")
			if r := s.post(t, operator, "/replays", form); r.status < 400 || r.status >= 500 {
				t.Errorf("%v answers %d", form, r.status)
			}
		}
	})
	t.Run("by a viewer", func(t *testing.T) {
		viewer := s.signIn(t, access.Viewer)
		r := s.post(t, viewer, "/replays", url.Values{"letter_id": {letter}, "action": {"safe"}, "reason": {"x"}, "from": {from}})
		contains(t, r, http.StatusForbidden, "Nothing was changed")
		if got := s.audited(t, "access.refused"); len(got) == 0 {
			t.Error("the attempt is not in the audit log")
		}
		contains(t, s.get(t, viewer, from), http.StatusOK, "Operator and Admin can replay.")
	})
	t.Run("nothing happens by GET", func(t *testing.T) {
		for _, path := range []string{"/replays/1/start", "/replays/1/cancel", "/replays/1/approve", "/consumers/" + points + "/pause"} {
			if r := s.get(t, operator, path); r.status != http.StatusMethodNotAllowed && r.status != http.StatusNotFound {
				t.Errorf("GET %s answers %d", path, r.status)
			}
		}
	})
}

func TestSelectionsAndFilters(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.consume()
	s.seed()
	operator := s.signIn(t, access.Operator)

	t.Run("all that match", func(t *testing.T) {
		r := s.post(t, operator, "/replays", url.Values{"all": {"1"}, "filter": {"?state=open&consumer_group=" + points + "&error_class=" + columnTooLong}, "action": {"safe"}, "reason": {"all"}})
		if done := s.finished(replayAt(t, r)); done.Total != 7 {
			t.Errorf("%d items, want 7", done.Total)
		}
	})
	t.Run("a filter that cannot be read", func(t *testing.T) {
		if r := s.post(t, operator, "/replays", url.Values{"all": {"1"}, "filter": {"?nonsense=1"}, "action": {"safe"}, "reason": {"all"}}); r.status != http.StatusBadRequest {
			t.Errorf("status %d", r.status)
		}
	})
	t.Run("several faults are a replay each", func(t *testing.T) {
		a, b := s.faultOf(notify, "ServiceUnavailable"), s.faultOf(legacy, "SocketTimeoutException")
		r := s.post(t, operator, "/replays", url.Values{"fault_id": {fmt.Sprint(a.ID), fmt.Sprint(b.ID)}, "action": {"plan"}, "reason": {"both"}})
		if r.header.Get("Location") != "/replays?started=2" {
			t.Errorf("leads to %q", r.header.Get("Location"))
		}
	})
	t.Run("nothing safe is a plan that says why", func(t *testing.T) {
		r := s.post(t, operator, "/replays", url.Values{"letter_id": {s.letterOf("coupon-issued-20001").ID.String()}, "action": {"safe"}, "reason": {"try"}})
		id := replayAt(t, r)
		contains(t, s.get(t, operator, fmt.Sprintf("/replays/%d/plan", id)), http.StatusOK, "Nothing can be sent", "legacy-coupon-group keeps no records")
	})
}

func TestOverridesNeedASecondPerson(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.seed()
	operator, approver := s.signIn(t, access.Operator), s.signIn(t, access.Approver)
	letter := s.letterOf("coupon-issued-20001").ID.String()

	planned := replayAt(t, s.post(t, operator, "/replays", url.Values{"letter_id": {letter}, "target": {"origin"}, "action": {"plan"}, "reason": {"coupons"}}))
	page := s.get(t, operator, fmt.Sprintf("/replays/%d/plan", planned))
	contains(t, page, http.StatusOK, "Unprotected", "Ask for approval…")
	override := regexp.MustCompile(`name="override" value="([^"]+)"`).FindStringSubmatch(page.body)
	if override == nil {
		t.Fatal("the letter cannot be ticked")
	}
	form := url.Values{"override": {override[1]}, "target": {"origin"}, "action": {"override"}, "reason": {"customers were told"}}
	awaiting := replayAt(t, s.post(t, operator, "/replays", form))
	plan := fmt.Sprintf("/replays/%d/plan", awaiting)

	contains(t, s.get(t, operator, plan), http.StatusOK, "Awaiting approval", "You asked for this. Someone else must approve", "customers were told")
	contains(t, s.get(t, approver, "/"), http.StatusOK, fmt.Sprintf("Approve replay R-%d", awaiting))
	contains(t, s.get(t, approver, plan), http.StatusOK, "Approve", "Reject")
	contains(t, s.post(t, operator, fmt.Sprintf("/replays/%d/approve", awaiting), url.Values{"reason": {"I agree"}}), http.StatusForbidden)
	contains(t, s.post(t, approver, fmt.Sprintf("/replays/%d/approve", awaiting), url.Values{"reason": {""}}), http.StatusUnprocessableEntity, "Enter a reason")
	if r := s.post(t, approver, fmt.Sprintf("/replays/%d/approve", awaiting), url.Values{"reason": {"seen"}}); r.header.Get("Location") != plan {
		t.Fatalf("%d to %q", r.status, r.header.Get("Location"))
	}
	contains(t, s.get(t, operator, plan), http.StatusOK, "Approved by approver", "Start replay of 1")
	if r := s.post(t, operator, fmt.Sprintf("/replays/%d/start", awaiting), url.Values{"reason": {"go"}}); r.header.Get("Location") != fmt.Sprintf("/replays/%d", awaiting) {
		t.Fatalf("%d to %q", r.status, r.header.Get("Location"))
	}
	contains(t, s.post(t, approver, fmt.Sprintf("/replays/%d/reject", awaiting), url.Values{"reason": {"too late"}}), http.StatusConflict, "is no longer where it was")
}

func TestProgressStreams(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	s.seed()
	operator := s.signIn(t, access.Operator)
	fault := s.faultOf(points, "DataIntegrityViolationException")
	id := replayAt(t, s.post(t, operator, "/replays", url.Values{"fault_id": {fmt.Sprint(fault.ID)}, "action": {"safe"}, "reason": {"watch"}}))
	testkit.Eventually(t, time.Minute, func() bool {
		r, err := s.replays.Get(t.Context(), id)
		return err == nil && r.Sent == 7
	}, "seven are sent")
	contains(t, s.get(t, operator, fmt.Sprintf("/replays/%d", id)), http.StatusOK, "sse-connect=", "7 of 7 sent", "Pause", "Cancel the rest…")
	s.consume()
	events := s.get(t, operator, fmt.Sprintf("/replays/%d/events", id)) // ends with the replay
	if events.status != http.StatusOK || !strings.Contains(events.body, "event: update") || !strings.Contains(events.body, "event: done") {
		t.Fatalf("%d: %.500s", events.status, events.body)
	}
	if last := events.body[strings.LastIndex(events.body, "event: update"):]; !strings.Contains(last, "Done: 5 applied, 2 duplicates.") {
		t.Errorf("the last update is %.600s", last)
	}
	if strings.Contains(s.get(t, operator, fmt.Sprintf("/replays/%d", id)).body, "sse-connect") {
		t.Error("the page of a finished replay still streams")
	}
}

func TestTokensOfOnesOwn(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	viewer := s.signIn(t, access.Viewer)
	made := s.post(t, viewer, "/profile/tokens", url.Values{"name": {"ci"}, "role": {"viewer"}})
	secret := regexp.MustCompile(`om_[A-Za-z0-9_-]{20,}`).FindString(made.body)
	contains(t, made, http.StatusCreated, "It is shown this once")
	if r := s.call(t, secret, http.MethodGet, "/api/v1/letters", ""); r.status != http.StatusOK {
		t.Errorf("the token answers %d", r.status)
	}
	contains(t, s.post(t, viewer, "/profile/tokens", url.Values{"name": {"more"}, "role": {"admin"}}), http.StatusUnprocessableEntity, "role is too high", `value="more"`)
	again := s.get(t, viewer, "/profile")
	if strings.Contains(again.body, secret) {
		t.Error("the secret is shown again")
	}
	path := regexp.MustCompile(`/profile/tokens/\d+/revoke`).FindString(again.body)
	if r := s.post(t, viewer, path, nil); r.status != http.StatusSeeOther {
		t.Errorf("revoking answers %d", r.status)
	}
	if r := s.call(t, secret, http.MethodGet, "/api/v1/letters", ""); r.status != http.StatusUnauthorized {
		t.Errorf("a revoked token answers %d", r.status)
	}
}
