package dialect

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Fields that are read apart.
const (
	fieldEventID = "event_id"
	fieldStack   = "exception_stack"
)

// kind says what a field holds and which values are none.
type kind func(v any) (any, bool)

// fieldKinds are the fields that a dialect may have.
var fieldKinds = map[string]kind{
	"origin_topic":            topic,
	"origin_partition":        integer(0, math.MaxInt32),
	"origin_offset":           integer(0, math.MaxInt64),
	"origin_timestamp":        instant,
	"origin_timestamp_type":   anyText,
	"origin_queue":            name,
	"origin_exchange":         name,
	"origin_routing_key":      name,
	"origin_expiration":       anyText,
	"origin_transport":        name,
	"consumer_group":          name,
	"exception_class":         name,
	"exception_inner_class":   name,
	"exception_wrapper_class": name,
	"exception_message":       anyText,
	fieldStack:                anyText,
	"attempts":                integer(0, math.MaxInt32),
	"failed_at":               instant,
	"first_failed_at":         instant,
	fieldEventID:              anyText, // judged apart, see findEventID
	"component":               anyText,
	"component_task":          integer(0, math.MaxInt64),
	"stage":                   anyText,
	"stage_class":             anyText,
	"trace_id":                anyText,
	"subscriber":              anyText,
	"message_type":            anyText,
	"reason":                  anyText,
	"last_reason":             anyText,
	"redeliveries":            integer(0, math.MaxInt64),
	"acquired":                integer(0, math.MaxInt64),
	"republish_count":         integer(0, math.MaxInt64),
}

// anyText takes text with any bytes; numbers become their digits.
func anyText(v any) (any, bool) {
	switch t := v.(type) {
	case string:
		return t, true
	case []byte:
		return string(t), true
	case int64:
		return strconv.FormatInt(t, 10), true
	case number:
		return string(t), true
	case container:
		return string(t), true
	}
	return nil, false
}

// maxName bounds names; Kafka's and RabbitMQ's own limits are 249 and 255, and
// class names beyond this are no names.
const maxName = 512

// name takes text without control characters, which is shown and compared.
func name(v any) (any, bool) {
	t, ok := anyText(v)
	if !ok {
		return nil, false
	}
	s := t.(string)
	return s, len(s) <= maxName && printable(s)
}

// topic takes what Kafka accepts as a topic's name, and a share group's topic id.
func topic(v any) (any, bool) {
	s, ok := v.(string)
	if !ok || len(s) > 249 || s == "." || s == ".." {
		return nil, false
	}
	return s, strings.IndexFunc(s, func(r rune) bool { return !topicRune(r) }) < 0
}

func topicRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
}

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

func integer(low, high int64) kind {
	return func(v any) (any, bool) {
		n, ok := asInt(v)
		return n, ok && n >= low && n <= high
	}
}

func asInt(v any) (int64, bool) {
	switch t := v.(type) {
	case int64:
		return t, true
	case number:
		n, err := strconv.ParseInt(string(t), 10, 64)
		return n, err == nil
	case string:
		return decimal(t)
	}
	return 0, false
}

// lastMS is the end of the year 9999, beyond which JSON and PostgreSQL part ways.
const lastMS = 253402300799999

// instant takes a time, milliseconds since the epoch, or one of the texts that
// writers of JSON use.
func instant(v any) (any, bool) {
	switch t := v.(type) {
	case time.Time:
		return t.UTC(), t.UnixMilli() >= 0 && t.UnixMilli() <= lastMS
	case string:
		at, ok := parseDotnet(t)
		if !ok {
			return nil, false
		}
		return instant(at)
	}
	ms, ok := asInt(v)
	if !ok || ms < 0 || ms > lastMS {
		return nil, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// FieldNames lists what a dialect may say of a message, sorted.
func FieldNames() []string { return slices.Sorted(maps.Keys(fieldKinds)) }
