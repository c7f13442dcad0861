package consumer

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// maxEventID is the longest event id in bytes.
const maxEventID = 255

// EventIDSource says where a message carries its event id. With several set, the
// header is looked at first, then the property, then the value.
type EventIDSource struct {
	Header    string // header name; the last one of that name counts, null and empty count as absent
	MessageID bool   // property message_id of RabbitMQ, where the producer sets it to the event id
	JSON      string // path into a JSON value: $.eventId, eventId, $.meta.ids[0]
}

// ErrNoEventID is the cause of every failure to find an event id.
var ErrNoEventID = errors.New("no event id")

// EventIDError says why a message has no usable event id. It is permanent.
type EventIDError struct {
	Source EventIDSource
	Reason string
}

// Error names the header and the path that were looked at.
func (e *EventIDError) Error() string {
	return fmt.Sprintf("no usable event id in %s: %s", e.Source, e.Reason)
}

// Unwrap returns ErrNoEventID.
func (e *EventIDError) Unwrap() error { return ErrNoEventID }

// Class names the error in a dead letter.
func (e *EventIDError) Class() string { return "oncemore.EventIDError" }

// String names the places for a message.
func (s EventIDSource) String() string {
	var places []string
	if s.Header != "" {
		places = append(places, fmt.Sprintf("header %q", s.Header))
	}
	if s.MessageID {
		places = append(places, "property message_id")
	}
	if s.JSON != "" {
		places = append(places, fmt.Sprintf("JSON path %q", s.JSON))
	}
	return strings.Join(places, " or ")
}

// Extract finds the event id of a message and checks it. The error is a
// Permanent *EventIDError.
func (s EventIDSource) Extract(ev Event) (string, error) {
	id, reason := s.find(ev)
	if reason == "" {
		reason = unusable(id, ev)
	}
	if reason != "" {
		return "", Permanent(&EventIDError{Source: s, Reason: reason})
	}
	return id, nil
}

func (s EventIDSource) find(ev Event) (id, reason string) {
	if s.Header != "" {
		if v, _ := ev.Header(s.Header); len(v) > 0 {
			return string(v), ""
		}
	}
	if s.MessageID && ev.MessageID != "" {
		return ev.MessageID, ""
	}
	if s.JSON == "" {
		return "", "it is absent or empty"
	}
	return fromJSON(ev.Value, s.JSON)
}

func fromJSON(value []byte, path string) (id, reason string) {
	if value == nil {
		return "", "the value is null"
	}
	if !gjson.ValidBytes(value) {
		return "", "the value is not valid JSON"
	}
	switch res := gjson.GetBytes(value, gjsonPath(path)); {
	case !res.Exists():
		return "", "nothing is there"
	case res.Type == gjson.String:
		return res.Str, ""
	case res.Type == gjson.Number:
		return strings.Clone(res.Raw), "" // as text: 10001 stays 10001, whatever its size
	default:
		return "", "it is neither text nor a number"
	}
}

func unusable(id string, ev Event) string {
	if err := ValidateEventID(id); err != nil {
		return err.Error()
	}
	if isPosition(id, ev) {
		return "it is made of topic, partition and offset, which are not stable"
	}
	return ""
}

// ValidateEventID checks the form of an event id: valid UTF-8, 1 to 255 bytes,
// no control characters, no space at either end.
func ValidateEventID(id string) error {
	switch {
	case id == "":
		return errors.New("it is empty")
	case len(id) > maxEventID:
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(id), maxEventID)
	case !utf8.ValidString(id):
		return errors.New("it is not valid UTF-8")
	case strings.ContainsFunc(id, unicode.IsControl):
		return errors.New("it contains a control character")
	case strings.TrimSpace(id) != id:
		return errors.New("it begins or ends with a space")
	}
	return nil
}

// isPosition reports whether id is the message's own topic, partition and offset
// joined by separators.
func isPosition(id string, ev Event) bool {
	rest, ok := strings.CutPrefix(id, ev.Topic)
	if !ok || ev.Topic == "" || ev.Queue != "" { // a queue has no positions
		return false
	}
	parts := strings.FieldsFunc(rest, func(r rune) bool { return !unicode.IsDigit(r) })
	offset := strconv.FormatInt(ev.Offset, 10)
	return slices.Equal(parts, []string{strconv.Itoa(int(ev.Partition)), offset}) &&
		!strings.ContainsFunc(rest, unicode.IsLetter)
}

// jsonPath is what may be used of JSON paths: keys, dots and array indexes.
var jsonPath = regexp.MustCompile(`^(\$\.)?[\pL\pN_-]+(\[\d+\])*(\.[\pL\pN_-]+(\[\d+\])*)*$`)

// ValidateEventIDSource refuses a source that is empty, malformed or that names
// the message's position: topic, partition and offset change with every replay
// and every re-created topic, so they identify no event.
func ValidateEventIDSource(s EventIDSource) error {
	switch {
	case s.Header == "" && !s.MessageID && s.JSON == "":
		return errors.New("event id: name a header, a JSON path or both")
	case strings.ContainsAny(s.Header, "{}$%"):
		return fmt.Errorf("event id: %q looks like a template; name one header that the producer sets", s.Header)
	case strings.ContainsFunc(s.Header, unicode.IsControl):
		return fmt.Errorf("event id: header %q contains a control character", s.Header)
	case s.JSON != "" && !jsonPath.MatchString(s.JSON):
		return fmt.Errorf("event id: %q is no JSON path such as $.eventId", s.JSON)
	}
	for _, name := range []string{s.Header, s.JSON} {
		if namesPosition(name) {
			return fmt.Errorf("event id: %q names the message's position; topic, partition and offset are not stable, "+
				"use an id that the producer sets", name)
		}
	}
	return nil
}

// positionWords end the names that denote where a message lies.
var positionWords = []string{"offset", "partition", "topic", "offsets", "partitions", "topics"}

func namesPosition(name string) bool {
	name = strings.TrimRight(name, "[]0123456789")
	words := strings.FieldsFunc(splitCamel(name), func(r rune) bool { return !unicode.IsLetter(r) })
	for len(words) > 0 && slices.Contains([]string{"id", "number", "no"}, words[len(words)-1]) {
		words = words[:len(words)-1] // partitionId, offset_no
	}
	if len(words) == 0 {
		return false
	}
	return slices.Contains(positionWords, words[len(words)-1])
}

// splitCamel turns recordOffset into record offset, in lower case.
func splitCamel(name string) string {
	var b bytes.Buffer
	prev := ' '
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(prev) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
		prev = r
	}
	return b.String()
}

// gjsonPath turns $.a.b[0] into a.b.0.
func gjsonPath(path string) string {
	path = strings.TrimPrefix(path, "$.")
	return strings.NewReplacer("[", ".", "]", "").Replace(path)
}
