package config_test

import (
	"strings"
	"testing"
	"time"

	"oncemore/internal/config"
)

const alerts = full + `alerts:
  console_url: https://console.example
  throttle: 10m
  rules:
    age: {older_than: 2d, severity: critical}
    growth: {off: true}
    drain_lag: {above: 0}
    at_risk: {amounts: {CNY: "1000.00", none: "5"}}
  channels:
    mail: {email: {server: "mail.example:587", user_env: U, password_env: P, from: console@example.com, to: [ops@example.com, "Lead <lead@example.com>"]}}
    chat: {dingtalk: {url_env: DING, secret_env: DING_SECRET}, language: zh-Hans, severity: warning, rules: [gap, age]}
    hook: {webhook: {url_file: /run/hook, token_env: HOOK_TOKEN}}
`

func TestAlertsAreRead(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte(alerts))
	if err != nil {
		t.Fatal(err)
	}
	a := c.Alerts
	if a.ConsoleURL != "https://console.example" || a.Throttle != 10*time.Minute || a.Repeat != 0 || len(a.Channels) != 3 {
		t.Errorf("%+v", a)
	}
	if r := a.Rules["age"]; r.OlderThan != 2*day || r.Severity != "critical" || r.Above != -1 {
		t.Errorf("age: %+v", r)
	}
	if !a.Rules["growth"].Off || a.Rules["drain_lag"].Above != 0 {
		t.Errorf("rules: %+v", a.Rules)
	}
	if got := a.Rules["at_risk"].Amounts; len(got) != 2 || got["CNY"] != "1000.00" || got["none"] != "5" {
		t.Errorf("amounts: %v", got)
	}
	mail, chat, hook := a.Channels[0], a.Channels[1], a.Channels[2]
	if mail.Type != "email" || mail.Mail.TLS != "starttls" || mail.Mail.User.Env != "U" || len(mail.Mail.To) != 2 {
		t.Errorf("mail: %+v", mail)
	}
	if chat.Type != "dingtalk" || chat.URL.Env != "DING" || chat.Secret.Env != "DING_SECRET" || chat.Language != "zh-Hans" || len(chat.Rules) != 2 {
		t.Errorf("chat: %+v", chat)
	}
	if hook.Type != "webhook" || hook.URL.File != "/run/hook" || hook.Secret.Env != "HOOK_TOKEN" {
		t.Errorf("hook: %+v", hook)
	}
	if c, err = config.Parse("c.yaml", []byte(full)); err != nil || c.Alerts.Channels != nil {
		t.Errorf("without alerts: %+v %v", c.Alerts, err)
	}
}

func TestAlertMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct{ old, new, want string }{
		"unknown rule":         {"growth: {off", "grwoth: {off", "alerts.rules.grwoth: there is no such rule"},
		"rule of a channel":    {"rules: [gap, age]", "rules: [gap, old]", `there is no rule "old"`},
		"key of another rule":  {"growth: {off: true}", "growth: {older_than: 1d}", "alerts.rules.growth.older_than: unknown key"},
		"amount as a number":   {`CNY: "1000.00"`, "CNY: 1000.00", "at_risk.amounts.CNY: has to be a decimal in quotes"},
		"amount below zero":    {`CNY: "1000.00"`, `CNY: "-1"`, "at_risk.amounts.CNY: has to be a decimal in quotes"},
		"amounts of another":   {"growth: {off: true}", `growth: {amounts: {CNY: "1"}}`, "alerts.rules.growth.amounts: unknown key"},
		"two receivers":        {"webhook: {url_file: /run/hook, token_env: HOOK_TOKEN}", "slack: {url_env: A}, teams: {url_env: B}", "a channel is one receiver"},
		"no receiver":          {"hook: {webhook: {url_file: /run/hook, token_env: HOOK_TOKEN}}", "hook: {language: en}", "names no receiver"},
		"address in the file":  {"webhook: {url_file: /run/hook,", "webhook: {url: \"https://hooks.example/secret\",", "secrets are not written here"},
		"no address":           {"url_env: DING, ", "", "needs url_env or url_file"},
		"bad mail address":     {"to: [ops@example.com,", "to: [ops,", `"ops" is no mail address`},
		"password in the open": {"from: console", "tls: none, from: console", "a password is not sent without TLS"},
		"user alone":           {", password_env: P", "", "user and password go together"},
		"no port":              {`"mail.example:587"`, "mail.example", "has to be host:port"},
		"bad console":          {"https://console.example", "console.example", "has to be the console's address"},
	} {
		if !strings.Contains(alerts, m.old) {
			t.Fatalf("%s: no %q in the file", name, m.old)
		}
		_, err := config.Parse("c.yaml", []byte(strings.Replace(alerts, m.old, m.new, 1)))
		if err == nil || !strings.Contains(err.Error(), m.want) || !strings.Contains(err.Error(), "c.yaml:") || strings.Contains(err.Error(), "hooks.example") {
			t.Errorf("%s: %v, want %q", name, err, m.want)
		}
	}
}
