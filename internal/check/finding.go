// Package check looks for the mistakes that would hurt at three in the morning:
// a missing table, evidence kept too short, a topic that is not there. It owns
// check_finding.
package check

import (
	"fmt"
	"time"
)

// Severity is how bad a finding is. The values stand worst first.
type Severity int16

// The severities. NotChecked is no pass: the check could not look.
const (
	Critical Severity = iota + 1
	Warning
	NotChecked
	Note
	Passed
)

var severityNames = map[Severity]string{
	Critical: "critical", Warning: "warning", NotChecked: "not_checked", Note: "note", Passed: "passed",
}

// String is the severity's name in the API.
func (s Severity) String() string { return severityNames[s] }

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the name.
func (s *Severity) UnmarshalText(text []byte) error {
	for severity, name := range severityNames {
		if name == string(text) {
			*s = severity
			return nil
		}
	}
	return fmt.Errorf("check: %q is no severity", text)
}

// Text is a sentence of the message catalog with its values, and in English.
type Text struct {
	Key  string            `json:"key"`
	Args map[string]string `json:"args,omitempty"`
	En   string            `json:"en"`
}

// Finding is one answer of one check about one object.
type Finding struct {
	Code      string    `json:"code"`    // stable: "consume_record.unique_key"
	Area      string    `json:"area"`    // console | connection | evidence | topic | consumer | source | retention
	Subject   string    `json:"subject"` // the object: connection/shop, group/points-consumer-group
	Severity  Severity  `json:"severity"`
	Sentence  Text      `json:"sentence"`
	Meaning   Text      `json:"meaning"`  // what it leads to; empty for a pass
	Mend      Text      `json:"mend"`     // what to do; empty for a pass
	Evidence  []string  `json:"evidence"` // lines: what was seen, with values
	CheckedAt time.Time `json:"checked_at"`
	Since     time.Time `json:"since"`          // when it got this severity; equals CheckedAt unless Store knows better
	Mute      *Mute     `json:"mute,omitempty"` // nil: nobody has muted it; set by Store alone
}

// Mute says that nobody wants to hear of a finding for a while.
type Mute struct {
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Muted reports whether the finding is muted now. A pass has nothing to mute.
func (f Finding) Muted(now time.Time) bool {
	return f.Mute != nil && now.Before(f.Mute.Until) && f.Severity != Passed
}

// String is the finding in one line.
func (f Finding) String() string {
	return fmt.Sprintf("%s %s [%s]: %s", f.Severity, f.Subject, f.Code, f.Sentence.En)
}

// Worst is the worst severity among the findings; Passed when there are none.
func Worst(findings []Finding) Severity {
	worst := Passed
	for _, f := range findings {
		worst = min(worst, f.Severity)
	}
	return worst
}

// AllPassed reports whether every check looked and liked what it saw. A note is
// no objection.
func AllPassed(findings []Finding) bool {
	return len(findings) > 0 && Worst(findings) >= Note
}
