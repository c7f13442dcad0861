package check

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestOldServerIsCritical(t *testing.T) {
	t.Parallel()
	for number, want := range map[int]Severity{130011: Critical, 140000: Passed, 180001: Passed} {
		r := run{}
		r.version("x", number)
		if got := r.findings[0].Severity; got != want {
			t.Errorf("server %d: %s, want %s", number, got, want)
		}
	}
}

// A pass says nothing more; everything else says what it leads to, or that it
// was not looked at, and how to mend it.
func TestMessagesAreComplete(t *testing.T) {
	t.Parallel()
	areas := []string{"console", "connection", "evidence", "topic", "consumer", "source", "retention"}
	for code, m := range messages {
		switch {
		case strings.Count(code, ".") != 2 || !slices.Contains(areas, m.area) || m.sentence == "":
			t.Errorf("%s: misnamed or without sentence", code)
		case m.severity == Passed && (m.mend != "" || m.meaning != ""):
			t.Errorf("%s: passed, but mends something", code)
		case m.severity != Passed && m.mend == "":
			t.Errorf("%s: does not say how to mend it", code)
		case m.severity < NotChecked && m.meaning == "":
			t.Errorf("%s: does not say what it leads to", code)
		}
	}
}

func TestMessagesListsEveryText(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^check\.[a-z_]+\.[a-z_]+\.[a-z_]+\.(sentence|meaning|mend)$`)
	all := Messages()
	for key, text := range all {
		if !name.MatchString(key) || text == "" {
			t.Errorf("%s: %q", key, text)
		}
	}
	if all["check.connection.reach.down.mend"] != messages["connection.reach.down"].mend || len(all) < len(messages) {
		t.Errorf("%d texts of %d messages", len(all), len(messages))
	}
}

func TestSeverityText(t *testing.T) {
	t.Parallel()
	for s := range severityNames {
		text, _ := s.MarshalText()
		var back Severity
		if err := back.UnmarshalText(text); err != nil || back != s {
			t.Errorf("%s came back as %s, %v", s, back, err)
		}
	}
	if err := new(Severity).UnmarshalText([]byte("fine")); err == nil {
		t.Error("an unknown severity was read")
	}
}
