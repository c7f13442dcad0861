package effect

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"oncemore/consumer"
)

// FieldError says which field of an event a declared effect cannot use. It is
// permanent: the event will not change.
type FieldError struct {
	Field  string // as written in the config, without the colon; "" for the payload as a whole
	Reason string
}

// Error names the field.
func (e *FieldError) Error() string {
	if e.Field == "" {
		return "payload " + e.Reason
	}
	return fmt.Sprintf("field %q %s", e.Field, e.Reason)
}

// Class names the error in a dead letter.
func (e *FieldError) Class() string { return "oncemore.FieldError" }

// builtins are the names that an event answers itself. A payload's own field of
// that name is `$.name`.
var builtins = map[string]func(consumer.Event) string{
	"event_id":       func(ev consumer.Event) string { return ev.ID },
	"consumer_group": func(ev consumer.Event) string { return ev.Group },
	"topic":          func(ev consumer.Event) string { return ev.Topic },
	"key":            func(ev consumer.Event) string { return string(ev.Key) },
}

// fields looks names up in one event. The payload is read once, and only when a
// name asks for it.
type fields struct {
	ev      consumer.Event
	checked bool
	top     map[string]json.RawMessage // the payload's own fields; nil: not read, or no object
}

// raw returns a name's value as JSON text, exactly as it stands in the payload.
func (f *fields) raw(name string) (json.RawMessage, error) {
	if own, ok := builtins[name]; ok {
		return f.builtin(name, own(f.ev))
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	path := strings.TrimPrefix(strings.TrimPrefix(name, "$"), ".")
	if path == "" {
		return bytes.TrimSpace(f.ev.Value), nil
	}
	first, rest, deeper := strings.Cut(path, ".")
	value, ok := f.top[first]
	if f.top == nil {
		value, ok = child(f.ev.Value, first)
	}
	for ok && deeper {
		first, rest, deeper = strings.Cut(rest, ".")
		value, ok = child(value, first)
	}
	if !ok {
		return nil, &FieldError{name, "is missing in the payload"}
	}
	return value, nil
}

// check refuses what is no JSON. encoding/json would replace invalid UTF-8
// silently.
func (f *fields) check() error {
	switch {
	case f.checked:
		return nil
	case len(f.ev.Value) == 0:
		return &FieldError{"", "is empty"}
	case !utf8.Valid(f.ev.Value):
		return &FieldError{"", "is not JSON: it is not UTF-8"}
	}
	if err := f.read(); err != nil {
		return &FieldError{"", "is not JSON: " + err.Error()}
	}
	f.checked = true
	return nil
}

func (f *fields) read() error {
	err := json.Unmarshal(f.ev.Value, &f.top)
	var other *json.UnmarshalTypeError
	if errors.As(err, &other) { // JSON, but no object
		return nil
	}
	return err
}

func (f *fields) builtin(name, value string) (json.RawMessage, error) {
	if name == "key" && f.ev.Key == nil {
		return json.RawMessage("null"), nil
	}
	if !utf8.ValidString(value) {
		return nil, &FieldError{name, "is not UTF-8"}
	}
	b, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("field %s: %w", name, err)
	}
	return b, nil
}

// child looks a segment up in an object or, as an index, in an array. Of a
// repeated name the last one counts, as in PostgreSQL's jsonb.
func child(value json.RawMessage, segment string) (json.RawMessage, bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) == nil {
		v, ok := object[segment]
		return v, ok
	}
	var array []json.RawMessage
	i, err := strconv.Atoi(segment)
	if err != nil || json.Unmarshal(value, &array) != nil || i < 0 || i >= len(array) {
		return nil, false
	}
	return array[i], true
}

// text returns a name's value as text, nil for null: a string's content, a
// number's digits as they stand in the payload, true or false, and the JSON of
// an object or array. No number passes through a float.
func (f *fields) text(name string) (*string, error) {
	raw, err := f.raw(name)
	if err != nil {
		return nil, err
	}
	switch raw[0] {
	case 'n':
		return nil, nil
	case '"':
		s, err := unquote(raw)
		if err != nil {
			return nil, &FieldError{name, err.Error()}
		}
		return &s, nil
	default:
		s := string(raw)
		return &s, nil
	}
}

// unquote decodes a JSON string. Half a surrogate pair has no UTF-8 form:
// encoding/json would write U+FFFD in its place.
func unquote(raw json.RawMessage) (string, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("is no JSON string: %w", err)
	}
	spelled := strings.Count(string(raw), "\uFFFD") + strings.Count(strings.ToLower(string(raw)), `\ufffd`)
	if strings.Count(s, "\uFFFD") > spelled {
		return "", errors.New("holds half a surrogate pair, which is no text")
	}
	return s, nil
}
