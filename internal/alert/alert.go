// Package alert tells people what needs them: rules look, what they find lasts
// until it is gone, and channels (e-mail, chats, webhooks) are told once, grouped
// and throttled, whatever the number of replicas. It owns the alert tables.
package alert

import (
	"context"
	"fmt"
	"time"
)

// Severity is how bad it is. The values stand worst first.
type Severity int16

// The severities.
const (
	Critical Severity = iota + 1 // something is lost or stands still
	Warning                      // somebody has to look soon
	Note                         // worth knowing
)

var severityNames = map[Severity]string{Critical: "critical", Warning: "warning", Note: "note"}

// String is the severity's name in the API and in the config.
func (s Severity) String() string { return severityNames[s] }

// ParseSeverity reads a name. Errors: one that lists the names.
func ParseSeverity(name string) (Severity, error) {
	for s, n := range severityNames {
		if n == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("alert: %q is no severity: choose of critical, warning, note", name)
}

// Rule looks for one kind of trouble. Its sentence is the catalog's
// alert.<name>.says, filled with a condition's Args.
type Rule struct {
	Name     string
	Severity Severity
	// Momentary: it happened and is over, such as a new fault. Its end is no news.
	Momentary bool
	// Look lists what is there now. An error means that it could not look, or not
	// everywhere: what is returned with it begins, and nothing ends.
	Look func(ctx context.Context) ([]Condition, error)
	// What is too much, for whoever reads the list of rules; zero: the rule has no
	// such limit.
	OlderThan time.Duration
	Above     int64
	Amounts   map[string]string // decimal by currency
}

// Condition is one thing that a rule found.
type Condition struct {
	Key      string         // what it is about, stable while it lasts, such as fault/28
	Args     map[string]any // values of the sentence: texts and whole numbers
	Href     string         // page of the console, such as /faults/28; "" none
	Severity Severity       // 0: the rule's
}

// Alert is a condition as it was found, and what people made of it.
type Alert struct {
	ID         int64
	Rule       string
	Key        string
	Severity   Severity
	Args       map[string]any
	Href       string
	FirstAt    time.Time
	LastAt     time.Time  // when it was last seen
	ResolvedAt *time.Time // nil: it lasts
	AckedBy    string     // "" nobody
	AckedAt    *time.Time
	AckReason  string
}

// Look is when a rule last looked, and why it could not.
type Look struct {
	Rule       string
	At         time.Time
	Error      string // "" it could
	ErrorSince *time.Time
}
