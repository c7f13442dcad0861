package web_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/access"
	"oncemore/internal/fleet"
	"oncemore/internal/testkit"
	"oncemore/web"
)

func TestLettersOverTheAPI(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	s.fail(t, "payment-1", points)
	s.fail(t, "payment-2", points)
	s.consumed(t, "payment-2")
	s.fail(t, "payment-3", legacy)
	s.fail(t, "", points)
	letters := s.letters(t, token, 4)

	one := letters["payment-1 "+points]
	for name, want := range map[string]any{
		"state": "open", "cluster": "shop-kafka", "broker": "kafka", "source": "order.paid.DLT", "event_id": "payment-1",
		"consumer_group": points, "attempts": nil, "occurrences": 1.0, "replay_count": 0.0,
	} {
		if got, ok := one[name]; !ok || got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if origin := one["origin"].(map[string]any); origin["topic"] != "order.paid" || origin["partition"] != 0.0 || origin["offset"] != 0.0 {
		t.Errorf("origin %v", origin)
	}
	if got := one["drained_at"].(string); !strings.HasSuffix(got, "Z") {
		t.Errorf("a time that is not UTC: %s", got)
	}
	for key, want := range map[string]string{
		"payment-1 " + points: "safe", "payment-2 " + points: "already_applied", "payment-3 " + legacy: "unprotected", "<nil> " + points: "no_event_id",
	} {
		detail := s.object(t, token, "GET", fmt.Sprintf("/api/v1/letters/%s", letters[key]["id"]), "")
		verdicts := detail["verdicts"].([]any)
		own := verdicts[0].(map[string]any)
		if own["verdict"] != want || own["reason"] == nil || (own["consumed_at"] != nil) != (want == "already_applied") {
			t.Errorf("%s: %v, want %s", key, own, want)
		}
	}
}

func TestLetterDetailKeepsEveryHeader(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	s.fail(t, "payment-1", points,
		kgo.RecordHeader{Key: "twice", Value: []byte("1")}, kgo.RecordHeader{Key: "twice", Value: []byte("2")},
		kgo.RecordHeader{Key: "null", Value: nil}, kgo.RecordHeader{Key: "empty", Value: []byte{}},
		kgo.RecordHeader{Key: "bytes", Value: []byte{0, 0xff, 0x80}}, kgo.RecordHeader{Key: "phone", Value: []byte("+49 30 1234567")})
	operator := s.operator(t)
	id := s.letters(t, operator, 1)["payment-1 "+points]["id"].(string)
	headers := func(token string) []string {
		var lines []string
		for _, h := range s.object(t, token, "GET", "/api/v1/letters/"+id, "")["headers"].([]any) {
			h := h.(map[string]any)
			value := "null"
			if b64, ok := h["value_b64"].(string); ok {
				raw, err := base64.StdEncoding.DecodeString(b64)
				if err != nil {
					t.Errorf("value_b64 %q: %v", b64, err)
				}
				value = fmt.Sprintf("%q", raw)
			}
			lines = append(lines, fmt.Sprintf("%s=%s %v %v", h["name"], value, h["text"], h["masked"]))
		}
		return lines
	}
	got := headers(operator)
	want := []string{`twice="1" 1 false`, `twice="2" 2 false`, `null=null <nil> false`, `empty=""  false`, `bytes="\x00\xff\x80" <nil> false`, `phone="+49 30 1234567" +49 30 1234567 false`}
	if tail := got[len(got)-len(want):]; !slices.Equal(tail, want) {
		t.Errorf("headers of an operator\n%s\nwant\n%s", strings.Join(tail, "\n"), strings.Join(want, "\n"))
	}
	masked := headers(s.token(t, access.Viewer))
	if len(masked) != len(got) {
		t.Errorf("a viewer sees %d of %d headers", len(masked), len(got))
	}
	for _, secret := range []string{"1234567", "ada@example.com"} {
		if all := strings.Join(masked, "\n"); strings.Contains(all, secret) {
			t.Errorf("a viewer reads %q in\n%s", secret, all)
		}
	}
	viewer := s.token(t, access.Viewer)
	for _, path := range []string{"/api/v1/letters/" + id, "/api/v1/letters", "/api/v1/faults", "/api/v1/faults/1"} {
		if all := s.ok(t, viewer, "GET", path, "").body; strings.Contains(all, "ada@example.com") {
			t.Errorf("a viewer reads an address at %s: %s", path, all)
		}
	}
	if !slices.Contains(masked, `event-id="payment-1" payment-1 false`) {
		t.Errorf("a viewer does not read the event id: %v", masked)
	}
}

func TestBodiesAreNotForViewers(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	s.fail(t, "payment-1", points)
	operator := s.operator(t)
	path := fmt.Sprintf("/api/v1/letters/%s/body", s.letters(t, operator, 1)["payment-1 "+points]["id"])
	body := s.object(t, operator, "GET", path, "")
	if body["value_text"] != `{"eventId":"payment-1","name":"Ada Lovelace"}` || body["key_text"] != "key-payment-1" {
		t.Errorf("body %v", body)
	}
	if r := s.checked(t, s.token(t, access.Viewer), "GET", path, ""); r.status != http.StatusForbidden || strings.Contains(r.body, "Ada") {
		t.Errorf("a viewer: %d %s", r.status, r.body)
	}
}

func TestLetterListPagesAndFilters(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	for i := range 7 {
		s.fail(t, fmt.Sprintf("payment-%d", i), points)
	}
	s.fail(t, "coupon-1", legacy)
	s.letters(t, token, 8)
	seen := map[string]bool{}
	for cursor := ""; ; {
		page := s.object(t, token, "GET", "/api/v1/letters?limit=3&cursor="+cursor, "")
		for _, item := range page["items"].([]any) {
			id := item.(map[string]any)["id"].(string)
			if seen[id] {
				t.Errorf("letter %s stands on two pages", id)
			}
			seen[id] = true
		}
		next, more := page["next"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if len(seen) != 8 {
		t.Errorf("%d letters on all pages, want 8", len(seen))
	}
	for query, want := range map[string]int{
		"consumer_group=" + legacy:                      1,
		"event_id=payment-3":                            1,
		"state=open&cluster=shop-kafka":                 8,
		"state=resolved":                                0,
		"source=order.paid.DLT&origin_topic=order.paid": 8,
		"error_class=shop.PointsDown":                   8,
		"error_class=nothing":                           0,
		"since=2100-01-01T00:00:00Z":                    0,
		"until=2100-01-01T00:00:00%2B08:00":             8,
		"event_id=%27%20or%201=1--":                     0,
		"fault_id=2147483647":                           0,
	} {
		if got := len(s.items(t, token, "/api/v1/letters?"+query)); got != want {
			t.Errorf("%s: %d letters, want %d", query, got, want)
		}
	}
}

func TestReasonsFollowTheLanguage(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	s.fail(t, "payment-1", legacy)
	id := s.letters(t, token, 1)["payment-1 "+legacy]["id"]
	reason := func(language string) string {
		req := s.request(t, http.MethodGet, fmt.Sprintf("/api/v1/letters/%s/verdicts", id), "")
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Accept-Language", language)
		return s.do(t, http.DefaultClient, req).body
	}
	if en := reason(""); !strings.Contains(en, "a second effect is possible") {
		t.Errorf("without a language: %s", en)
	}
	if zh := reason("zh-CN"); !strings.Contains(zh, legacy) || strings.Contains(zh, "second effect") {
		t.Errorf("in Chinese: %s", zh)
	}
}

func TestFaultsOverTheAPI(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	s.fail(t, "payment-1", points)
	s.fail(t, "payment-2", points)
	s.fail(t, "coupon-1", legacy)
	s.letters(t, token, 3)
	faults := s.items(t, token, "/api/v1/faults")
	if len(faults) != 2 {
		t.Fatalf("%d faults, want 2", len(faults))
	}
	f := faults[0]
	if counts := f["counts"].(map[string]any); counts["open"] != 2.0 || f["consumer_group"] != points {
		t.Errorf("the larger fault first: %v", f)
	}
	one := s.object(t, token, "GET", fmt.Sprintf("/api/v1/faults/%v", f["id"]), "")
	if one["id"] != f["id"] || one["error"].(map[string]any)["class"] != "shop.PointsDown" {
		t.Errorf("one fault %v", one)
	}
	if got := len(s.items(t, token, fmt.Sprintf("/api/v1/letters?fault_id=%v", f["id"]))); got != 2 {
		t.Errorf("%d letters in the fault, want 2", got)
	}
	if got := len(s.items(t, token, "/api/v1/faults?state=resolved")); got != 0 {
		t.Errorf("%d resolved faults", got)
	}
}

func TestRuntimeOverTheAPI(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	s.fail(t, "payment-1", points)
	s.letters(t, token, 1)
	testkit.MakeTopic(t, s.addr, "forgotten-dlt", 1)
	s.produce(t, &kgo.Record{Topic: "forgotten-dlt", Value: []byte("x")})
	testkit.Eventually(t, 30e9, func() bool {
		attended := map[string]any{}
		for _, source := range s.items(t, token, "/api/v1/sources") {
			attended[source["source"].(string)] = source["attended"]
		}
		return attended["order.paid.DLT"] == true && attended["forgotten-dlt"] == false
	}, "the drained source is attended and the forgotten one is not")

	groups := map[string]map[string]any{}
	for _, g := range s.items(t, token, "/api/v1/consumers") {
		groups[g["consumer_group"].(string)] = g
	}
	if g := groups[legacy]; g == nil || g["ours"] != false || g["consumed"] != nil {
		t.Errorf("a foreign group's counters are not ours to know: %v", g)
	}
	paused := s.object(t, token, "POST", "/api/v1/consumers/"+points+"/pause", `{"reason":"repair"}`)
	if command, ok := paused["command"].(map[string]any); !ok || command["paused"] != true || command["actor"] != "operator" || command["reason"] != "repair" {
		t.Errorf("after the pause: %v", paused["command"])
	}
	if resumed := s.object(t, token, "POST", "/api/v1/consumers/"+points+"/resume", ""); resumed["command"].(map[string]any)["paused"] != false {
		t.Errorf("after the resume: %v", resumed["command"])
	}
	if r := s.checked(t, token, "GET", "/api/v1/consumers/nobody", ""); r.status != http.StatusNotFound {
		t.Errorf("an unknown group: %d", r.status)
	}
	metrics := s.get(t, http.DefaultClient, "/metrics").body
	for _, want := range []string{`oncemore_letters{state="open"} 1`, `oncemore_drain_waiting_records{cluster="shop-kafka",source="order.paid.DLT"} 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s:\n%s", want, metrics)
		}
	}
}

// Group names are the brokers': they may hold anything that an address escapes.
func TestGroupNamesInAddresses(t *testing.T) {
	t.Parallel()
	odd := []string{"a/b", "a%41b", "a b", "ä", "a?b", "a+b", "100%"}
	s := setupPageShop(t, func(d *web.Deps) {
		var declared []fleet.Declared
		for _, name := range odd {
			declared = append(declared, fleet.Declared{Name: name, Ours: true})
		}
		d.Fleet = fleet.New(d.Pool, fleet.Options{Declared: declared})
	})
	token := s.operator(t)
	for _, name := range odd {
		r := s.call(t, token, http.MethodGet, "/api/v1/consumers/"+url.PathEscape(name), "")
		var g struct {
			Group string `json:"consumer_group"`
		}
		if err := json.Unmarshal([]byte(r.body), &g); err != nil || g.Group != name {
			t.Errorf("group %q: %d %s", name, r.status, r.body)
		}
	}
	browser := s.signIn(t, access.Operator)
	for _, name := range odd {
		contains(t, s.get(t, browser, "/consumers/"+url.PathEscape(name)), http.StatusOK, html.EscapeString(name))
		paused := s.post(t, browser, "/consumers/"+url.PathEscape(name)+"/pause", url.Values{"reason": {"repair"}})
		if paused.status != http.StatusSeeOther {
			t.Errorf("pause of group %q: %d", name, paused.status)
		}
	}
	want := map[string]bool{}
	for _, name := range odd {
		want["consumer/"+name] = true
	}
	var rows struct {
		Items []struct{ Target string }
	}
	if err := json.Unmarshal([]byte(s.call(t, token, http.MethodGet, "/api/v1/audit?action=consumer.paused", "").body), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows.Items {
		delete(want, row.Target)
	}
	if len(want) > 0 {
		t.Errorf("paused under another name: %v", want)
	}
}

func TestAuditOverTheAPI(t *testing.T) {
	t.Parallel()
	s := setupShop(t)
	token := s.operator(t)
	s.ok(t, token, "POST", "/api/v1/consumers/"+points+"/pause", `{"reason":"repair"}`)
	rows := s.items(t, token, "/api/v1/audit?action=consumer.paused&actor=operator&limit=1")
	if len(rows) != 1 || rows[0]["reason"] != "repair" || rows[0]["via"] != "token:test" || rows[0]["target"] != "consumer/"+points {
		t.Errorf("audit of a pause: %v", rows)
	}
}
