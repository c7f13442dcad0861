package compensate

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/adhocore/gronx"
	"go.yaml.in/yaml/v3"

	"oncemore/internal/strictyaml"
	"oncemore/reconcile"
)

// What holds where the file says nothing.
var (
	defaultAttempts = Attempts{Max: 5, Initial: 5 * time.Second, Multiplier: 2, MaxWait: 5 * time.Minute}
	defaultApproval = Approval{Checkers: 1, Expires: 24 * time.Hour}
	defaultSuccess  = []Codes{{200, 299}}
	defaultRetry    = []Codes{{408, 408}, {409, 409}, {425, 425}, {429, 429}, {500, 599}}
	defaultTimeout  = 10 * time.Second
	mostTimeout     = 25 * time.Second // a step of the queue has 30 s
)

// ReadAction reads an action's file. The error lists what is wrong with it, one
// line each, as file:line: key: sentence.
func ReadAction(file string) (*Action, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read action: %w", err)
	}
	return ParseAction(file, b)
}

// ParseAction is ReadAction for bytes that are at hand; file is for messages.
func ParseAction(file string, b []byte) (*Action, error) {
	a := &Action{Hash: sha256.Sum256(b), Attempts: defaultAttempts, Approval: defaultApproval, Mode: Compensating, Verify: true, Zone: time.UTC}
	err := strictyaml.Parse(file, b, func(n node, bad *strictyaml.Problems) {
		a.read(n)
		if len(*bad) == 0 {
			a.check(n)
		}
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

type node = strictyaml.Node

func (a *Action) read(n node) {
	a.Pos = n.Pos()
	single := Step{ID: "action", Timeout: defaultTimeout}
	fields := strictyaml.Fields{
		"action":     func(n node) { n.Name(&a.Name) },
		"summary":    func(n node) { n.Text(&a.Summary) },
		"applies_to": func(n node) { a.readTypes(n) },
		"group":      func(n node) { n.Text(&a.Group) },
		"amount":     func(n node) { n.Text(&a.Amount) },
		"currency":   func(n node) { n.Text(&a.Currency) },
		"kind": func(n node) {
			n.OneOf((*string)(&a.Kind), string(ReplayEvent), string(SQL), string(HTTP), string(Saga))
		},
		"mode":      func(n node) { n.OneOf((*string)(&a.Mode), string(Compensating), string(TryConfirmCancel)) },
		"steps":     func(n node) { n.List(func(n node) { a.Steps = append(a.Steps, readStep(n)) }) },
		"attempts":  func(n node) { a.Attempts.read(n) },
		"approval":  func(n node) { a.Approval.read(n) },
		"limits":    func(n node) { a.Limits.read(n) },
		"automatic": func(n node) { a.Automatic = &Automatic{}; a.Automatic.read(n) },
		"preview":   func(n node) { var s string; n.OneOf(&s, "required") },
		"verify":    func(n node) { var s string; n.OneOf(&s, "rerun_key", "none"); a.Verify = s != "none" },
		"timezone":  func(n node) { n.Zone(&a.Zone) },
	}
	single.fields(fields)
	n.Object(fields, "action", "kind")
	if a.Kind != Saga && len(a.Steps) == 0 {
		single.Kind = a.Kind
		a.Steps = []Step{single}
	}
}

func (a *Action) readTypes(n node) {
	n.List(func(n node) {
		var s string
		n.OneOf(&s, string(reconcile.MissingEffect), string(reconcile.EffectWithoutRecord), string(reconcile.AmountMismatch),
			string(reconcile.DuplicateEffect), string(reconcile.PublishedNotConsumed), string(Letters))
		a.AppliesTo = append(a.AppliesTo, reconcile.Type(s))
	})
}

func readStep(n node) Step {
	s := Step{Timeout: defaultTimeout}
	fields := strictyaml.Fields{
		"id":   func(n node) { n.Name(&s.ID) },
		"kind": func(n node) { n.OneOf((*string)(&s.Kind), string(ReplayEvent), string(SQL), string(HTTP)) },
		"after": func(n node) {
			s.After = []string{}
			n.List(func(n node) { var id string; n.Text(&id); s.After = append(s.After, id) })
		},
		"compensate": func(n node) { n.Name(&s.Compensate) },
		"confirm":    func(n node) { s.Confirm = readRequest(n) },
		"cancel":     func(n node) { s.Cancel = readRequest(n) },
	}
	s.fields(fields)
	n.Object(fields, "id", "kind")
	return s
}

// fields adds the keys that a step and an action of one step share.
func (s *Step) fields(f strictyaml.Fields) {
	request := func() *Request {
		if s.Request == nil {
			s.Request = &Request{Method: "POST", Success: defaultSuccess, Retry: defaultRetry}
		}
		return s.Request
	}
	statement := func() *Statement {
		if s.Statement == nil {
			s.Statement = &Statement{Rows: 1}
		}
		return s.Statement
	}
	for key, read := range requestFields(request) {
		f[key] = read
	}
	f["connection"] = func(n node) { n.Text(&statement().Connection) }
	f["sql"] = func(n node) { n.Text(&statement().Text) }
	f["guard"] = func(n node) { n.Text(&statement().Guard) }
	f["expect"] = func(n node) {
		n.Object(strictyaml.Fields{"rows": func(n node) {
			var rows int
			n.Whole(&rows, 0)
			statement().Rows = int64(rows)
		}}, "rows")
	}
	f["probe"] = func(n node) { s.Probe = readProbe(n) }
	f["timeout"] = func(n node) {
		n.Duration(&s.Timeout)
		if s.Timeout <= 0 || s.Timeout > mostTimeout {
			n.Fail("has to be more than 0 and at most %s", mostTimeout)
		}
	}
}

func requestFields(r func() *Request) strictyaml.Fields {
	return strictyaml.Fields{
		"method":  func(n node) { n.OneOf(&r().Method, "GET", "POST", "PUT", "PATCH", "DELETE") },
		"url":     func(n node) { n.Text(&r().URL) },
		"headers": func(n node) { readHeaders(n, r()) },
		"body":    func(n node) { readBody(n, &r().Body) },
		"success": func(n node) { r().Success = readCodes(n) },
		"retry":   func(n node) { r().Retry = readCodes(n) },
	}
}

func readRequest(n node) *Request {
	r := &Request{Method: "POST", Success: defaultSuccess, Retry: defaultRetry}
	n.Object(requestFields(func() *Request { return r }), "url")
	return r
}

func readHeaders(n node, r *Request) {
	r.Headers = map[string]string{}
	n.Named(func(key string, v node) {
		var value string
		v.Text(&value)
		switch http.CanonicalHeaderKey(key) {
		case "Idempotency-Key":
			v.Fail("is <compensation id>:<step id> for every retry; it is not for a file to say")
		case "Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key":
			v.Fail("is a secret: it belongs under urls in the config, as headers of the base")
		}
		r.Headers[key] = value
	})
}

// readBody takes a tree of texts: a number would be written by a YAML library,
// which may round it.
func readBody(n node, into *any) {
	switch n.Kind {
	case yaml.MappingNode:
		object := map[string]any{}
		n.Named(func(key string, v node) {
			var value any
			readBody(v, &value)
			object[key] = value
		})
		*into = object
	case yaml.SequenceNode:
		list := []any{}
		n.List(func(v node) {
			var value any
			readBody(v, &value)
			list = append(list, value)
		})
		*into = list
	default:
		if n.Tag == "!!float" {
			n.Fail("has to be text: a number with a fraction may be rounded; write \"%s\"", n.Value)
		}
		if err := n.Decode(into); err != nil {
			n.Fail("cannot be read: %v", err)
		}
	}
}

func readCodes(n node) (codes []Codes) {
	n.List(func(n node) {
		class, isClass := strings.CutSuffix(n.Value, "xx")
		digits, err := strconv.Atoi(class)
		switch {
		case err == nil && isClass && digits >= 1 && digits <= 5:
			codes = append(codes, Codes{digits * 100, digits*100 + 99})
		case err == nil && !isClass && digits >= 100 && digits <= 599:
			codes = append(codes, Codes{digits, digits})
		default:
			n.Fail("has to be a status such as 409 or 5xx, not %q", n.Value)
		}
	})
	return codes
}

func readProbe(n node) *Probe {
	p := &Probe{}
	request := func() *Request {
		if p.Request == nil {
			p.Request = &Request{Method: "GET", Success: defaultSuccess, Retry: defaultRetry}
		}
		return p.Request
	}
	fields := requestFields(request)
	delete(fields, "success")
	fields["applied_when"] = func(n node) {
		n.Object(strictyaml.Fields{"status": func(n node) {
			if n.Kind == yaml.SequenceNode {
				p.Applied = readCodes(n)
				return
			}
			var status int
			n.Whole(&status, 100)
			p.Applied = []Codes{{status, status}}
		}}, "status")
	}
	fields["connection"] = func(n node) { p.statement().read(n, "connection") }
	fields["sql"] = func(n node) { p.statement().read(n, "sql") }
	n.Object(fields)
	if (p.Request == nil) == (p.Statement == nil) {
		n.Fail("has to have either url, or connection and sql")
	}
	if p.Request != nil && len(p.Applied) == 0 {
		p.Applied = defaultSuccess
	}
	return p
}

func (p *Probe) statement() *Statement {
	if p.Statement == nil {
		p.Statement = &Statement{}
	}
	return p.Statement
}

func (s *Statement) read(n node, key string) {
	if key == "connection" {
		n.Text(&s.Connection)
	} else {
		n.Text(&s.Text)
	}
}

func (a *Attempts) read(n node) {
	n.Object(strictyaml.Fields{
		"max":        func(n node) { n.Whole(&a.Max, 1) },
		"initial":    func(n node) { n.Duration(&a.Initial) },
		"multiplier": func(n node) { n.Number(&a.Multiplier, 1) },
		"max_wait":   func(n node) { n.Duration(&a.MaxWait) },
	})
}

func (a *Approval) read(n node) {
	n.Object(strictyaml.Fields{
		"checkers": func(n node) { n.Whole(&a.Checkers, 1) },
		"above": func(n node) {
			if n.Kind == yaml.SequenceNode {
				n.List(a.readTier)
				return
			}
			a.readTier(n)
		},
		"expires": func(n node) { n.Duration(&a.Expires) },
	})
	if a.Expires <= 0 {
		n.Fail("expires has to be more than 0")
	}
}

func (a *Approval) readTier(n node) {
	var t Tier
	n.Object(strictyaml.Fields{
		"amount":   func(n node) { readAmount(n, &t.Amount) },
		"checkers": func(n node) { n.Whole(&t.Checkers, 1) },
	}, "amount", "checkers")
	a.Above = append(a.Above, t)
}

// readAmount reads a decimal that is written as text.
func readAmount(n node, into *reconcile.Amount) {
	amount, err := reconcile.ParseAmount(n.Value)
	if n.Tag != "!!str" || err != nil || amount.Sign() < 0 {
		n.Fail("has to be a decimal in quotes of at least 0 such as \"1000\", not %s", n.What())
		return
	}
	*into = amount
}

var perSecond = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)/(s|min)$`)

func (l *Limits) read(n node) {
	n.Object(strictyaml.Fields{
		"per_batch":      func(n node) { n.Whole(&l.PerBatch, 1) },
		"amount_per_day": func(n node) { l.AmountPerDay = &reconcile.Amount{}; readAmount(n, l.AmountPerDay) },
		"rate": func(n node) {
			m := perSecond.FindStringSubmatch(n.Value)
			if m == nil {
				n.Fail("has to be a rate such as 5/s or 30/min, not %s", n.What())
				return
			}
			l.Rate, _ = strconv.ParseFloat(m[1], 64) //nolint:errcheck // it matched
			if m[2] == "min" {
				l.Rate /= 60
			}
		},
	})
}

func (a *Automatic) read(n node) {
	n.Object(strictyaml.Fields{
		"schedule": func(n node) {
			n.Text(&a.Schedule)
			if len(strings.Fields(a.Schedule)) != 5 || !gronx.IsValid(a.Schedule) {
				n.Fail("has to be a cron expression of five fields such as \"*/15 * * * *\", not %q", a.Schedule)
			}
		},
		"below":          func(n node) { readAmount(n, &a.Below) },
		"per_run":        func(n node) { n.Whole(&a.PerRun, 1) },
		"amount_per_day": func(n node) { readAmount(n, &a.AmountPerDay) },
		"older_than":     func(n node) { n.Duration(&a.OlderThan) },
	}, "schedule", "below", "per_run", "amount_per_day")
}

// check looks at what fits together.
func (a *Action) check(n node) {
	if a.Kind == Saga && len(a.Steps) == 0 {
		n.Fail("a saga has to have steps")
	}
	if a.Kind != Saga && len(a.Steps) > 1 {
		n.Fail("steps are for kind: saga")
	}
	seen := map[string]bool{}
	for _, s := range a.Steps {
		a.checkStep(n, s, seen)
		seen[s.ID] = true
	}
	if a.Kind == ReplayEvent && a.Group == "" {
		n.Fail("replay_event needs group: the consumer group that is to apply the event")
	}
}

func (a *Action) checkStep(n node, s Step, before map[string]bool) {
	switch {
	case before[s.ID]:
		n.Fail("step %s is there twice", s.ID)
	case s.Kind == HTTP && (s.Request == nil || s.Request.URL == ""):
		n.Fail("step %s of kind http needs url", s.ID)
	case s.Kind == SQL && (s.Statement == nil || s.Statement.Connection == "" || s.Statement.Text == ""):
		n.Fail("step %s of kind sql needs connection and sql", s.ID)
	case a.Mode == TryConfirmCancel && (s.Kind != HTTP || s.Confirm == nil || s.Cancel == nil):
		n.Fail("step %s of a tcc needs kind http, confirm and cancel", s.ID)
	case a.Mode == TryConfirmCancel && s.Compensate != "":
		n.Fail("step %s of a tcc is undone by its cancel; compensate is for mode: compensate", s.ID)
	case a.Mode != TryConfirmCancel && (s.Confirm != nil || s.Cancel != nil):
		n.Fail("step %s: confirm and cancel are for mode: tcc", s.ID)
	}
	if s.Statement != nil && s.Statement.check() != "" {
		n.Fail("step %s: %s", s.ID, s.Statement.check())
	}
	if s.Probe != nil && s.Probe.Statement != nil && s.Probe.Statement.checkAsked() != "" {
		n.Fail("step %s: %s", s.ID, s.Probe.Statement.checkAsked())
	}
	for _, id := range s.After {
		if !before[id] {
			n.Fail("step %s comes after %s, which has to stand above it", s.ID, id)
		}
	}
}

// before lists the steps that have to be done before one.
func (a *Action) before(i int) []string {
	s := a.Steps[i]
	if s.After != nil || i == 0 {
		return s.After
	}
	return []string{a.Steps[i-1].ID}
}
