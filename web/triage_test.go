package web_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xuri/excelize/v2"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/testkit"
	"oncemore/web"
)

func TestTriageThroughTheAPI(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	for _, event := range []string{"e-1", "e-2", "=1+1"} {
		s.fail(t, event, points)
	}
	operator, viewer := s.operator(t), s.token(t, access.Viewer)
	letters := s.letters(t, operator, 3)
	fault := int(letters["e-1 "+points]["fault_id"].(float64))
	path := fmt.Sprintf("/api/v1/faults/%d", fault)

	t.Run("roles and reasons", func(t *testing.T) {
		for _, c := range []struct {
			token, method, path, body string
			status                    int
		}{
			{viewer, "POST", "/letters/discard", `{"fault_id":1,"reason":"x"}`, 403},
			{operator, "POST", "/letters/discard", `{"fault_id":1}`, 422},
			{operator, "POST", "/letters/discard", `{"reason":"x"}`, 422},
			{operator, "POST", "/letters/discard", `{"filter":{"colour":"red"},"reason":"x"}`, 400},
			{operator, "POST", "/letters/discard", `{"filter":{"text":"x"},"reason":"x"}`, 400},
			{operator, "POST", "/letters/assign", `{"fault_id":1,"owner":"nobody-here"}`, 422},
			{viewer, "POST", "/letters/restore", `{"fault_id":1}`, 403},
			{viewer, "POST", "/faults/1/mute", `{"until":null}`, 403},
			{operator, "POST", "/faults/1/mute", `{"until":"2001-01-01T00:00:00Z"}`, 422},
			{viewer, "POST", "/faults/1/comments", `{"text":"x"}`, 403},
			{operator, "POST", "/faults/1/comments", `{"text":" "}`, 422},
			{operator, "POST", "/faults/999/note", `{"note":"x"}`, 404},
			{operator, "POST", "/commands/999/undo", "", 404},
			{operator, "GET", "/faults/groups?by=colour", "", 400},
			{operator, "GET", "/letters/export?format=pdf", "", 400},
			{operator, "GET", "/letters?verdict=fine", "", 400},
			{operator, "GET", "/letters?older_than=soon", "", 400},
			{operator, "GET", "/letters?sort=event_id", "", 400},
			{operator, "GET", "/letters?colour=red", "", 400},
			{viewer, "GET", "/letters?q=json.name:xyz", "", 403},
			{viewer, "GET", "/letters?text=x&fault_id=1", "", 403},
			{operator, "POST", "/saved-searches", `{"name":"x","page":"letters","query":"colour=red"}`, 400},
			{viewer, "POST", "/saved-searches", `{"name":"x","page":"letters","query":"","shared":true}`, 403},
		} {
			r := s.checked(t, c.token, c.method, "/api/v1"+c.path, c.body)
			if r.status != c.status {
				t.Errorf("%s %s %s: %d %.300s, want %d", c.method, c.path, c.body, r.status, r.body, c.status)
			}
		}
		if r := s.checked(t, operator, "GET", "/api/v1/letters?colour=red", ""); !strings.Contains(r.body, "attempts_min") {
			t.Errorf("an unknown filter does not name those that exist: %s", r.body)
		}
	})
	t.Run("discard and take back", func(t *testing.T) {
		done := s.object(t, operator, "POST", "/api/v1/letters/discard", fmt.Sprintf(`{"fault_id":%d,"reason":"known"}`, fault))
		if done["state"] != "done" || done["changed"] != float64(3) || len(done["digest"].(string)) != 64 {
			t.Fatalf("%v", done)
		}
		if got := s.items(t, operator, "/api/v1/letters?state=discarded"); len(got) != 3 {
			t.Errorf("%d are discarded", len(got))
		}
		s.ok(t, operator, "GET", "/api/v1/letters/"+letters["e-1 "+points]["id"].(string), "")
		back := s.object(t, operator, "POST", fmt.Sprintf("/api/v1/commands/%v/undo", done["id"]), `{"reason":"not yet"}`)
		if back["changed"] != float64(3) || back["undoes"] != done["id"] {
			t.Errorf("%v", back)
		}
		if again := s.object(t, operator, "GET", fmt.Sprintf("/api/v1/commands/%v", done["id"]), ""); again["undone_by"] != back["id"] {
			t.Errorf("%v", again)
		}
		if r := s.checked(t, operator, "POST", fmt.Sprintf("/api/v1/commands/%v/undo", back["id"]), ""); r.status != 409 {
			t.Errorf("undo of an undo: %d", r.status)
		}
	})
	t.Run("owner, mute, note, comments", func(t *testing.T) {
		s.ok(t, operator, "POST", "/api/v1/letters/assign", fmt.Sprintf(`{"letter_ids":[%q],"owner":"approver"}`, letters["e-2 "+points]["id"]))
		s.ok(t, operator, "POST", path+"/assign", `{"owner":"operator"}`)
		for owner, want := range map[string]int{"me": 2, "approver": 1, "none": 0} {
			if got := s.items(t, operator, "/api/v1/letters?owner="+owner); len(got) != want {
				t.Errorf("%s has %d letters, want %d", owner, len(got), want)
			}
		}
		until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		if f := s.object(t, operator, "POST", path+"/mute", `{"until":"`+until+`"}`); f["mute_until"] != until || f["owner"] != "operator" {
			t.Errorf("%v", f)
		}
		if got := s.items(t, operator, "/api/v1/faults"); len(got) != 0 {
			t.Errorf("a muted fault is among the open ones")
		}
		s.ok(t, operator, "POST", path+"/mute", `{"until":null}`)
		s.ok(t, operator, "POST", path+"/note", `{"note":"ticket 4711"}`)
		s.ok(t, s.token(t, access.Reviewer), "POST", path+"/comments", `{"text":"looks like the ledger"}`)
		if got := s.items(t, viewer, path+"/comments"); len(got) != 1 || got[0]["by"] != "reviewer" {
			t.Errorf("%v", got)
		}
	})
	t.Run("search", func(t *testing.T) {
		for {
			if n, err := dlq.IndexTokens(t.Context(), s.pool, -time.Minute); err != nil || n == 0 {
				break
			}
		}
		for query, want := range map[string]int{"q=json.eventId:e-1": 1, "q=" + url.QueryEscape(`json.name:"Ada Lovelace"`): 3, "q=key:key-e-2": 1, "q=error:points+error:down": 3, "q=nowhere": 0,
			"text=Lovelace&since=2026-01-01T00:00:00Z": 3, "q=e-1&state=resolved": 0, "attempts_min=5": 0, "older_than=1h": 0} {
			if got := s.items(t, operator, "/api/v1/letters?"+query); len(got) != want {
				t.Errorf("%s: %d letters, want %d", query, len(got), want)
			}
		}
		groups := s.object(t, operator, "GET", "/api/v1/faults/groups?by=shape", "")
		if items := groups["items"].([]any); len(items) != 1 || items[0].(map[string]any)["value"] != "{eventId: text, name: text}" || groups["sampled"] != float64(3) {
			t.Errorf("%v", groups)
		}
		saved := s.object(t, operator, "POST", "/api/v1/saved-searches", `{"name":"mine","page":"letters","query":"q=e-1&cursor=x","shared":true}`)
		if got := s.items(t, viewer, "/api/v1/saved-searches?page=letters"); len(got) != 1 || got[0]["query"] != "q=e-1" {
			t.Errorf("%v", got)
		}
		if r := s.checked(t, operator, "DELETE", fmt.Sprintf("/api/v1/saved-searches/%v", saved["id"]), ""); r.status != 204 {
			t.Errorf("delete: %d %s", r.status, r.body)
		}
	})
	t.Run("exports", func(t *testing.T) {
		rows, err := csv.NewReader(strings.NewReader(s.ok(t, operator, "GET", "/api/v1/letters/export?format=csv&sort=drained_at", "").body)).ReadAll()
		if err != nil || len(rows) != 4 || rows[0][3] != "event_id" || rows[1][3] != "e-1" || rows[3][3] != "'=1+1" {
			t.Fatalf("%v, %v", rows, err)
		}
		if at := slices.Index(rows[0], "error_message"); !strings.Contains(rows[1][at], "ada@example.com") {
			t.Errorf("an operator's message is %q", rows[1][at])
		}
		for line := range strings.Lines(s.call(t, viewer, "GET", "/api/v1/letters/export?format=jsonl", "").body) {
			var one map[string]any
			if err := json.Unmarshal([]byte(line), &one); err != nil || strings.Contains(fmt.Sprint(one["error_message"]), "ada@example.com") {
				t.Errorf("a viewer's line %s: %v", line, err)
			}
		}
		book, err := excelize.OpenReader(strings.NewReader(s.call(t, operator, "GET", "/api/v1/faults/export?format=xlsx&state=all", "").body))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := book.GetRows("Sheet1"); err != nil || len(got) != 2 {
			t.Errorf("%v, %v", got, err)
		}
		if got := s.audited(t, "letters.exported"); len(got) != 2 {
			t.Errorf("audit %v", got)
		}
	})
	t.Run("retention", func(t *testing.T) {
		if r := s.object(t, operator, "GET", "/api/v1/retention", ""); r["keep_seconds"] != float64(180*86400) || len(r["months"].([]any)) == 0 {
			t.Errorf("%v", r)
		}
	})
}

func TestTriagePages(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t, func(d *web.Deps) {
		d.Links = []web.Link{{Name: "Trace", URL: "https://traces.example/{header.traceparent}?e={event_id}&from={from_ms}"}, {Name: "Lost", URL: "https://x.example/{header.none}"}}
	})
	s.seed()
	operator, viewer := s.signIn(t, access.Operator), s.signIn(t, access.Viewer)
	fault := s.faultOf(points, "DataIntegrityViolationException")
	at := fmt.Sprintf("/faults/%d", fault.ID)
	id := fmt.Sprint(fault.ID)

	t.Run("a discarding asks why and keeps the page", func(t *testing.T) {
		r := s.post(t, operator, "/triage", url.Values{"fault_id": {id}, "do": {"discard"}, "from": {at}})
		contains(t, r, http.StatusUnprocessableEntity, "reason", "F-"+id)
		r = s.post(t, viewer, "/triage", url.Values{"fault_id": {id}, "do": {"discard"}, "why": {"x"}, "from": {at}})
		contains(t, r, http.StatusForbidden)
		r = s.post(t, operator, "/triage", url.Values{"fault_id": {id}, "do": {"explode"}, "from": {at}})
		contains(t, r, http.StatusUnprocessableEntity)
	})
	t.Run("discard, see it, take it back", func(t *testing.T) {
		r := s.post(t, operator, "/triage", url.Values{"fault_id": {id}, "do": {"discard"}, "why": {"fixed in 4.2"}, "from": {at}, "request_key": {"k1"}})
		command := regexp.MustCompile(`^/commands/\d+`).FindString(r.header.Get("Location"))
		if r.status != http.StatusSeeOther || command == "" {
			t.Fatalf("%d to %q: %.300s", r.status, r.header.Get("Location"), r.body)
		}
		contains(t, s.get(t, operator, r.header.Get("Location")), http.StatusOK, "7 letters were discarded.", "fixed in 4.2", "Restore these 7 letters", `href="`+at+`"`)
		contains(t, s.get(t, viewer, command), http.StatusOK, "can discard and restore letters")
		contains(t, s.get(t, operator, "/letters?state=discarded"), http.StatusOK, "payment-success-10001", "Kept until", `name="do" value="restore"`)
		contains(t, s.get(t, operator, "/letters/"+s.letterOf("payment-success-10001").ID.String()), http.StatusOK, "Discarded by operator", "fixed in 4.2", "7308412990155264513", "Restore")
		contains(t, s.get(t, operator, at), http.StatusOK, "Discard 7 letters", "Restore 7 letters")
		again := s.post(t, operator, "/triage", url.Values{"fault_id": {id}, "do": {"discard"}, "why": {"fixed in 4.2"}, "from": {at}, "request_key": {"k1"}})
		if !strings.HasPrefix(again.header.Get("Location"), command) {
			t.Errorf("a double click leads to %q, want %s", again.header.Get("Location"), command)
		}
		undo := s.post(t, operator, command+"/undo", url.Values{"from": {at}})
		contains(t, s.get(t, operator, undo.header.Get("Location")), http.StatusOK, "7 letters are open again.")
		contains(t, s.post(t, operator, command+"/undo", url.Values{}), http.StatusSeeOther)
	})
	t.Run("all that match", func(t *testing.T) {
		r := s.post(t, operator, "/triage", url.Values{"all": {"1"}, "filter": {"?state=open&consumer_group=" + legacy}, "do": {"discard"}, "why": {"obsolete"}, "from": {"/letters"}})
		contains(t, s.get(t, operator, r.header.Get("Location")), http.StatusOK, "3 letters were discarded.")
		contains(t, s.get(t, operator, "/letters?state=open&consumer_group="+legacy), http.StatusOK, "None here, but 3 letters match in other states.")
	})
	t.Run("assign, mute, note, comment", func(t *testing.T) {
		for _, form := range []url.Values{
			{"do": {"assign"}, "owner": {"approver"}}, {"do": {"note"}, "note": {"see ticket 4711"}}, {"do": {"comment"}, "comment": {"looked at it\nsecond line"}}, {"do": {"mute"}, "until": {"24h"}},
		} {
			form.Set("fault_id", id)
			form.Set("from", at)
			if r := s.post(t, operator, "/triage", form); r.status != http.StatusSeeOther || r.header.Get("Location") != at {
				t.Errorf("%v: %d to %q %.200s", form, r.status, r.header.Get("Location"), r.body)
			}
		}
		contains(t, s.get(t, operator, at), http.StatusOK, "approver", "see ticket 4711", "looked at it\nsecond line", "Muted until", "End muting")
		contains(t, s.get(t, operator, "/faults?state=muted&owner=approver"), http.StatusOK, "see ticket 4711")
		bad := s.post(t, operator, "/triage", url.Values{"do": {"mute"}, "until": {"yesterday"}, "fault_id": {id}, "from": {at}})
		contains(t, bad, http.StatusUnprocessableEntity, "24h")
		letter := s.letterOf("sms-40001").ID.String()
		s.post(t, operator, "/triage", url.Values{"do": {"comment"}, "comment": {"odd bytes"}, "letter_id": {letter}, "from": {"/letters/" + letter}})
		contains(t, s.get(t, viewer, "/letters/"+letter), http.StatusOK, "odd bytes")
	})
	t.Run("links to traces are filled in for who may see headers", func(t *testing.T) {
		letter := s.letterOf("payment-success-10001")
		r := s.get(t, operator, "/letters/"+letter.ID.String())
		contains(t, r, http.StatusOK, "https://traces.example/00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01?e=payment-success-10001&amp;from=")
		if strings.Contains(r.body, "x.example") {
			t.Error("a link to nothing is offered")
		}
		if r := s.get(t, viewer, "/letters/"+letter.ID.String()); strings.Contains(r.body, "traces.example") {
			t.Error("a viewer is led by a header")
		}
	})
	t.Run("search and groups", func(t *testing.T) {
		for {
			if n, err := dlq.IndexTokens(t.Context(), s.pool, -time.Minute); err != nil || n == 0 {
				break
			}
		}
		contains(t, s.get(t, operator, "/search?q=frozen"), http.StatusSeeOther)
		contains(t, s.get(t, operator, "/search?q=sms-gateway"), http.StatusOK, "No letter has")
		contains(t, s.get(t, operator, "/search?q=gateway"), http.StatusOK, "sms-40001", "sms-40003")
		contains(t, s.get(t, viewer, "/search?q=gateway"), http.StatusOK, "can also search keys")
		contains(t, s.get(t, viewer, "/letters?q=gateway"), http.StatusForbidden)
		contains(t, s.get(t, operator, "/letters?text="+url.QueryEscape("双十一")+"&within=1h"), http.StatusOK, "payment-success-10001")
		contains(t, s.get(t, operator, "/letters?text=x"), http.StatusBadRequest, "text")
		contains(t, s.get(t, operator, "/faults?state=all&by=frame"), http.StatusOK, "shop.points.PointsRepository.credit", "frames and payload shapes")
		contains(t, s.get(t, operator, "/faults?by=group"), http.StatusOK, `consumer_group=`+notify)
		contains(t, s.get(t, operator, "/faults?by=colour"), http.StatusBadRequest, "source, group, class")
	})
	t.Run("columns", func(t *testing.T) {
		page := s.get(t, operator, "/letters?state=open&columns=owner,verdict&columns=consumer_group")
		contains(t, page, http.StatusOK, `<th scope="col" class="">Consumer group</th>`, `<th scope="col" class="">Verdict</th>`, `name="columns" value="consumer_group,verdict,owner"`,
			"columns=consumer_group%2Cverdict%2Cowner&amp;format=csv", "Usual columns")
		if strings.Contains(page.body, ">Error class</th>") || strings.Contains(page.body, ">Arrived</th>") {
			t.Error("a column that nobody asked for is shown")
		}
		contains(t, s.get(t, operator, "/letters?columns=payload"), http.StatusBadRequest, "columns", "consumer_group, source")
		file := s.get(t, operator, "/letters/export?format=csv&columns=origin,owner")
		if head, _, _ := strings.Cut(file.body, "\n"); strings.TrimSpace(head) != "id,event_id,origin_topic,origin_partition,origin_offset,owner" {
			t.Errorf("the file's columns: %s", head)
		}
		saved := url.Values{"page": {"letters"}, "query": {"q=refused&columns=owner"}, "name": {"owners"}, "from": {"/letters"}}
		if r := s.post(t, operator, "/searches", saved); r.status != http.StatusSeeOther {
			t.Errorf("a search with columns is not kept: %d", r.status)
		}
	})
	t.Run("any case", func(t *testing.T) {
		contains(t, s.get(t, operator, "/letters?text=PAYMENT-SUCCESS-10001&within=1h"), http.StatusOK, "No letters match")
		contains(t, s.get(t, operator, "/letters?text=PAYMENT-SUCCESS-10001&within=1h&text_case=any"), http.StatusOK, "payment-success-10001", `name="text_case"`)
		contains(t, s.get(t, operator, "/letters?text_case=any&within=1h"), http.StatusBadRequest, "text_case")
		contains(t, s.get(t, operator, "/letters?text=x&within=1h&text_case=upper"), http.StatusBadRequest, "text_case")
	})
	t.Run("saved searches", func(t *testing.T) {
		r := s.post(t, operator, "/searches", url.Values{"page": {"letters"}, "query": {"q=refused&state=open"}, "name": {"refusals"}, "from": {"/letters"}})
		if r.status != http.StatusSeeOther || r.header.Get("Location") != "/letters?q=refused&state=open" {
			t.Errorf("%d to %q", r.status, r.header.Get("Location"))
		}
		contains(t, s.get(t, operator, "/letters"), http.StatusOK, "refusals")
		page := s.get(t, operator, "/letters?q=refused&state=open")
		remove := regexp.MustCompile(`action="(/searches/\d+/delete)"`).FindStringSubmatch(page.body)
		if remove == nil {
			t.Fatal("the present search cannot be deleted")
		}
		s.post(t, operator, remove[1], url.Values{"from": {"/letters"}})
		if strings.Contains(s.get(t, operator, "/letters").body, "refusals") {
			t.Error("it is still there")
		}
	})
	t.Run("pages of an age stay in one list", func(t *testing.T) {
		first := s.get(t, operator, "/letters?within=1h&limit=5")
		next := regexp.MustCompile(`href="(/letters\?[^"]*cursor=[^"]*)" rel="next"`).FindStringSubmatch(first.body)
		if next == nil {
			t.Fatal("there is no older page")
		}
		s.clock.Add(90 * time.Second)
		contains(t, s.get(t, operator, strings.ReplaceAll(next[1], "&amp;", "&")+"&limit=5"), http.StatusOK, `rel="prev"`)
	})
}

func TestAListSaysWhenItChanged(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	operator := s.signIn(t, access.Operator)
	stream := regexp.MustCompile(`sse-connect="(/faults/events[^"]*)"`).FindStringSubmatch(s.get(t, operator, "/faults").body)
	if stream == nil {
		t.Fatal("the list watches for nothing")
	}
	s.fail(t, "e-1", points)
	s.letters(t, s.operator(t), 1)
	if _, err := dlq.Fold(t.Context(), s.pool); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() bool {
		return strings.Contains(s.firstEvent(t, operator, strings.ReplaceAll(stream[1], "&amp;", "&")), "1 fault changed since")
	}, "the stream offers the refresh")
}

// firstEvent reads a stream as far as its first event.
func (s *site) firstEvent(t testing.TB, client *http.Client, path string) string {
	t.Helper()
	resp, err := client.Do(s.request(t, http.MethodGet, path, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), "event: update") || !strings.HasSuffix(got.String(), "\n\n") {
		n, err := resp.Body.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			break
		}
	}
	return got.String()
}
