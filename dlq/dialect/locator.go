package dialect

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// locator is one place where a field may be found, and how to read it.
type locator struct {
	from   from
	name   string
	enc    encoding
	first  bool // of a repeated header; else the last
	path   path
	where  map[string]string
	reduce reduction
	re     *regexp.Regexp
	reText string // with $field in it, re is made for each message
	add    int64
	prefix string
	value  any // of a constant
}

type from int8

const (
	fromHeader from = iota
	fromProperty
	fromBody
	fromSource
	fromConst
)

// read returns what stands at the place, or false where there is nothing or it
// is malformed.
func (l *locator) read(s *Set, v *view) (any, bool) {
	raw, ok := l.raw(v)
	if !ok {
		return nil, false
	}
	if l.path != nil {
		if raw, ok = l.reduce.of(l.path.walk(raw, l.keep(v))); !ok {
			return nil, false
		}
	}
	if raw, ok = scalar(raw); !ok {
		return nil, false
	}
	return l.finish(s, v, raw)
}

func (l *locator) raw(v *view) (any, bool) {
	switch l.from {
	case fromHeader:
		h, ok := l.pick(v.headers)
		if !ok {
			return nil, false
		}
		return l.enc(h)
	case fromProperty:
		p := v.Properties[l.name]
		return p, p != nil
	case fromBody:
		object, ok := v.object()
		return object, ok
	case fromSource:
		return v.attribute(l.name)
	default:
		return l.value, true
	}
}

// pick chooses among the headers of the name. A null value counts as absent.
func (l *locator) pick(headers []Header) (found Header, ok bool) {
	for _, h := range headers {
		if h.Name != l.name || h.Value == nil && h.Typed == nil {
			continue
		}
		if l.first {
			return h, true
		}
		found, ok = h, true
	}
	return found, ok
}

func (v *view) attribute(name string) (any, bool) {
	switch name {
	case "topic":
		return v.From.Topic, true
	case "partition":
		return int64(v.From.Partition), true
	case "offset":
		return v.From.Offset, true
	case "timestamp_ms":
		return v.From.TimestampMS, v.From.TimestampMS >= 0
	case "queue":
		return v.From.Queue, true
	case "exchange":
		return v.From.Exchange, true
	default:
		return v.From.RoutingKey, true
	}
}

// keep tests the elements of an array against where; nil keeps all.
func (l *locator) keep(v *view) func(any) bool {
	if len(l.where) == 0 {
		return nil
	}
	return func(element any) bool {
		for key, want := range l.where {
			got, ok := child(element, step{key: key})
			if !ok {
				return false
			}
			got, ok = scalar(got)
			if text, isText := anyText(got); !ok || !isText || text != v.resolve(want) {
				return false
			}
		}
		return true
	}
}

func (v *view) resolve(want string) string {
	return reference.ReplaceAllStringFunc(want, func(ref string) string {
		s, _ := v.fields[ref[1:]].(string)
		return s
	})
}

// finish applies re, add and prefix.
func (l *locator) finish(s *Set, v *view, raw any) (any, bool) {
	if l.reText != "" {
		t, isText := anyText(raw)
		re := l.pattern(s, v)
		if !isText || re == nil {
			return nil, false
		}
		m := re.FindStringSubmatch(t.(string))
		if m == nil {
			return nil, false
		}
		raw = m[1]
	}
	if l.add != 0 {
		n, ok := asInt(raw)
		if !ok {
			return nil, false
		}
		raw = n + l.add
	}
	if l.prefix != "" {
		t, ok := anyText(raw)
		if !ok || t == "" {
			return nil, false
		}
		raw = l.prefix + t.(string)
	}
	return raw, true
}

// pattern is re with $field replaced, or nil where such a field is not known.
func (l *locator) pattern(s *Set, v *view) *regexp.Regexp {
	if l.re != nil {
		return l.re
	}
	known := true
	text := reference.ReplaceAllStringFunc(l.reText, func(ref string) string {
		value, ok := v.fields[ref[1:]].(string)
		known = known && ok
		return regexp.QuoteMeta(value)
	})
	if !known {
		return nil
	}
	return s.patterns.get(text)
}

// patternCache keeps patterns made from a message's own fields. It starts anew
// when it is full: a sender can make as many different ones as it likes.
type patternCache struct {
	mu   sync.Mutex
	made map[string]*regexp.Regexp
}

const maxPatterns = 1000

func (c *patternCache) get(text string) *regexp.Regexp {
	c.mu.Lock()
	defer c.mu.Unlock()
	re, ok := c.made[text]
	if ok {
		return re
	}
	if c.made == nil || len(c.made) >= maxPatterns {
		c.made = map[string]*regexp.Regexp{}
	}
	re, err := regexp.Compile(text)
	if err != nil {
		re = nil // a quoted field cannot break a pattern that compiled; too large can
	}
	c.made[text] = re
	return re
}

// reduction makes one value of the array elements left.
type reduction string

var reductions = []string{"sum", "min", "max", "first", "last"}

func (r reduction) of(values []any) (any, bool) {
	if len(values) == 0 {
		return nil, false
	}
	switch r {
	case "", "first":
		return values[0], true
	case "last":
		return values[len(values)-1], true
	case "sum":
		return sum(values)
	}
	return extreme(values, r == "max")
}

func sum(values []any) (any, bool) {
	total := int64(0)
	for _, v := range values {
		s, _ := scalar(v)
		n, ok := asInt(s)
		if !ok {
			return nil, false
		}
		total += n
	}
	return total, true
}

func extreme(values []any, largest bool) (any, bool) {
	order := func(a, b any) int { return int(sign(rank(a) - rank(b))) }
	values = slices.DeleteFunc(slices.Clone(values), func(v any) bool { return rank(v) == noRank })
	if len(values) == 0 {
		return nil, false
	}
	if largest {
		return slices.MaxFunc(values, order), true
	}
	return slices.MinFunc(values, order), true
}

// noRank marks what has no place in an order.
const noRank = -1 << 62

func rank(v any) int64 {
	s, _ := scalar(v)
	if t, ok := s.(time.Time); ok {
		return t.UnixMilli()
	}
	if n, ok := asInt(s); ok && n > noRank/2 && n < -(noRank/2) {
		return n
	}
	return noRank
}

func sign(n int64) int64 {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// empty reports a value that another candidate may better.
func empty(v any) bool {
	switch t := v.(type) {
	case string:
		return t == ""
	case gjson.Result:
		return t.Type == gjson.Null
	}
	return v == nil
}

// find reads a field: the first candidate with a sound, non-empty value wins; an
// empty text counts only where nothing better is found.
func (f *field) find(s *Set, v *view) (value any, by *locator) {
	sound := fieldKinds[f.name]
	for i := range f.candidates {
		c := &f.candidates[i]
		raw, ok := c.read(s, v)
		if !ok {
			continue
		}
		got, ok := sound(raw)
		if !ok {
			continue
		}
		if !empty(got) {
			return got, c
		}
		if by == nil {
			value, by = got, c
		}
	}
	return value, by
}

// hasReference reports a $field inside a pattern.
func hasReference(re string) bool { return strings.Contains(re, "$") && reference.MatchString(re) }
