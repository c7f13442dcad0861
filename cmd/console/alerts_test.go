package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/internal/check"
	"oncemore/internal/config"
	"oncemore/internal/testkit"
	"oncemore/migrations/pgtest"
	"oncemore/views/locale"
)

// inbox is a webhook that keeps what it gets.
type inbox struct {
	mu   sync.Mutex
	told []string // rule and text of each alert
}

func newInbox(t *testing.T) (*inbox, string) {
	t.Helper()
	in := &inbox{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Kind   string
			Alerts []struct{ Rule, Text string }
		}
		raw, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(raw, &body); err != nil {
			t.Errorf("no JSON: %s", raw)
		}
		in.mu.Lock()
		defer in.mu.Unlock()
		for _, a := range body.Alerts {
			in.told = append(in.told, body.Kind+" "+a.Rule+": "+a.Text)
		}
	}))
	t.Cleanup(server.Close)
	return in, server.URL
}

func (in *inbox) all() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.told)
}

// From the config file to the receiver: a topic that nobody drains is told once,
// and every rule can look at all that it asks.
func TestServeTellsOfWhatNobodyDrains(t *testing.T) {
	addr := testkit.FakeKafkaAddr(t)
	testkit.MakeTopic(t, addr, "nobody.DLT", 1)
	testkit.MakeTopic(t, addr, "order.paid.DLT", 1)
	if err := testkit.Client(t, addr).ProduceSync(t.Context(), &kgo.Record{Topic: "nobody.DLT", Value: []byte("lost")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	in, hook := newInbox(t)
	url := pgtest.URL(t)
	conf, err := config.Parse("test.yaml", []byte(strings.NewReplacer("DATABASE", secretFile(t, url), "BROKER", addr, "HOOK", secretFile(t, hook)).Replace(`environment: test
database: {url_file: DATABASE}
clusters: {shop: {kafka: {brokers: ["BROKER"]}}}
sources: [{cluster: shop, pattern: "order.*.DLT"}]
alerts:
  rules: {check: {off: true}}
  channels: {hook: {webhook: {url_file: HOOK}}, chat: {webhook: {url_file: HOOK}, language: zh-Hans, rules: [gap]}}
`)))
	if err != nil {
		t.Fatal(err)
	}
	var apps []*app
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	for range 2 { // two replicas
		a, err := openApp(t.Context(), conf, slog.New(slog.NewTextHandler(t.Output(), nil)))
		if err != nil {
			t.Fatal(err)
		}
		apps = append(apps, a)
		go func() { ended <- a.serve(ctx, roles{Jobs: true, Drain: true}, nil, extras{}) }()
	}
	t.Cleanup(func() {
		stop()
		for _, a := range apps {
			if err := <-ended; err != nil {
				t.Errorf("serve: %v", err)
			}
			a.close()
		}
	})
	const want = "firing unattended: shop/nobody.DLT holds 1 message, and nobody drains it."
	testkit.Eventually(t, 60*time.Second, func() bool { return slices.Contains(in.all(), want) }, "the receiver is told")
	looks, err := apps[0].alerts.Looks(t.Context())
	if err != nil || len(looks) != len(apps[0].alerts.Rules()) {
		t.Errorf("%d looks of %d rules, %v", len(looks), len(apps[0].alerts.Rules()), err)
	}
	for name, l := range looks {
		if l.Error != "" {
			t.Errorf("rule %s could not look: %s", name, l.Error)
		}
	}
	for _, a := range apps { // however often the replicas look
		if err := a.alerts.Tick(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if told := in.all(); len(told) != 1 {
		t.Errorf("told %q", told)
	}
}

// Every rule has its words in both languages, and they fill in what it tells.
func TestEveryRuleHasItsWords(t *testing.T) {
	t.Parallel()
	a := &app{conf: &config.Config{}, clock: time.Now}
	args := map[string]any{"id": "28", "n": int64(7), "source": "shop/order.paid.DLT", "group": "points", "class": "E", "age": int64(90), "partition": int64(0),
		"outbox": "shop/outbox_message", "state": "failed", "why": "gone", "says_key": "check.connection.reach.down.sentence", "name": "shop",
		"job": "points", "amount": "9.50 CNY", "limit": "5.00 CNY", "action": "credit", "by": "olga", "amounts": "9.50 CNY"}
	for _, r := range a.alertRules() {
		for _, language := range []string{"en", "zh-Hans"} {
			for _, key := range []string{"alert." + r.Name + ".says", "alert." + r.Name + ".name", "alert." + r.Name + ".finds"} {
				if text := alertWords(language, key, args); text == key || strings.ContainsAny(text, "{}") || !locale.Has(key) {
					t.Errorf("%s %s: %q", language, key, text)
				}
			}
		}
		if !config.AlertRuleNames()[r.Name] {
			t.Errorf("the config does not know rule %s", r.Name)
		}
	}
	if got := alertWords("en", "alert.age.says", args); got != "The oldest open letter of shop/order.paid.DLT waits for 1 min 30 s." {
		t.Errorf("%q", got)
	}
	args["class"], args["why"], args["state"], args["n"] = missing, missing, "waiting", int64(1)
	for key, want := range map[string]string{
		"alert.growth.says":         "Fault F-28 grows: 1 letter in the last two hours, more than in any two hours of the day before. An error of unknown class in points, from shop/order.paid.DLT.",
		"alert.consumer_state.says": "Consumer group points does not consume. Waits: no reason is given.",
		"alert.unattended.says":     "shop/order.paid.DLT holds 1 message, and nobody drains it.",
	} {
		if got := alertWords("en", key, args); got != want {
			t.Errorf("%s: %q", key, got)
		}
	}
}

// A finding that is muted, or not critical, is told to nobody.
func TestCriticalFindingsAreTold(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	a := &app{pool: pool, clock: time.Now}
	at := time.Now()
	bad := check.Finding{Code: "connection.reach", Area: "connection", Subject: "connection/shop", Severity: check.Critical, CheckedAt: at, Evidence: []string{},
		Sentence: check.Text{Key: "check.connection.reach.down.sentence", Args: map[string]string{"name": "shop"}, En: "Connection shop cannot be reached."}}
	weak := bad
	weak.Code, weak.Severity = "topic.acks", check.Warning
	if err := check.NewStore(pool).Save(t.Context(), []check.Finding{bad, weak}); err != nil {
		t.Fatal(err)
	}
	found, err := a.lookAtChecks(t.Context())
	if err != nil || len(found) != 1 || alertWords("en", "alert.check.says", found[0].Args) != bad.Sentence.En || alertWords("zh-Hans", "alert.check.says", found[0].Args) != "无法连接 shop。" {
		t.Errorf("%+v, %v, %q", found, err, alertWords("zh-Hans", "alert.check.says", found[0].Args))
	}
	if err := check.NewStore(pool).Mute(t.Context(), operator("known"), bad.Code, bad.Subject, at.Add(time.Hour), at); err != nil {
		t.Fatal(err)
	}
	if found, err = a.lookAtChecks(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("muted: %+v, %v", found, err)
	}
}
