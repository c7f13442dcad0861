package dialect

import (
	"fmt"
	"slices"
	"strings"
)

// The headers that a replay sets; stripped in every dialect.
const (
	HeaderReplay = "oncemore-replay"
	HeaderItem   = "oncemore-item"
)

// stripRule names headers that a replay leaves out: one, or all with a prefix.
type stripRule struct{ name, prefix, reason string }

func (r stripRule) covers(name string) bool {
	if r.prefix != "" {
		return strings.HasPrefix(name, r.prefix)
	}
	return name == r.name
}

// Strips returns the test for headers that a replay leaves out in this dialect.
// Errors: ErrUnknown.
func (s *Set) Strips(id string) (func(name string, value []byte) bool, error) {
	d, ok := s.byID[id]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	return d.strips, nil
}

// Strip returns the headers that a replay keeps, in order. Errors: ErrUnknown.
func (s *Set) Strip(id string, headers []Header) ([]Header, error) {
	strips, err := s.Strips(id)
	if err != nil {
		return nil, err
	}
	kept := make([]Header, 0, len(headers))
	for _, h := range headers {
		if !strips(h.Name, h.Value) {
			kept = append(kept, h)
		}
	}
	return kept, nil
}

func (d *dialect) strips(name string, value []byte) bool {
	return name == HeaderReplay || name == HeaderItem || d.rewrittenType(name, value) || d.owns(name) ||
		d.broker == RabbitMQ && brokersOwn(name)
}

// owns reports a header that the dialect's writer puts on its dead letters.
func (d *dialect) owns(name string) bool {
	return !slices.Contains(d.keep, name) &&
		slices.ContainsFunc(d.strip, func(r stripRule) bool { return r.covers(name) })
}

// reasonOf says why a replay leaves a header out, so far as the file does.
func (d *dialect) reasonOf(name string) string {
	for _, r := range d.strip {
		if r.covers(name) {
			return r.reason
		}
	}
	return ""
}

// rewrittenType reports a type header that names a byte array: a template with a
// JSON serialiser overwrote it when it published the dead letter (spring-kafka
// issue 2241), and a listener would then look for bytes.
func (d *dialect) rewrittenType(name string, value []byte) bool {
	return name == "__TypeId__" && strings.HasPrefix(d.id, "spring-kafka") &&
		(string(value) == "[B" || string(value) == "byte[]")
}
