package dialect

import (
	"strings"
	"testing"
	"time"
)

func TestEncodings(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 14, 9, 26, 53, 589_000_000, time.UTC)
	cases := []struct {
		enc, in string
		want    any
	}{
		{"utf8", "grün", "grün"},
		{"utf8", "", ""},
		{"utf8", "g\xfcn\x00", "g\xfcn\x00"},
		{"decimal-string", "-12", int64(-12)},
		{"decimal-string", "9223372036854775807", int64(9223372036854775807)},
		{"int32-be", "\xff\xff\xff\xfe", int64(-2)},
		{"int32-be", "\x00\x00\x01\x00", int64(256)},
		{"int64-be", "\x00\x00\x00\x01\x00\x00\x00\x05", int64(4294967301)},
		{"int64-be", "\xff\xff\xff\xff\xff\xff\xff\xff", int64(-1)},
		{"int-be-minimal", "\x7f", int64(127)},
		{"int-be-minimal", "\x80", int64(-128)},
		{"int-be-minimal", "\x00\x80", int64(128)},
		{"int-be-minimal", "\x01\x9c\xeb\xab\x89\x95", at.UnixMilli()},
		{"uint8-or-int32-be", "\x82", int64(130)},
		{"uint8-or-int32-be", "\x00\x00\x01\x2c", int64(300)},
		{"epoch-ms-string", "1773480413589", at},
		{"dotnet-ticks-string", "639090772135890000", at},
		{"rfc3339", "2026-03-14T10:26:53.589+01:00", at},
		{"rfc3339", "2026-03-14T09:26:53.589000000Z", at},
		{"dotnet-round-trip", "2026-03-14T09:26:53.5890000", at},
		{"dotnet-round-trip", "2026-03-14T11:26:53.5890000+02:00", at},
		{"nservicebus-time", "2026-03-14 09:26:53:589000 Z", at},
		{"amqp-longstr", "text", "text"},
		{"java-serialized", "\xac\xed\x00\x05", "\xac\xed\x00\x05"},
	}
	for _, c := range cases {
		got, ok := encodings[c.enc](Header{Value: []byte(c.in)})
		if when, isTime := c.want.(time.Time); isTime {
			gotTime, _ := got.(time.Time)
			ok = ok && gotTime.Equal(when)
			got = c.want
		}
		if !ok || got != c.want {
			t.Errorf("%s of %q = %#v, %v, want %#v", c.enc, c.in, got, ok, c.want)
		}
	}
}

func TestTypedEncodings(t *testing.T) {
	t.Parallel()
	at := time.Unix(1773480413, 0)
	for enc, good := range map[string]any{
		"amqp-long": int64(7), "amqp-timestamp": at, "amqp-bool": true,
		"amqp-array": []any{int64(1)}, "amqp-table": map[string]any{"a": int64(1)}, "amqp-longstr": "x",
	} {
		if _, ok := encodings[enc](Header{Typed: good}); !ok {
			t.Errorf("%s refuses %v", enc, good)
		}
		if got, ok := encodings[enc](Header{Typed: 1.5}); ok {
			t.Errorf("%s takes a double: %v", enc, got)
		}
	}
}

func TestMalformedValuesAreNoValue(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"decimal-string":      {"", "+1", "1.0", " 1", "1 ", "0x10", "１２", "9223372036854775808", "abc", "1\x00"},
		"int32-be":            {"", "\x00", "\x00\x00\x00", "\x00\x00\x00\x00\x00", "12345678"},
		"int64-be":            {"", "\x00\x00\x00\x00", "123456789"},
		"int-be-minimal":      {"", "123456789"},
		"uint8-or-int32-be":   {"", "ab", "abc", "abcde"},
		"epoch-ms-string":     {"", "-1", "99999999999999999", "soon"},
		"dotnet-ticks-string": {"", "-5", "ticks", "9223372036854775808"},
		"rfc3339":             {"", "2026-03-14", "2026-03-14T09:26:53", "2026-03-14T09:26:53.1234567890Z", "2026-13-14T09:26:53Z"},
		"dotnet-round-trip":   {"", "14/03/2026", "2026-03-14T09:26:53.12345678901"},
		"nservicebus-time":    {"", "2026-03-14 09:26:53.589000 Z", ":", "2026-03-14 09:26:53:58 Z"},
		"json":                {"", "{", "nul", "{}{}", strings.Repeat("[", 100_000)},
		"amqp-long":           {"7"},
		"amqp-timestamp":      {"7"},
		"amqp-bool":           {"true"},
		"amqp-array":          {"[]"},
		"amqp-table":          {"{}"},
	}
	for enc := range encodings {
		for _, in := range cases[enc] {
			if got, ok := encodings[enc](Header{Value: []byte(in)}); ok {
				t.Errorf("%s takes %.40q as %v", enc, in, got)
			}
		}
		if got, ok := encodings[enc](Header{}); ok {
			t.Errorf("%s takes a null as %v", enc, got)
		}
	}
}

func TestFieldsRefuseWhatCannotBe(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string][]any{
		"origin_topic":     {"a b", "orders\x00", "..", strings.Repeat("x", 250), "übung", int64(3)},
		"origin_partition": {int64(-1), int64(1) << 31, "x"},
		"origin_offset":    {int64(-1), true},
		"attempts":         {int64(-1), int64(1) << 40},
		"failed_at":        {int64(-1), int64(lastMS + 1), "yesterday", true},
		"consumer_group":   {"a\nb", "\xff", strings.Repeat("g", 600)},
		"exception_class":  {"java.lang.\x00", strings.Repeat("C", 600)},
	} {
		for _, v := range bad {
			if got, ok := fieldKinds[name](v); ok {
				t.Errorf("%s takes %v as %v", name, v, got)
			}
		}
	}
}
