package dialect

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// detect is what a message must look like. Every part that is given must hold.
type detect struct {
	anyHeader    []string
	allHeaders   []string
	headerPrefix []string
	noneHeader   []string
	source       *regexp.Regexp
	property     propertyPrefix
	bodyKeys     []string
	body         *regexp.Regexp
}

type propertyPrefix struct{ name, value string }

func (d *detect) empty() bool {
	return len(d.anyHeader)+len(d.allHeaders)+len(d.headerPrefix)+len(d.noneHeader)+len(d.bodyKeys) == 0 &&
		d.source == nil && d.body == nil && d.property.name == ""
}

func (d *detect) matches(v *view) bool {
	return (len(d.anyHeader) == 0 || slices.ContainsFunc(d.anyHeader, v.has)) &&
		!slices.ContainsFunc(d.allHeaders, v.lacks) &&
		(len(d.headerPrefix) == 0 || slices.ContainsFunc(d.headerPrefix, v.hasPrefix)) &&
		!slices.ContainsFunc(d.noneHeader, v.has) &&
		(d.source == nil || d.source.MatchString(v.source())) &&
		(d.property.name == "" || v.propertyStarts(d.property)) &&
		(len(d.bodyKeys) == 0 || v.bodyHas(d.bodyKeys)) &&
		(d.body == nil || d.body.Match(v.Value))
}

// view is a message while it is read: the body is parsed once, when first asked.
type view struct {
	*Message
	headers []Header // those that count; all of them, or those that no other dialect owns
	body    gjson.Result
	state   bodyState
	fields  map[string]any
}

type bodyState int8

const (
	unread bodyState = iota
	isObject
	notObject
)

func (v *view) has(name string) bool {
	return slices.ContainsFunc(v.headers, func(h Header) bool { return h.Name == name })
}

func (v *view) lacks(name string) bool { return !v.has(name) }

func (v *view) hasPrefix(prefix string) bool {
	return slices.ContainsFunc(v.headers, func(h Header) bool { return strings.HasPrefix(h.Name, prefix) })
}

func (v *view) source() string {
	if v.Broker == RabbitMQ {
		return v.From.Queue
	}
	return v.From.Topic
}

func (v *view) propertyStarts(p propertyPrefix) bool {
	s, ok := v.Properties[p.name].(string)
	return ok && strings.HasPrefix(s, p.value)
}

func (v *view) bodyHas(keys []string) bool {
	for _, k := range keys {
		if !v.mayHold(k) {
			return false
		}
	}
	object, ok := v.object()
	return ok && !slices.ContainsFunc(keys, func(k string) bool { _, found := member(object, k); return !found })
}

// mayHold is a cheap look for a key before the whole value is parsed. A value
// with escapes may spell the key in another way.
func (v *view) mayHold(key string) bool {
	if len(v.Value) == 0 {
		return false
	}
	return bytes.Contains(v.Value, []byte(`"`+key+`"`)) || bytes.Contains(v.Value, []byte(`\u`))
}

// object is the value as a JSON object.
func (v *view) object() (gjson.Result, bool) {
	if v.state == unread {
		v.state = notObject
		if trimmed := bytes.TrimLeft(v.Value, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
			if r, ok := parseJSON(trimmed); ok {
				v.body, v.state = r, isObject
			}
		}
	}
	return v.body, v.state == isObject
}
