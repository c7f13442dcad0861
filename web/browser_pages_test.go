package web_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/check"
	"oncemore/internal/testkit"
	"oncemore/views"
	"oncemore/web"
)

// variant is one way of looking at a page.
type variant struct {
	language, theme string
	width           int64
}

// variants are all of them under make test and for pictures; a plain go test
// looks at two and at the range between desktop and phone.
func variants() []variant {
	if !testkit.Required() && os.Getenv("ONCEMORE_SCREENSHOTS") == "" {
		return []variant{{"en", "light", 1440}, {"zh-Hans", "dark", 390}, {"en", "dark", 1000}}
	}
	return []variant{
		{"en", "light", 1440}, {"zh-Hans", "dark", 390}, {"en", "dark", 1440}, {"zh-Hans", "light", 390},
		{"zh-Hans", "light", 1440}, {"en", "dark", 390}, {"zh-Hans", "dark", 1440}, {"en", "light", 390}, {"en", "light", 1000},
	}
}

// demoTry stands in for the demo's.
type demoTry struct{}

func (demoTry) Show(context.Context) (views.Try, error) {
	return views.Try{TwiceEvent: "payment-success-10042", TwiceDeliveries: 2, TwiceRecords: 1, TwicePoints: "100", TwiceDuplicates: 1, Broken: true, BrokenLetters: 7, BrokenFault: 1,
		LegacyEvents: 2, LegacyCredits: 4, LegacyLetters: 3, ExpiredLetters: 1, HeldGroup: points, Kafka: "127.0.0.1:9092",
		Accounts: []views.Account{{Name: "viewer", Role: "viewer", Password: "BEQJQSWNBPHA"}, {Name: "approver", Role: "approver", Password: "3MXXO4PAZ2WB"}}}, nil
}

func (demoTry) Do(context.Context, access.Actor, string) (string, error) { return "", nil }

// scene is a page to look at, by a role. One whose name begins with + is another
// look of a page that is there already: two variants are enough for it.
type scene struct {
	name, path string
	role       access.Role
}

// scenes brings a shop about in which every page has something to say.
func scenes(t *testing.T, s *pageShop) []scene {
	t.Helper()
	operator := s.signIn(t, access.Operator)
	plan := func(form url.Values) int64 { return replayAt(t, s.post(t, operator, "/replays", form)) }
	coupons := s.faultOf(legacy, "SocketTimeoutException")
	open := s.letterOf("payment-success-10001").ID.String()
	notifications := plan(url.Values{"letter_id": {s.letterOf("sms-40001").ID.String()}, "action": {"safe"}, "reason": {"sms-gateway is back, INC-3391"}})
	refusedPlan := plan(url.Values{"fault_id": {fmt.Sprint(coupons.ID)}, "target": {"origin"}, "action": {"plan"}, "reason": {"coupons"}})
	override := s.letterOf("coupon-issued-20001").ID.String() + "|unprotected|" + legacy
	awaiting := plan(url.Values{"override": {override}, "target": {"origin"}, "action": {"override"}, "reason": {"customers were told, coupons are counted by hand"}})
	planned := plan(url.Values{"letter_id": {open, s.letterOf("payment-success-10006").ID.String(), s.letterOf("").ID.String()}, "action": {"plan"}, "reason": {"column widened in v2.18.3"}})
	// Two that are done, and one that nobody takes up.
	s.consume()
	done := plan(url.Values{"letter_id": {s.letterOf("payment-success-10004").ID.String(), s.letterOf("payment-success-10007").ID.String()}, "action": {"safe"}, "reason": {"column widened in v2.18.3"}})
	s.finished(done)
	points := s.faultOf(points, "DataIntegrityViolationException")
	at := time.Now()
	s.must(nil, check.NewStore(s.pool).Save(t.Context(), []check.Finding{
		said("topic.acks.ok", check.Passed, map[string]string{"cluster": "main"}, at), said("topic.acks.weak", check.Warning, map[string]string{"cluster": "main"}, at),
		said("evidence.table.unknown", check.NotChecked, map[string]string{"group": legacy, "connection": "shop"}, at),
		said("evidence.select.denied", check.Critical, map[string]string{"group": "points-consumer-group", "table": "mq_consume_record"}, at),
		said("consumer.replay.missing", check.Note, map[string]string{"topic": legacy + ".replay", "group": legacy}, at),
	}))
	// One letter is discarded, and the fault that it was in has an owner, a note and comments.
	gone := s.post(t, operator, "/triage", url.Values{"letter_id": {s.letterOf("payment-success-10005").ID.String()}, "do": {"discard"}, "why": {"counted by hand, INC-3391"}})
	for _, form := range []url.Values{{"do": {"assign"}, "owner": {"operator"}}, {"do": {"note"}, "note": {"waits for v2.18.3"}}, {"do": {"comment"}, "comment": {"the column is widened on Monday"}}} {
		form.Set("fault_id", fmt.Sprint(points.ID))
		s.post(t, operator, "/triage", form)
	}
	s.post(t, operator, "/searches", url.Values{"page": {"letters"}, "query": {"state=open&verdict=safe"}, "name": {"safe ones"}, "shared": {"1"}})
	for n := 1; n > 0; {
		var err error
		n, err = dlq.IndexTokens(t.Context(), s.pool, -time.Minute)
		s.must(nil, err)
	}
	all := []scene{
		{"login", "/login", ""},
		{"fault-groups", "/faults?state=all&by=frame", access.Operator}, {"+fault-shapes", "/faults?by=shape&owner=none", access.Operator},
		{"letters-discarded", "/letters?state=discarded", access.Operator}, {"+letters-searched", "/letters?q=error:remark&sort=drained_at", access.Operator},
		{"+letters-saved", "/letters?state=open&verdict=safe", access.Viewer}, {"+letters-text", "/letters?text=" + url.QueryEscape("双十一") + "&within=24h", access.Operator},
		{"+letter-discarded", "/letters/" + s.letterOf("payment-success-10005").ID.String(), access.Operator},
		{"command", gone.header.Get("Location"), access.Operator}, {"commands", "/commands", access.Operator},
		{"search", "/search?q=gateway", access.Operator}, {"retention", "/settings/retention", access.Admin},
		{"overview", "/", access.Approver}, {"faults", "/faults", access.Operator}, {"+faults-none", "/faults?state=muted", access.Operator},
		{"+faults-no-match", "/faults?source=order.paid.DLT&error_class=nothing", access.Operator},
		{"fault", fmt.Sprintf("/faults/%d", points.ID), access.Operator}, {"+fault-unprotected", fmt.Sprintf("/faults/%d", coupons.ID), access.Viewer},
		{"letters", "/letters?state=open", access.Operator}, {"+letters-all", "/letters?limit=5", access.Operator}, {"+letters-no-match", "/letters?event_id=nobody", access.Operator},
		{"letter", "/letters/" + open, access.Operator}, {"+letter-origin", "/letters/" + open + "?target=origin", access.Operator}, {"+letter-masked", "/letters/" + open, access.Viewer},
		{"+letter-unprotected", "/letters/" + s.letterOf("coupon-issued-20002").ID.String(), access.Operator}, {"+letter-expired", "/letters/" + s.letterOf("ledger-entry-30001").ID.String(), access.Operator},
		{"+letter-no-event-id", "/letters/" + s.letterOf("").ID.String(), access.Operator}, {"+letter-binary", "/letters/" + s.letterOf("sms-40001").ID.String(), access.Operator},
		{"+letter-null", "/letters/" + s.letterOf("sms-40002").ID.String(), access.Operator}, {"+letter-original-differs", "/letters/" + s.letterOf("sms-40003").ID.String(), access.Operator},
		{"+letter-resolved", "/letters/" + s.letterOf("payment-success-10004").ID.String(), access.Operator},
		{"replays", "/replays", access.Operator}, {"+replays-none", "/replays?state=canceled", access.Operator},
		{"replay-plan", fmt.Sprintf("/replays/%d/plan", planned), access.Operator}, {"+replay-plan-refused", fmt.Sprintf("/replays/%d/plan", refusedPlan), access.Operator},
		{"+replay-plan-awaiting", fmt.Sprintf("/replays/%d/plan", awaiting), access.Operator}, {"replay-plan-approve", fmt.Sprintf("/replays/%d/plan", awaiting), access.Approver},
		{"replay-running", fmt.Sprintf("/replays/%d", notifications), access.Operator}, {"replay-done", fmt.Sprintf("/replays/%d?tab=all", done), access.Operator},
		{"+replay-refused", fmt.Sprintf("/replays/%d?tab=refused", refusedPlan), access.Operator},
		{"consumers", "/consumers", access.Operator}, {"consumer", "/consumers/" + legacy, access.Operator}, {"sources", "/sources", access.Operator},
		{"outbox", "/outbox", access.Operator}, {"+outbox-no-match", "/outbox?state=dead&key=nobody", access.Operator}, {"outbox-row", "/outbox/shop/outbox_message/1", access.Operator},
		{"checks", "/checks", access.Operator}, {"audit", "/audit", access.Admin}, {"+audit-no-match", "/audit?actor=nobody", access.Admin}, {"profile", "/profile", access.Operator}, {"try", "/try", access.Operator},
		{"setup", "/setup", access.Admin}, {"setup-sources", "/setup?step=sources", access.Admin}, {"setup-evidence", "/setup?step=evidence", access.Admin},
		{"+setup-file", "/setup?step=file", access.Admin}, {"+setup-first", "/setup/first", access.Admin},
		{"+letters-columns", "/letters?state=open&columns=verdict,owner,error_message,failed_at", access.Operator},
		{"alerts", "/alerts", access.Operator}, {"settings-alerts", "/settings/alerts", access.Admin}, {"settings-evidence", "/settings/evidence", access.Admin},
		{"not-found", "/nowhere", access.Operator}, {"+bad-request", "/faults?sort=size", access.Operator},
	}
	return all
}

func TestBrowserPages(t *testing.T) {
	t.Parallel()
	browser := chrome(t)
	s := setupPageShop(t, func(d *web.Deps) { d.Try, d.Setup = demoTry{}, &firstRun{} }, withOutbox(postgresOutbox(t)), withAlerts(t))
	s.seed()
	all := scenes(t, s)
	for i, v := range variants() {
		t.Run(fmt.Sprintf("%s %s %d", v.language, v.theme, v.width), func(t *testing.T) {
			t.Parallel()
			p, role := open(t, browser, s.http.URL, v.width), access.Role("")
			p.visit("/login")
			p.prefer(v.language, v.theme)
			for _, scene := range all {
				if i > 1 && strings.HasPrefix(scene.name, "+") && os.Getenv("ONCEMORE_SCREENSHOTS") == "" {
					continue
				}
				if scene.role != role && scene.role != "" {
					p.forget()
					p.signIn(string(scene.role))
					role = scene.role
				}
				p.visit(scene.path)
				p.inspect(fmt.Sprintf("%s-%d-%s-%s", scene.name, v.width, v.theme, v.language))
				if got := ask[string](p, "document.documentElement.lang + ' ' + document.documentElement.dataset.bsTheme"); got != v.language+" "+v.theme {
					t.Errorf("%s is shown in %s", scene.name, got)
				}
			}
		})
	}
}

// forget signs out as the menu's button does.
func (p *tab) forget() {
	p.Helper()
	ask[int](p, `fetch("/logout", {method: "POST"}).then(r => r.status)`)
}

func TestBrowserFormsThatAreRefused(t *testing.T) {
	t.Parallel()
	browser := chrome(t)
	s := setupPageShop(t)
	s.seed()
	p := open(t, browser, s.http.URL, 1440)
	p.signIn("operator")
	letter := s.letterOf("payment-success-10001").ID.String()
	p.visit("/letters/" + letter)
	// Somebody else is faster.
	first := replayAt(t, s.post(t, s.signIn(t, access.Admin), "/replays", url.Values{"letter_id": {letter}, "action": {"safe"}, "reason": {"me first"}}))
	testkit.Eventually(t, time.Minute, func() bool {
		r, err := s.replays.Get(t.Context(), first)
		return err == nil && r.Sent == 1
	}, "the other replay has sent it")
	p.press(`button[value="safe"]`)
	p.shows("Nothing can be sent: the letter is refused.")
	p.shows("In flight")
	p.inspect("plan-in-flight")

	p.visit(fmt.Sprintf("/faults/%d", s.faultOf(points, "DataIntegrityViolationException").ID))
	ask[bool](p, `document.querySelector("input[name=reason]").value = " ", document.querySelector("input[name=reason]").required = false, true`)
	p.press(`button[value="safe"]`)
	p.shows("Enter a reason")
	p.inspect("refused-form")
}
