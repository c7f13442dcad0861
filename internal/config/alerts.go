package config

import (
	"net"
	"net/mail"
	"net/url"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"
)

// Alerts say who is told of what. Without channels the console still looks, and
// shows what it finds.
type Alerts struct {
	ConsoleURL string        // base of links in messages; "": none
	Throttle   time.Duration // at most one message per channel within this; 0: 5 min
	Repeat     time.Duration // after which what nobody acknowledged is told again; 0: 4 h
	Rules      map[string]AlertRule
	Channels   []AlertChannel
}

// AlertRule changes a rule; the zero value leaves it as it is.
type AlertRule struct {
	Pos       Pos
	Off       bool
	Severity  string            // critical | warning | note; "": the rule's
	OlderThan time.Duration     // 0: the rule's
	Above     int               // -1: the rule's
	Amounts   map[string]string // decimal by currency, "none" where a job has none; nil: nothing is watched
}

// AlertChannel is one receiver.
type AlertChannel struct {
	Pos      Pos
	Name     string
	Type     string // email | webhook | slack | teams | dingtalk | feishu | wecom
	URL      Secret // of the webhook
	Secret   Secret // signature or bearer token; may be unset
	Mail     *AlertMail
	Language string   // en | zh-Hans; "": en
	Severity string   // what is less bad is not told; "": all
	Rules    []string // nil: all
}

// AlertMail is a mail server and who gets the mails.
type AlertMail struct {
	Server         string
	TLS            string // starttls | tls | none
	User, Password Secret // may be unset
	From           string
	To             []string
}

// alertRules are the rules' names and which keys each takes.
var alertRules = map[string]struct{ olderThan, above, amounts bool }{
	"new_fault": {}, "growth": {}, "age": {olderThan: true}, "unattended": {}, "drain_lag": {above: true}, "gap": {}, "swallowed": {}, "rival": {},
	"count_drift": {above: true}, "outbox_age": {olderThan: true}, "outbox_dead": {}, "consumer_state": {}, "check": {},
	"run_failed": {}, "run_overdue": {olderThan: true}, "at_risk": {amounts: true}, "break_age": {olderThan: true},
	"needs_attention": {}, "approval_age": {olderThan: true}, "kill_switch": {}, "day_limit": {},
}

// AlertRuleNames are the rules that a config may name.
func AlertRuleNames() map[string]bool {
	names := map[string]bool{}
	for name := range alertRules {
		names[name] = true
	}
	return names
}

func readAlerts(n node, a *Alerts) {
	n.Object(fields{
		"console_url": func(n node) { readConsoleURL(n, &a.ConsoleURL) },
		"throttle":    func(n node) { n.Duration(&a.Throttle) },
		"repeat":      func(n node) { n.Duration(&a.Repeat) },
		"rules":       func(n node) { readAlertRules(n, a) },
		"channels":    func(n node) { a.Channels = readNamed(n, readAlertChannel) },
	})
	for _, c := range a.Channels {
		for _, rule := range c.Rules {
			if _, known := alertRules[rule]; !known {
				n.Fail("channel %s: there is no rule %q", c.Name, rule)
			}
		}
	}
}

func readConsoleURL(n node, into *string) {
	n.Text(into)
	u, err := url.Parse(*into)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		n.Fail("has to be the console's address such as https://console.example, not %q", *into)
	}
}

func readAlertRules(n node, a *Alerts) {
	a.Rules = map[string]AlertRule{}
	n.Named(func(name string, v node) {
		takes, known := alertRules[name]
		if !known {
			v.Fail("there is no such rule")
			return
		}
		r := AlertRule{Pos: v.Pos(), Above: -1}
		f := fields{
			"off":      func(n node) { n.Yes(&r.Off) },
			"severity": func(n node) { n.OneOf(&r.Severity, "critical", "warning", "note") },
		}
		if takes.olderThan {
			f["older_than"] = func(n node) { n.Duration(&r.OlderThan) }
		}
		if takes.above {
			f["above"] = func(n node) { n.Whole(&r.Above, 0) }
		}
		if takes.amounts {
			f["amounts"] = func(n node) { readAmounts(n, &r) }
		}
		v.Object(f)
		a.Rules[name] = r
	})
}

var plainAmount = regexp.MustCompile(`^\d{1,18}(\.\d{1,9})?$`)

// readAmounts reads decimals by currency, written as text: YAML's own numbers are
// binary fractions.
func readAmounts(n node, r *AlertRule) {
	r.Amounts = map[string]string{}
	n.Named(func(currency string, v node) {
		if v.Tag != "!!str" || !plainAmount.MatchString(v.Value) {
			v.Fail("has to be a decimal in quotes such as \"1000.00\"")
			return
		}
		r.Amounts[currency] = v.Value
	})
}

// readAlertChannel reads a channel: its kind is the one key that names a receiver.
func readAlertChannel(name string, n node) AlertChannel {
	c := AlertChannel{Pos: n.Pos(), Name: name}
	f := fields{
		"language": func(n node) { n.OneOf(&c.Language, "en", "zh-Hans") },
		"severity": func(n node) { n.OneOf(&c.Severity, "critical", "warning", "note") },
		"rules":    func(n node) { n.Texts(&c.Rules) },
		"email":    func(n node) { c.kind(n, "email"); c.Mail = readAlertMail(n) },
	}
	for kind, key := range map[string]string{"webhook": "token", "slack": "", "teams": "", "dingtalk": "secret", "feishu": "secret", "wecom": ""} {
		f[kind] = func(n node) { c.kind(n, kind); readHook(n, &c, key) }
	}
	n.Object(f)
	if c.Type == "" && n.Kind == yaml.MappingNode {
		n.Fail("names no receiver: one of email, webhook, slack, teams, dingtalk, feishu, wecom")
	}
	return c
}

func (c *AlertChannel) kind(n node, kind string) {
	if c.Type != "" {
		n.Fail("a channel is one receiver, and %s stands here as well", c.Type)
	}
	c.Type = kind
}

func readHook(n node, c *AlertChannel, key string) {
	f := fields{}
	secret(f, "url", &c.URL)
	if key != "" {
		secret(f, key, &c.Secret)
	}
	n.Object(f)
	needSecret(n, "url", c.URL)
}

func readAlertMail(n node) *AlertMail {
	m := &AlertMail{TLS: "starttls"}
	f := fields{
		"server": func(n node) { readServer(n, &m.Server) },
		"tls":    func(n node) { n.OneOf(&m.TLS, "starttls", "tls", "none") },
		"from":   func(n node) { readMailbox(n, &m.From) },
		"to":     func(n node) { readMailboxes(n, &m.To) },
	}
	secret(f, "user", &m.User)
	secret(f, "password", &m.Password)
	n.Object(f, "server", "from", "to")
	if m.User.Set() != m.Password.Set() {
		n.Fail("user and password go together")
	}
	if m.User.Set() && m.TLS == "none" {
		n.Fail("a password is not sent without TLS: set tls to starttls or tls")
	}
	return m
}

func readServer(n node, into *string) {
	n.Text(into)
	if _, _, err := net.SplitHostPort(*into); err != nil {
		n.Fail("has to be host:port such as mail.example:587, not %q", *into)
	}
}

func readMailbox(n node, into *string) {
	n.Text(into)
	if _, err := mail.ParseAddress(*into); err != nil {
		n.Fail("%q is no mail address", *into)
	}
}

func readMailboxes(n node, into *[]string) {
	n.Texts(into)
	for _, to := range *into {
		if _, err := mail.ParseAddress(to); err != nil {
			n.Fail("%q is no mail address", to)
		}
	}
}
