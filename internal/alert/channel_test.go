package alert

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// message is one with everything in it, hostile texts included.
func message(lines int) Message {
	m := Message{Kind: Firing, At: at, environment: "shop"}
	var alerts []Alert
	for i := range lines {
		alerts = append(alerts, Alert{ID: int64(i + 1), Rule: "age", Key: fmt.Sprint("k", i), Severity: Critical, Href: "/faults/1", FirstAt: at,
			Args: map[string]any{"text": `<b>*bold*_x_</b> "quoted" & [link](http://x) 支付` + strings.Repeat("长", 100)}})
	}
	alerts[lines-1].ResolvedAt = &at
	m.fill(Options{Environment: "shop", ConsoleURL: "https://c.example", Words: func(_, key string, args map[string]any) string {
		if text, ok := args["text"]; ok {
			return text.(string)
		}
		return strings.TrimSpace(fmt.Sprint(key, " ", args["n"]))
	}}, Channel{}, alerts)
	return m
}

// sendTo sends to a receiver that answers like this, and gives what it received.
func sendTo(t *testing.T, c Channel, status int, answer string, m Message) (body map[string]any, request *http.Request, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request = r
		raw, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Errorf("not JSON: %v", err)
		}
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer server.Close()
	c.Name, c.URL, c.Clock = "x", func() (string, error) { return server.URL + "/hook?access_token=t0k", nil }, func() time.Time { return at }
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	return body, request, c.send(t.Context(), m)
}

func TestEachServiceTakesItsPayload(t *testing.T) {
	t.Parallel()
	secret := func() (string, error) { return "SEC123", nil }
	for name, c := range map[string]struct {
		channel   Channel
		good, bad string // answers with 200
		must      []string
		mustNot   string
	}{
		"slack":           {Channel{Type: Slack}, "ok", "invalid_blocks", []string{`"type":"header"`, `:red_circle:`, `&lt;b&gt;`, `<https://c.example/faults/1|`}, `<b>`},
		"teams":           {Channel{Type: Teams}, "", "", []string{`"contentType":"application/vnd.microsoft.card.adaptive"`, `"type":"AdaptiveCard"`, `"url":"https://c.example/alerts"`, `"color":"Attention"`}, ""},
		"dingtalk":        {Channel{Type: DingTalk}, `{"errcode":0,"errmsg":"ok"}`, `{"errcode":310000,"errmsg":"sign not match"}`, []string{`"msgtype":"markdown"`, `"title":"[shop]`}, ""},
		"dingtalk signed": {Channel{Type: DingTalk, Secret: secret}, `{"errcode":0}`, `{"errcode":300001}`, []string{`"msgtype":"markdown"`}, ""},
		"feishu":          {Channel{Type: Feishu}, `{"StatusCode":0,"StatusMessage":"success"}`, `{"code":19021,"msg":"sign match fail"}`, []string{`"msg_type":"interactive"`, `"template":"orange"`}, `"sign"`},
		"feishu signed":   {Channel{Type: Feishu, Secret: secret}, `{"code":0}`, `{"code":9499}`, []string{`"timestamp":"1796040000"`, `"sign":`}, ""},
		"wecom":           {Channel{Type: WeCom}, `{"errcode":0}`, `{"errcode":93000}`, []string{`"msgtype":"markdown"`}, ""},
		"webhook":         {Channel{Type: Webhook, Secret: secret}, "", "", []string{`"version":1`, `"kind":"firing"`, `"severity":"critical"`, `"first_at":"2026-11-30T12:00:00Z"`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, request, err := sendTo(t, c.channel, 200, c.good, message(3))
			if err != nil {
				t.Fatal(err)
			}
			var raw strings.Builder
			encoder := json.NewEncoder(&raw)
			encoder.SetEscapeHTML(false)
			if err := encoder.Encode(body); err != nil {
				t.Fatal(err)
			}
			for _, part := range c.must {
				if !strings.Contains(raw.String(), part) {
					t.Errorf("no %s in %s", part, raw.String())
				}
			}
			if c.mustNot != "" && strings.Contains(raw.String(), c.mustNot) {
				t.Errorf("%s in %s", c.mustNot, raw.String())
			}
			if request.Header.Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("headers %v", request.Header)
			}
			if c.bad != "" {
				if _, _, err := sendTo(t, c.channel, 200, c.bad, message(1)); err == nil || strings.Contains(err.Error(), "t0k") {
					t.Errorf("a refusal with status 200: %v", err)
				}
			}
			if _, _, err := sendTo(t, c.channel, 403, "go away", message(1)); err == nil || !strings.Contains(err.Error(), "403: go away") {
				t.Errorf("a refusal: %v", err)
			}
		})
	}
}

// The signatures are those that the services' documents compute.
func TestSignatures(t *testing.T) {
	t.Parallel()
	_, request, err := sendTo(t, Channel{Type: DingTalk, Secret: func() (string, error) { return "this is secret", nil }}, 200, `{"errcode":0}`, message(1))
	if err != nil {
		t.Fatal(err)
	}
	q := request.URL.Query()
	if q.Get("access_token") != "t0k" || q.Get("timestamp") != "1796040000000" || q.Get("sign") != sign("this is secret", "1796040000000\nthis is secret") {
		t.Errorf("query %v", q)
	}
	// printf '' | openssl dgst -sha256 -hmac $'1599360473\ndemo' -binary | base64
	if got := sign("1599360473\ndemo", ""); got != "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8=" {
		t.Errorf("feishu signs %s", got)
	}
	_, request, err = sendTo(t, Channel{Type: Webhook, Secret: func() (string, error) { return "tok", nil }}, 204, "", message(1))
	if err != nil || request.Header.Get("Authorization") != "Bearer tok" {
		t.Errorf("webhook: %v %v", request.Header, err)
	}
}

// Long messages stay within what the services take, and say how much is left out.
func TestLongMessagesFit(t *testing.T) {
	t.Parallel()
	m := message(500)
	if len(m.Lines) != mostLines || m.More == "" {
		t.Fatalf("%d lines, more %q", len(m.Lines), m.More)
	}
	if text := markdown(m, "**", wecomMarkdown); len(text) > 4096 || !strings.Contains(text, "https://c.example/alerts") || !strings.Contains(text, m.More) {
		t.Errorf("wecom: %d bytes", len(text))
	}
	for name, body := range map[string]object{"slack": slackBody(m), "teams": teamsBody(m), "feishu": feishuBody(m, "", at), "dingtalk": dingtalkBody(m)} {
		b, err := json.Marshal(body)
		if err != nil || len(b) > 28_000 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	if blocks := slackBody(m)["blocks"].([]object); len(blocks) > 50 {
		t.Errorf("%d blocks", len(blocks))
	}
}

// What is said may quote an error of any length, in several lines.
func TestLongTextsFit(t *testing.T) {
	t.Parallel()
	m := message(20)
	for i := range m.Lines {
		m.Lines[i].Args = map[string]any{"text": "ERROR: \"orders\"\n\n# " + strings.Repeat("锁 ", 5000)}
	}
	alerts := make([]Alert, len(m.Lines))
	for i, l := range m.Lines {
		alerts[i] = l.Alert
	}
	m.Lines = nil
	m.fill(Options{Environment: "shop", ConsoleURL: "https://console.example.internal", Words: func(_, key string, args map[string]any) string {
		return fmt.Sprint(args["text"], key)
	}}, Channel{}, alerts)
	for name, c := range map[string]struct {
		body object
		most int
	}{"slack": {slackBody(m), 50_000}, "teams": {teamsBody(m), 28_000}, "feishu": {feishuBody(m, "", at), 20_000}, "dingtalk": {dingtalkBody(m), 20_000}} {
		if b, err := json.Marshal(c.body); err != nil || len(b) > c.most {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	if text := dingtalkBody(m)["markdown"].(object)["text"].(string); strings.Contains(text, "\n#  ") || strings.Contains(text, "\n\\#") {
		t.Error("a text of several lines became a heading")
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	followed := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	c := Channel{Type: Webhook, URL: func() (string, error) { return server.URL, nil }}
	if err := c.send(t.Context(), message(1)); err == nil || followed {
		t.Errorf("%v, followed %v", err, followed)
	}
}

func TestIncompleteChannelsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []Channel{{Name: "a", Type: "pigeon"}, {Name: "b", Type: Slack}, {Name: "c", Type: Email}} {
		if _, err := New(nil, Options{Channels: []Channel{c}}); err == nil || !strings.Contains(err.Error(), "channel "+c.Name) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// postOffice takes one mail as an SMTP server does; refuse answers DATA's end.
func postOffice(t *testing.T, refuse string) (addr string, received func() string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	var mu sync.Mutex
	var got strings.Builder
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go serveMail(conn, refuse, func(line string) { mu.Lock(); got.WriteString(line); mu.Unlock() })
		}
	}()
	return ln.Addr().String(), func() string { mu.Lock(); defer mu.Unlock(); return got.String() }
}

func serveMail(conn net.Conn, refuse string, keep func(string)) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	say := func(s string) { fmt.Fprint(conn, s+"\r\n") }
	say("220 post")
	for data := false; ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		keep(line)
		switch word := strings.ToUpper(strings.TrimSpace(line)); {
		case data && word == ".":
			data = false
			if refuse != "" {
				say(refuse)
			} else {
				say("250 taken")
			}
		case data:
		case strings.HasPrefix(word, "EHLO"):
			say("250-post")
			say("250 8BITMIME")
		case word == "DATA":
			data = true
			say("354 go on")
		case word == "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func TestMail(t *testing.T) {
	t.Parallel()
	addr, received := postOffice(t, "")
	m := Mail{Server: addr, TLS: "none", From: "console@shop.example", To: []string{"ops@shop.example", "lead@shop.example"}}
	if err := (Channel{Type: Email, Mail: &m}).send(t.Context(), message(2)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"MAIL FROM:<console@shop.example>", "RCPT TO:<ops@shop.example>", "RCPT TO:<lead@shop.example>", "Subject: ", "Auto-Submitted: auto-generated", "https://c.example/alerts"} {
		if !strings.Contains(received(), part) {
			t.Errorf("no %q in %s", part, received())
		}
	}
	addr, _ = postOffice(t, "554 no such list")
	m.Server = addr
	if err := (Channel{Type: Email, Mail: &m}).send(t.Context(), message(1)); err == nil || !strings.Contains(err.Error(), "no such list") {
		t.Errorf("a refusal: %v", err)
	}
	m.TLS = "starttls" // this server offers none: nothing may go out in the open
	if err := (Channel{Type: Email, Mail: &m}).send(t.Context(), message(1)); err == nil {
		t.Error("sent without the TLS that was asked for")
	}
}
