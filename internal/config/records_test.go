package config_test

import (
	"strings"
	"testing"
	"time"

	"oncemore/internal/config"
)

const day = 24 * time.Hour

func TestRecordsPerConnection(t *testing.T) {
	t.Parallel()
	text := strings.Replace(full, "{kind: postgres, ", "{kind: postgres, retention: {consume_records: keep, archive: monthly}, ", 1)
	c, err := config.Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if r := c.RecordsOf("shop"); !r.Forever || !r.Archive || r.Hot != 30*day || r.Keep != 0 {
		t.Errorf("of the connection: %+v", r)
	}
	if r := c.RecordsOf("another"); r.Forever || r.Archive || r.Keep != 90*day {
		t.Errorf("of the file: %+v", r)
	}
	text = strings.Replace(full, "consume_records: 90d", "consume_records: computed, hot: 45d, archive: monthly", 1)
	if c, err = config.Parse("c.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	if r := c.RecordsOf("shop"); r.Forever || !r.Archive || r.Hot != 45*day || r.Keep != 0 {
		t.Errorf("of the file: %+v", r)
	}
}

func TestRecordMistakesNameTheirLine(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct{ old, new, want string }{
		"zero":          {"consume_records: 90d", "consume_records: 0s", "retention.consume_records: has to be computed, keep or a duration"},
		"no duration":   {"consume_records: 90d", "consume_records: ever", "retention.consume_records: has to be a duration"},
		"hot alone":     {"consume_records: 90d", "hot: 30d", "retention: hot is for archive: monthly"},
		"other archive": {"consume_records: 90d", "archive: weekly", "retention.archive: has to be"},
		"unknown key":   {"{kind: postgres, ", "{kind: postgres, retention: {keep: 3d}, ", "connections.shop.retention"},
	} {
		if !strings.Contains(full, m.old) {
			t.Fatalf("%s: no %q in the file", name, m.old)
		}
		_, err := config.Parse("c.yaml", []byte(strings.Replace(full, m.old, m.new, 1)))
		if err == nil || !strings.Contains(err.Error(), m.want) || !strings.Contains(err.Error(), "c.yaml:") {
			t.Errorf("%s: %v, want %q", name, err, m.want)
		}
	}
}
