package reconcile

import (
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/adhocore/gronx"

	"oncemore/internal/strictyaml"
)

// What holds where the file says nothing.
const (
	defaultStatement = 30 * time.Second
	defaultRun       = 20 * time.Minute
	defaultBreaks    = 10_000
	defaultParallel  = 2
)

// ReadJob reads a job's file. The error lists what is wrong with it, one line
// each, as file:line: key: sentence.
func ReadJob(file string) (*Job, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read job: %w", err)
	}
	return ParseJob(file, b)
}

// ParseJob is ReadJob for bytes that are at hand; file is for messages.
func ParseJob(file string, b []byte) (*Job, error) {
	j := &Job{
		Zone: time.UTC, Hash: sha256.Sum256(b),
		Limits:  Limits{Statement: defaultStatement, Run: defaultRun, Breaks: defaultBreaks, Parallel: defaultParallel},
		SignOff: SignOff{Required: true},
	}
	err := strictyaml.Parse(file, b, func(n strictyaml.Node, bad *strictyaml.Problems) {
		j.read(n)
		if len(*bad) == 0 {
			j.check(n, bad)
		}
	})
	if err != nil {
		return nil, err
	}
	return j, nil
}

type node = strictyaml.Node

func (j *Job) read(n node) {
	j.Pos = n.Pos()
	n.Object(strictyaml.Fields{
		"job":       func(n node) { n.Name(&j.Name) },
		"timezone":  func(n node) { n.Zone(&j.Zone) },
		"schedule":  func(n node) { readSchedule(n, &j.Schedule) },
		"window":    func(n node) { j.Window.read(n) },
		"outbox":    func(n node) { j.Outbox = &Side{}; j.Outbox.read(n) },
		"consumed":  func(n node) { j.Consumed.read(n) },
		"effect":    func(n node) { j.Effect.read(n) },
		"key":       func(n node) { n.Texts(&j.Key) },
		"match":     func(n node) { j.Match.read(n) },
		"tolerance": func(n node) { j.Tolerance.read(n) },
		"limits":    func(n node) { j.Limits.read(n) },
		"sign_off":  func(n node) { j.SignOff.read(n) },
		"recheck":   func(n node) { n.List(func(n node) { j.Recheck = append(j.Recheck, readAge(n)) }) },
	}, "job", "window", "consumed", "effect", "key", "match")
}

func readSchedule(n node, into *string) {
	n.Text(into)
	if fields := strings.Fields(*into); len(fields) != 5 || !gronx.IsValid(*into) {
		n.Fail("has to be a cron expression of five fields such as \"15 * * * *\", not %q", *into)
	}
}

func readAge(n node) time.Duration {
	var d time.Duration
	n.Duration(&d)
	if d <= 0 {
		n.Fail("has to be more than 0")
	}
	return d
}

func (w *Window) read(n node) {
	n.Object(strictyaml.Fields{
		"size":    func(n node) { w.Size = readAge(n) },
		"overlap": func(n node) { n.Duration(&w.Overlap) },
		"grace":   func(n node) { n.Duration(&w.Grace) },
	}, "size", "grace")
	if w.Size > 0 && w.Overlap > w.Size {
		n.Fail("overlap (%s) is more than size (%s)", w.Overlap, w.Size)
	}
}

func (s *Side) read(n node) {
	s.Pos, s.Zone = n.Pos(), time.UTC
	n.Object(strictyaml.Fields{
		"connection": func(n node) { n.Text(&s.Connection) },
		"query":      func(n node) { n.Text(&s.Query); needs(n, s.Query, ":from", ":to") },
		"lookup":     func(n node) { n.Text(&s.Lookup); needs(n, s.Lookup, ":keys") },
		"timezone":   func(n node) { n.Zone(&s.Zone) },
	}, "connection", "query", "lookup")
}

// needs complains about parameters that a statement does not use.
func needs(n node, sql string, params ...string) {
	for _, p := range params {
		if sql != "" && !strings.Contains(sql, p) {
			n.Fail("has to use %s", p)
		}
	}
}

func (m *Match) read(n node) {
	n.Object(strictyaml.Fields{
		"mode":          func(n node) { n.OneOf((*string)(&m.Mode), string(OneToOne), string(OneToMany)) },
		"amount":        func(n node) { readColumn(n, &m.Amount) },
		"currency":      func(n node) { readColumn(n, &m.Currency) },
		"outbox_time":   func(n node) { n.Text(&m.OutboxTime) },
		"consumed_time": func(n node) { n.Text(&m.ConsumedTime) },
		"effect_time":   func(n node) { n.Text(&m.EffectTime) },
	}, "mode", "amount", "currency", "consumed_time", "effect_time")
	if m.OutboxTime == "" {
		m.OutboxTime = m.EffectTime
	}
	if m.Amount == "" && m.Currency != "" {
		n.Fail("currency without an amount: there is nothing that it is the currency of")
	}
}

// readColumn reads a column's name; none stands for no column.
func readColumn(n node, into *string) {
	n.Text(into)
	if *into == "none" {
		*into = ""
	}
}

func (t *Tolerance) read(n node) {
	n.Object(strictyaml.Fields{
		"amount":        func(n node) { readAmount(n, &t.Amount) },
		"percent":       func(n node) { readAmount(n, &t.Percent) },
		"time":          func(n node) { n.Duration(&t.Time) },
		"run_total_cap": func(n node) { t.RunTotalCap = &Amount{}; readAmount(n, t.RunTotalCap) },
	})
}

// readAmount reads a decimal that is written as text: YAML's own numbers are
// binary fractions to most readers, and 0.1 is none.
func readAmount(n node, into *Amount) {
	if n.Tag == "!!float" || n.Tag == "!!int" {
		n.Fail("has to be in quotes: \"%s\"", n.Value)
		return
	}
	if n.Tag != "!!str" {
		n.Fail("has to be a decimal in quotes such as \"0.01\", not %s", n.What())
		return
	}
	a, err := ParseAmount(n.Value)
	if err != nil || a.Sign() < 0 {
		n.Fail("has to be a decimal of at least 0 such as \"0.01\", not %q", n.Value)
		return
	}
	*into = a
}

func (l *Limits) read(n node) {
	n.Object(strictyaml.Fields{
		"statement": func(n node) { l.Statement = readAge(n) },
		"run":       func(n node) { l.Run = readAge(n) },
		"breaks":    func(n node) { n.Whole(&l.Breaks, 1) },
		"parallel":  func(n node) { n.Whole(&l.Parallel, 1) },
	})
}

func (s *SignOff) read(n node) {
	n.Object(strictyaml.Fields{
		"required":   func(n node) { n.Yes(&s.Required) },
		"auto_below": func(n node) { s.AutoBelow = &Amount{}; readAmount(n, s.AutoBelow) },
	})
}

// check looks at what fits together, once every value by itself is right.
func (j *Job) check(n node, bad *strictyaml.Problems) {
	seen := map[string]bool{}
	for _, column := range j.Key {
		if seen[column] {
			n.Fail("key names %s twice", column)
		}
		seen[column] = true
	}
	for _, p := range j.parties() {
		if err := j.statements(p); err != nil {
			bad.Add(j.side(p).Pos.Problemf("%v", err))
		}
	}
	if j.Match.Amount == "" && (!j.Tolerance.Amount.IsZero() || !j.Tolerance.Percent.IsZero()) {
		n.Fail("tolerance of an amount, but match.amount is none")
	}
}
