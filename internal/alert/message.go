package alert

import (
	"strconv"
	"strings"
	"time"
)

// mostLines is how many alerts one message lists, the rest is counted, and mostText
// the bytes of each: with all that surrounds them Feishu takes 20 KB, Teams 28. A
// message that is too long is refused as a whole.
const (
	mostLines = 20
	mostText  = 600
)

// Message is what a channel is told, in its language.
type Message struct {
	Kind  Kind
	At    time.Time
	Title string // one line
	Lines []Line
	More  string // how many are left out; "" none
	Link  string // of the list of alerts; "" without a console_url

	environment string
}

// Line is one alert.
type Line struct {
	Alert
	Word string // the severity, or that it has ended
	Text string // one sentence
	Link string // "" none
}

// fill writes the message.
func (m *Message) fill(o Options, c Channel, alerts []Alert) {
	language := c.Language
	if language == "" {
		language = "en"
	}
	words := func(key string, args map[string]any) string { return o.Words(language, key, args) }
	m.environment = o.Environment
	for _, a := range alerts {
		line := Line{Alert: a, Word: words("alert.severity."+a.Severity.String(), nil), Text: oneLine(words("alert."+a.Rule+".says", a.Args), mostText), Link: link(o.ConsoleURL, a.Href)}
		if a.ResolvedAt != nil {
			line.Word = words("alert.ended", nil)
		}
		m.Lines = append(m.Lines, line)
	}
	m.Title = "[" + o.Environment + "] " + words("alert.title."+m.Kind.String(), map[string]any{"n": len(alerts)})
	if len(m.Lines) == 1 {
		m.Title = "[" + o.Environment + "] " + m.Lines[0].Word + " · " + oneLine(m.Lines[0].Text, 120)
	}
	if left := len(m.Lines) - mostLines; left > 0 {
		m.Lines, m.More = m.Lines[:mostLines], words("alert.more", map[string]any{"n": left})
	}
	m.Link = link(o.ConsoleURL, "/alerts")
}

func link(base, path string) string {
	if base == "" || path == "" {
		return ""
	}
	return strings.TrimRight(base, "/") + path
}

func oneLine(s string, most int) string {
	s = strings.Join(strings.Fields(s), " ")
	if short := cut(s, most); short != s {
		return short + "…"
	}
	return s
}

// plain is the message as text.
func (m Message) plain() string {
	var b strings.Builder
	for _, l := range m.Lines {
		b.WriteString(l.Word + ": " + l.Text + "\n")
		if l.Link != "" {
			b.WriteString(l.Link + "\n")
		}
		b.WriteString("\n")
	}
	if m.More != "" {
		b.WriteString(m.More + "\n")
	}
	if m.Link != "" {
		b.WriteString(m.Link + "\n")
	}
	return b.String()
}

// payload is the message for programs: the generic webhook's body. Names do not
// change; what is not known is null.
type payload struct {
	Version     int            `json:"version"`
	Kind        string         `json:"kind"` // firing | reminder | resolved | test
	Environment string         `json:"environment"`
	At          time.Time      `json:"at"`
	Title       string         `json:"title"`
	Link        *string        `json:"link"`
	Alerts      []alertPayload `json:"alerts"`
}

type alertPayload struct {
	ID         string         `json:"id"`
	Rule       string         `json:"rule"`
	Key        string         `json:"key"`
	Severity   string         `json:"severity"`
	Text       string         `json:"text"`
	Values     map[string]any `json:"values"`
	FirstAt    time.Time      `json:"first_at"`
	ResolvedAt *time.Time     `json:"resolved_at"`
	Link       *string        `json:"link"`
}

func (m Message) payload() payload {
	p := payload{Version: 1, Kind: m.Kind.String(), Environment: m.environment, At: m.At.UTC(), Title: m.Title, Link: orNull(m.Link), Alerts: []alertPayload{}}
	for _, l := range m.Lines {
		p.Alerts = append(p.Alerts, alertPayload{
			ID: strconv.FormatInt(l.ID, 10), Rule: l.Rule, Key: l.Key, Severity: l.Severity.String(), Text: l.Text, Values: l.Args,
			FirstAt: l.FirstAt.UTC(), ResolvedAt: l.ResolvedAt, Link: orNull(l.Link),
		})
	}
	return p
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
