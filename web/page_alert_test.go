package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/alert"
	"oncemore/internal/check"
	"oncemore/views/locale"
	"oncemore/web"
)

// watchtower is a shop whose alerts are what the test says.
type watchtower struct {
	*shop
	engine *alert.Engine
	mu     sync.Mutex
	found  []alert.Condition
	failed error
}

func setupWatchtower(t *testing.T, change ...func(*web.Deps)) *watchtower {
	t.Helper()
	w := &watchtower{}
	w.shop = setupShop(t, append([]func(*web.Deps){w.wire(t)}, change...)...)
	return w
}

// withAlerts adds alerts to a site: one that lasts.
func withAlerts(t *testing.T) func(*web.Deps) {
	w := &watchtower{found: []alert.Condition{{Key: "a", Href: "/sources", Args: map[string]any{"source": "shop-kafka/inventory.reserved.DLT", "n": int64(7)}}}}
	wire := w.wire(t)
	return func(d *web.Deps) {
		wire(d)
		if err := w.engine.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// wire makes the engine on the site's database.
func (w *watchtower) wire(t *testing.T) func(*web.Deps) {
	t.Helper()
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(hook.Close)
	return func(d *web.Deps) {
		var err error
		w.engine, err = alert.New(d.Pool, alert.Options{
			Environment: "test", Clock: d.Clock, Log: d.Logger,
			Rules: []alert.Rule{{Name: "unattended", Severity: alert.Warning, Look: func(context.Context) ([]alert.Condition, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.found, w.failed
			}}},
			Channels: []alert.Channel{{Name: "ops", Type: alert.Slack, URL: func() (string, error) { return hook.URL + "/secret-path", nil }, Least: alert.Warning}},
			Words: func(language, key string, args map[string]any) string {
				var pairs []any
				for name, value := range args {
					pairs = append(pairs, name, value)
				}
				return locale.Locale{Tag: locale.Tag(language)}.Text(key, pairs...)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Alerts = w.engine
	}
}

func (w *watchtower) look(t *testing.T, failed error, sources ...string) {
	t.Helper()
	w.mu.Lock()
	w.found, w.failed = nil, failed
	for _, s := range sources {
		w.found = append(w.found, alert.Condition{Key: s, Href: "/sources", Args: map[string]any{"source": s, "n": int64(7)}})
	}
	w.mu.Unlock()
	w.clock.Add(time.Second)
	if err := w.engine.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAlertsPage(t *testing.T) {
	t.Parallel()
	w := setupWatchtower(t)
	viewer, operator := w.signIn(t, access.Viewer), w.signIn(t, access.Operator)
	page := w.get(t, viewer, "/alerts")
	contains(t, page, http.StatusOK, "Not known yet", "Not every rule has looked yet")
	if strings.Contains(page.body, "Nothing waits to be acknowledged") {
		t.Error("quiet before anything was looked at")
	}
	w.look(t, nil)
	contains(t, w.get(t, viewer, "/alerts"), http.StatusOK, "All rules have looked. Nothing waits to be acknowledged.")
	w.look(t, nil, "main/nobody.DLT", "main/<b>.DLT")
	page = w.get(t, viewer, "/alerts")
	contains(t, page, http.StatusOK, "2 alerts wait for somebody", "main/nobody.DLT holds 7 messages, and nobody drains it.", "main/&lt;b&gt;.DLT", "can acknowledge.")
	if strings.Contains(page.body, "<form method=\"post\" action=\"/alerts/") {
		t.Error("a viewer is offered the form")
	}
	contains(t, w.get(t, viewer, "/"), http.StatusOK, "2 alerts wait to be acknowledged.", `href="/alerts"`)
	contains(t, w.get(t, operator, "/alerts"), http.StatusOK, "Acknowledge all 2", `action="/alerts/acknowledge"`)
	action := regexp.MustCompile(`action="(/alerts/\d+/acknowledge)"`).FindStringSubmatch(w.get(t, operator, "/alerts").body)
	if action == nil {
		t.Fatal("an operator is not offered the form")
	}
	if r := w.post(t, viewer, action[1], nil); r.status != http.StatusForbidden {
		t.Errorf("a viewer acknowledges: %d", r.status)
	}
	if r := w.post(t, operator, action[1], nil); r.status != http.StatusSeeOther {
		t.Errorf("acknowledge: %d", r.status)
	}
	contains(t, w.post(t, operator, action[1], nil), http.StatusConflict, "Nothing was changed.")
	contains(t, w.get(t, viewer, "/alerts"), http.StatusOK, "1 alert waits for somebody")
	if got := w.audited(t, "alert.acknowledged"); len(got) != 1 || !strings.HasPrefix(got[0], "operator ") {
		t.Errorf("audit %v", got)
	}
	all := url.Values{}
	for id := range strings.FieldsSeq("1 2 3 4") {
		all.Add("id", id)
	}
	if r := w.post(t, viewer, "/alerts/acknowledge", all); r.status != http.StatusForbidden {
		t.Errorf("a viewer acknowledges all: %d", r.status)
	}
	if r := w.post(t, operator, "/alerts/acknowledge", all); r.status != http.StatusSeeOther {
		t.Errorf("acknowledge all: %d", r.status)
	}
	contains(t, w.post(t, operator, "/alerts/acknowledge", all), http.StatusConflict, "Nothing was changed.")
	contains(t, w.get(t, viewer, "/alerts"), http.StatusOK, "Nothing waits to be acknowledged.")
	w.look(t, errors.New("broker silent"))
	contains(t, w.get(t, viewer, "/alerts"), http.StatusOK, "1 rule could not look", "main/nobody.DLT")
	w.look(t, nil)
	contains(t, w.get(t, viewer, "/alerts"), http.StatusOK, "Nothing waits to be acknowledged.", "Ended")
	r := w.request(t, http.MethodGet, "/alerts", "")
	r.AddCookie(&http.Cookie{Name: "lang", Value: "zh-Hans"})
	contains(t, w.do(t, viewer, r), http.StatusOK, "main/nobody.DLT 存有 7 条消息，无人收取。")
	contains(t, w.get(t, viewer, "/alerts?x=1"), http.StatusBadRequest)
}

func TestAlertSettingsPage(t *testing.T) {
	t.Parallel()
	w := setupWatchtower(t)
	admin, operator := w.signIn(t, access.Admin), w.signIn(t, access.Operator)
	w.look(t, errors.New("kafka-1 does not answer"))
	page := w.get(t, operator, "/settings/alerts")
	contains(t, page, http.StatusOK, "ops", "Slack", "Warning and worse", "Unattended source", "that nobody drains.", "Could not look", "kafka-1 does not answer", "can send tests.")
	if r := w.post(t, operator, "/settings/alerts/ops/test", nil); r.status != http.StatusForbidden {
		t.Errorf("an operator tests: %d", r.status)
	}
	if r := w.post(t, admin, "/settings/alerts/nobody/test", nil); r.status != http.StatusNotFound {
		t.Errorf("no channel: %d", r.status)
	}
	r := w.post(t, admin, "/settings/alerts/ops/test", nil)
	if r.status != http.StatusSeeOther {
		t.Fatalf("test: %d %.200s", r.status, r.body)
	}
	page = w.get(t, admin, r.header.Get("Location"))
	contains(t, page, http.StatusOK, "A test for ops is on its way", "A test. Nothing is wrong.", "Sending")
	if strings.Contains(page.body, "secret-path") {
		t.Error("the page shows the webhook's address")
	}
	if r := w.get(t, operator, "/settings"); r.header.Get("Location") != "/settings/evidence" {
		t.Errorf("settings lead to %q", r.header.Get("Location"))
	}
}

func TestEvidenceSettingsPage(t *testing.T) {
	t.Parallel()
	var asked []string
	s := setupShop(t, func(d *web.Deps) {
		d.Connections = []string{"shop"}
		d.FindEvidence = func(_ context.Context, name string) ([]dlq.EvidenceProposal, error) {
			asked = append(asked, name)
			if name == "down" {
				return nil, errors.New("no route to 10.0.0.9")
			}
			p := dlq.EvidenceProposal{Unique: true, Rows: 12, Groups: []string{"stock"}, Sample: "e-1"}
			p.Connection, p.Table, p.EventID, p.ConsumerGroup, p.Answer.Found, p.Answer.Exact = name, "t_idempotent", "msg_id", "consumer", true, true
			return []dlq.EvidenceProposal{p}, nil
		}
	})
	s.consumed(t, "EVT-1")
	admin, viewer := s.signIn(t, access.Admin), s.signIn(t, access.Viewer)
	contains(t, s.get(t, viewer, "/settings/evidence"), http.StatusOK, points, "mq_consume_record", legacy, "No evidence is declared.", "can look for tables.")
	look := func(event string) reply {
		return s.get(t, viewer, "/settings/evidence?group="+points+"&event_id="+url.QueryEscape(event))
	}
	contains(t, look("EVT-1"), http.StatusOK, "Record of ")
	contains(t, look("EVT-2"), http.StatusOK, "No record of this event")
	contains(t, s.get(t, viewer, "/settings/evidence?group="+legacy+"&event_id=x"), http.StatusUnprocessableEntity)
	contains(t, s.get(t, viewer, "/settings/evidence?group="+points), http.StatusUnprocessableEntity)
	contains(t, s.get(t, viewer, "/settings/evidence?table=x"), http.StatusBadRequest)
	if r := s.get(t, viewer, "/settings/evidence?connection=shop"); r.status != http.StatusForbidden || len(asked) != 0 {
		t.Errorf("a viewer looks at the schema: %d, asked %v", r.status, asked)
	}
	contains(t, s.get(t, admin, "/settings/evidence?connection=shop"), http.StatusOK, "t_idempotent", "A unique key covers the event id.", "About 12 rows", "  stock:", "table: t_idempotent")
	down := s.get(t, admin, "/settings/evidence?connection=down")
	contains(t, down, http.StatusOK, "Connection down did not answer")
	if strings.Contains(down.body, "10.0.0.9") {
		t.Error("the page shows the driver's error")
	}
	s.business.Close()
	page := look("EVT-1")
	contains(t, page, http.StatusOK, "did not answer at")
	if regexp.MustCompile(`class="v (go|noop)"`).MatchString(page.body) {
		t.Error("an evidence database that is down reads green")
	}
}

func TestChecksAreRunMutedAndFiltered(t *testing.T) {
	t.Parallel()
	var s *shop
	runs := 0
	s = setupShop(t, func(d *web.Deps) {
		d.RunChecks = func(ctx context.Context) error {
			runs++
			at := d.Clock()
			severity, code := check.Warning, "topic.acks.weak"
			if runs > 1 {
				severity, code = check.Passed, "topic.acks.ok"
			}
			changed := said(code, severity, map[string]string{"cluster": "main"}, at)
			changed.Code = "topic.acks"
			unseen := said("source.match.unknown", check.NotChecked, map[string]string{"pattern": "*.DLT", "cluster": "main"}, at)
			unseen.Area, unseen.Subject = "source", "source/main/*.DLT"
			return check.NewStore(d.Pool).Save(ctx, []check.Finding{changed, unseen})
		}
	})
	viewer, operator := s.signIn(t, access.Viewer), s.signIn(t, access.Operator)
	if r := s.post(t, viewer, "/checks/run", nil); r.status != http.StatusForbidden || runs != 0 {
		t.Errorf("a viewer runs: %d", r.status)
	}
	r := s.post(t, operator, "/checks/run", nil)
	contains(t, s.get(t, operator, r.header.Get("Location")), http.StatusOK, "The checks were run.", "2 findings are open", "Mute…")
	contains(t, s.get(t, viewer, "/checks?area=source"), http.StatusOK, "source *.DLT")
	if page := s.get(t, viewer, "/checks?area=source"); strings.Contains(page.body, "acknowledged record may be") {
		t.Error("the filter shows another area")
	}
	for _, bad := range []string{"severity=bad", "area=x", "state=x", "x=1"} {
		contains(t, s.get(t, viewer, "/checks?"+bad), http.StatusBadRequest)
	}
	mute := url.Values{"code": {"topic.acks"}, "subject": {"cluster/main"}, "for": {"7d"}}
	contains(t, s.post(t, operator, "/checks/mute", mute), http.StatusUnprocessableEntity, "role=\"alert\"")
	mute.Set("reason", "one broker on purpose")
	if r := s.post(t, viewer, "/checks/mute", mute); r.status != http.StatusForbidden {
		t.Errorf("a viewer mutes: %d", r.status)
	}
	if r := s.post(t, operator, "/checks/mute", mute); r.status != http.StatusSeeOther {
		t.Fatalf("mute: %d %.300s", r.status, r.body)
	}
	page := s.get(t, operator, "/checks")
	contains(t, page, http.StatusOK, "1 finding is open", "1 muted", "by operator: one broker on purpose")
	if greenNote.MatchString(page.body) {
		t.Error("what is muted and not checked reads green")
	}
	contains(t, s.get(t, operator, "/checks?state=muted"), http.StatusOK, "one broker on purpose")
	if r := s.post(t, operator, "/checks/unmute", mute); r.status != http.StatusSeeOther {
		t.Errorf("unmute: %d", r.status)
	}
	mute.Set("for", "9y")
	contains(t, s.post(t, operator, "/checks/mute", mute), http.StatusUnprocessableEntity)
	mute.Set("for", "1d")
	mute.Set("code", "nothing")
	contains(t, s.post(t, operator, "/checks/mute", mute), http.StatusConflict)
	s.post(t, operator, "/checks/run", nil)
	contains(t, s.get(t, viewer, "/checks?code=topic.acks&subject=cluster%2Fmain"), http.StatusOK, "Passed", "On main an acknowledged record may be on one broker only.")
	if got := s.audited(t, "check.muted"); len(got) != 1 {
		t.Errorf("audit %v", got)
	}
}

func TestAlertsAreMetrics(t *testing.T) {
	t.Parallel()
	w := setupWatchtower(t)
	scrape := func() string { return w.get(t, w.browser(t), "/metrics").body }
	if strings.Contains(scrape(), "oncemore_alerts") {
		t.Error("a rule that never looked is zero")
	}
	w.look(t, nil)
	if body := scrape(); !strings.Contains(body, `oncemore_alerts{rule="unattended",severity="warning"} 0`) || !strings.Contains(body, `oncemore_alert_rule_blind{rule="unattended"} 0`) {
		t.Error(body)
	}
	w.look(t, nil, "a", "b")
	w.look(t, errors.New("silent"))
	if body := scrape(); !strings.Contains(body, `oncemore_alerts{rule="unattended",severity="warning"} 2`) || !strings.Contains(body, `oncemore_alert_rule_blind{rule="unattended"} 1`) {
		t.Error(body)
	}
}

func TestAlertsInTheAPI(t *testing.T) {
	t.Parallel()
	w := setupWatchtower(t)
	viewer, operator, admin := w.token(t, access.Viewer), w.token(t, access.Operator), w.token(t, access.Admin)
	type alerts struct {
		Items []struct {
			ID           int64
			Text, Href   string
			ResolvedAt   *time.Time `json:"resolved_at"`
			Acknowledged *struct{ By, Reason string }
		}
		Rules []struct {
			Name     string
			LookedAt *time.Time `json:"looked_at"`
			Error    *string
		}
	}
	list := func(path string) (a alerts) {
		t.Helper()
		read(t, w.checked(t, viewer, "GET", path, ""), http.StatusOK, &a)
		return a
	}
	if a := list("/api/v1/alerts"); len(a.Items) != 0 || len(a.Rules) != 1 || a.Rules[0].LookedAt != nil {
		t.Fatalf("before a look: %+v", a)
	}
	w.look(t, errors.New("broker silent"), "main/nobody.DLT")
	a := list("/api/v1/alerts")
	if len(a.Items) != 1 || a.Items[0].Text != "main/nobody.DLT holds 7 messages, and nobody drains it." || a.Items[0].Href != "/sources" || a.Items[0].Acknowledged != nil {
		t.Fatalf("%+v", a)
	}
	if a.Rules[0].LookedAt == nil || a.Rules[0].Error == nil || *a.Rules[0].Error != "broker silent" {
		t.Errorf("the look that failed: %+v", a.Rules)
	}
	at := fmt.Sprintf("/api/v1/alerts/%d/acknowledge", a.Items[0].ID)
	read(t, w.checked(t, viewer, "POST", at, ""), http.StatusForbidden, nil)
	read(t, w.checked(t, operator, "POST", at, `{"reason":"on it"}`), http.StatusNoContent, nil)
	read(t, w.checked(t, operator, "POST", at, ""), http.StatusConflict, nil)
	if a := list("/api/v1/alerts?state=lasting"); a.Items[0].Acknowledged == nil || a.Items[0].Acknowledged.Reason != "on it" {
		t.Errorf("%+v", a.Items)
	}
	read(t, w.checked(t, viewer, "POST", "/api/v1/alerts/acknowledge", `{"ids":[1]}`), http.StatusForbidden, nil)
	for body, want := range map[string]int{`{"ids":[]}`: http.StatusUnprocessableEntity, `{}`: http.StatusUnprocessableEntity, `{"ids":["x"]}`: http.StatusBadRequest, `{"ids":[77]}`: http.StatusConflict} {
		read(t, w.checked(t, operator, "POST", "/api/v1/alerts/acknowledge", body), want, nil)
	}
	w.look(t, nil)
	if a := list("/api/v1/alerts?state=over"); len(a.Items) != 1 || a.Items[0].ResolvedAt == nil || len(list("/api/v1/alerts").Items) != 0 {
		t.Errorf("after its end: %+v", a)
	}
	read(t, w.checked(t, viewer, "GET", "/api/v1/alerts?state=x", ""), http.StatusBadRequest, nil)

	read(t, w.checked(t, operator, "POST", "/api/v1/alerts/channels/ops/test", ""), http.StatusForbidden, nil)
	read(t, w.checked(t, admin, "POST", "/api/v1/alerts/channels/nobody/test", ""), http.StatusNotFound, nil)
	read(t, w.checked(t, admin, "POST", "/api/v1/alerts/channels/ops/test", ""), http.StatusAccepted, nil)
	channels := w.checked(t, viewer, "GET", "/api/v1/alerts/channels", "")
	var c struct {
		Items []struct {
			Name, Least string
			Last        *struct{ Kind, State string }
		}
	}
	read(t, channels, http.StatusOK, &c)
	if len(c.Items) != 1 || c.Items[0].Least != "warning" || c.Items[0].Last == nil || c.Items[0].Last.Kind != "test" {
		t.Errorf("channels: %+v", c)
	}
	if strings.Contains(channels.body, "secret-path") {
		t.Error("a channel's address is in the answer")
	}
}
