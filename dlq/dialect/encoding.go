package dialect

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// number is a JSON number as it was written.
type number string

// encoding turns a header's value into a string (any bytes), int64, time.Time,
// gjson.Result, []any, map[string]any or bool. False: the value is malformed.
type encoding func(h Header) (any, bool)

var encodings = map[string]encoding{
	"utf8":                text,
	"decimal-string":      ofText(func(s string) (any, bool) { return ok2(decimal(s)) }),
	"int32-be":            ofBytes(4, 4, signed),
	"int64-be":            ofBytes(8, 8, signed),
	"int-be-minimal":      ofBytes(1, 8, signed),
	"uint8-or-int32-be":   byteOrInt32,
	"epoch-ms-string":     ofText(epochMS),
	"dotnet-ticks-string": ofText(dotnetTicks),
	"rfc3339":             ofText(func(s string) (any, bool) { return ok2(parseRFC3339(s)) }),
	"dotnet-round-trip":   ofText(func(s string) (any, bool) { return ok2(parseDotnet(s)) }),
	"nservicebus-time":    ofText(nserviceBusTime),
	"json":                ofText(func(s string) (any, bool) { return ok2(parseJSON([]byte(s))) }),
	"amqp-longstr":        text,
	"amqp-long":           typed[int64],
	"amqp-timestamp":      typed[time.Time],
	"amqp-bool":           typed[bool],
	"amqp-array":          typed[[]any],
	"amqp-table":          typed[map[string]any],
	"java-serialized":     text, // opaque: never decoded
}

func ok2[T any](v T, ok bool) (any, bool) { return v, ok }

func text(h Header) (any, bool) {
	switch t := h.Typed.(type) {
	case nil:
		return string(h.Value), h.Value != nil
	case string:
		return t, true
	case []byte:
		return string(t), true
	}
	return nil, false
}

func typed[T any](h Header) (any, bool) {
	v, ok := h.Typed.(T)
	return v, ok
}

func ofText(read func(string) (any, bool)) encoding {
	return func(h Header) (any, bool) {
		s, ok := text(h)
		if !ok {
			return nil, false
		}
		return read(s.(string))
	}
}

func ofBytes(shortest, longest int, read func([]byte) int64) encoding {
	return func(h Header) (any, bool) {
		if len(h.Value) < shortest || len(h.Value) > longest {
			return nil, false
		}
		return read(h.Value), true
	}
}

// signed reads up to eight bytes, big endian, two's complement.
func signed(b []byte) int64 {
	n := int64(int8(b[0]))
	for _, c := range b[1:] {
		n = n<<8 | int64(c)
	}
	return n
}

func byteOrInt32(h Header) (any, bool) {
	switch len(h.Value) {
	case 1:
		return int64(h.Value[0]), true
	case 4:
		return int64(int32(binary.BigEndian.Uint32(h.Value))), true
	}
	return nil, false
}

// decimal takes ASCII digits with an optional minus sign, unlike ParseInt, which
// also takes a plus sign.
func decimal(s string) (int64, bool) {
	if strings.HasPrefix(s, "+") {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func epochMS(s string) (any, bool) {
	ms, ok := decimal(s)
	return time.UnixMilli(ms).UTC(), ok && ms >= 0 && ms <= lastMS
}

// ticksToUnix is the Unix epoch in 100 ns ticks since 0001-01-01.
const ticksToUnix = 621355968000000000

func dotnetTicks(s string) (any, bool) {
	ticks, ok := decimal(s)
	if !ok || ticks < 0 {
		return nil, false
	}
	since := ticks - ticksToUnix
	return time.Unix(since/1e7, since%1e7*100).UTC(), true
}

func parseRFC3339(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UTC(), err == nil && shortFraction(s)
}

// parseDotnet reads .NET's "O" format; without an offset it is UTC.
func parseDotnet(s string) (time.Time, bool) {
	if t, ok := parseRFC3339(s); ok {
		return t, true
	}
	t, err := time.Parse("2006-01-02T15:04:05", s) // Parse takes a fraction by itself
	return t, err == nil && shortFraction(s)
}

// shortFraction holds for at most nine fraction digits, all that Go keeps.
func shortFraction(s string) bool {
	_, frac, found := strings.Cut(s, ".")
	if !found {
		return true
	}
	digits := strings.IndexFunc(frac, func(r rune) bool { return r < '0' || r > '9' })
	return digits >= 0 && digits <= 9 || digits < 0 && len(frac) <= 9
}

// nserviceBusTime has a colon before the microseconds, which Go's layouts lack.
func nserviceBusTime(s string) (any, bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return nil, false
	}
	t, err := time.Parse("2006-01-02 15:04:05.000000 Z", s[:i]+"."+s[i+1:])
	return t, err == nil
}

// parseJSON checks the text first: gjson reads on past errors.
func parseJSON(b []byte) (gjson.Result, bool) {
	if !validJSON(b) {
		return gjson.Result{}, false
	}
	return gjson.ParseBytes(b), true
}
