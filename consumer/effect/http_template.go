package effect

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// target is the address of a call: a base that never changes, and pieces below it.
type target struct {
	base   *url.URL
	pieces []piece
}

// piece is literal text or a field, in the path or behind the question mark.
type piece struct {
	literal string
	field   string // "" for literal text
	query   bool
}

// parseTarget checks the base and cuts the path at its fields.
func parseTarget(base, path string) (target, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return target{}, fmt.Errorf("http effect: base: %w", err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return target{}, fmt.Errorf("http effect: base %q is no absolute http or https URL", base)
	case u.User != nil:
		return target{}, errors.New("http effect: the base carries a password; put it into a header")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return target{}, fmt.Errorf("http effect: base %q has a query or a fragment", base)
	case path != "" && !strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "?"):
		return target{}, fmt.Errorf("http effect: path %q does not begin with a slash", path)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = ""
	pieces, err := parsePath(path)
	return target{base: u, pieces: pieces}, err
}

func parsePath(path string) ([]piece, error) {
	var pieces []piece
	query := false
	for path != "" {
		at := strings.IndexByte(path, ':')
		if at < 0 {
			at = len(path)
		}
		if at > 0 {
			pieces = append(pieces, piece{literal: path[:at], query: query})
			query = query || strings.Contains(path[:at], "?")
			path = path[at:]
			continue
		}
		if strings.HasPrefix(path, "::") {
			pieces = append(pieces, piece{literal: ":", query: query})
			path = path[2:]
			continue
		}
		n := nameLen(path[1:])
		if n == 0 {
			return nil, fmt.Errorf("http effect: a colon without a field name in path at %q", path)
		}
		pieces = append(pieces, piece{field: path[1 : 1+n], query: query})
		path = path[1+n:]
	}
	return pieces, checkLiterals(pieces)
}

// checkLiterals refuses what would lead out of the base or change meaning.
func checkLiterals(pieces []piece) error {
	for _, p := range pieces {
		path, _, _ := strings.Cut(p.literal, "?")
		if !p.query && slices.Contains(strings.Split(path, "/"), "..") || strings.Contains(p.literal, "#") {
			return fmt.Errorf("http effect: path %q leaves its base", p.literal)
		}
		if _, err := url.Parse("http://x" + p.literal); p.literal != "" && strings.HasPrefix(p.literal, "/") && err != nil {
			return fmt.Errorf("http effect: path: %w", err)
		}
	}
	return nil
}

// render fills in the fields. A field is one segment: it cannot add slashes,
// climb out of the base or add parameters.
func (t target) render(f *fields) (string, error) {
	var b strings.Builder
	b.WriteString(t.base.String())
	for _, p := range t.pieces {
		if p.field == "" {
			b.WriteString(p.literal)
			continue
		}
		text, err := f.plain(p.field)
		switch {
		case err != nil:
			return "", err
		case p.query:
			b.WriteString(url.QueryEscape(text))
		case text == "" || text == "." || text == "..":
			return "", &FieldError{p.field, fmt.Sprintf("is %q, which is no path segment", text)}
		default:
			b.WriteString(url.PathEscape(text))
		}
	}
	return b.String(), nil
}

// plain is a field's text where null has no meaning.
func (f *fields) plain(name string) (string, error) {
	text, err := f.text(name)
	if err != nil {
		return "", err
	}
	if text == nil {
		return "", &FieldError{name, "is null"}
	}
	return *text, nil
}

// headerField is one header of the call.
type headerField struct {
	name, literal, field string
}

// reserved headers are the effect's own, or the transport's.
var reserved = []string{"Idempotency-Key", "Content-Length", "Transfer-Encoding", "Connection", "Host"}

func parseHeaders(headers map[string]string) ([]headerField, error) {
	var out []headerField
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if canonical == "" || slices.Contains(reserved, canonical) || strings.ContainsFunc(name, notToken) {
			return nil, fmt.Errorf("http effect: header %q cannot be set", name)
		}
		literal, field, err := parseValue(headers[name])
		if err != nil {
			return nil, fmt.Errorf("http effect: header %s: %w", name, err)
		}
		if strings.ContainsFunc(literal, unicode.IsControl) {
			return nil, fmt.Errorf("http effect: the value of header %s contains a control character", name)
		}
		out = append(out, headerField{canonical, literal, field})
	}
	return out, nil
}

func notToken(r rune) bool {
	return r > 0x7e || r <= ' ' || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
}

func (h headerField) set(headers http.Header, f *fields) error {
	value := h.literal
	if h.field != "" {
		text, err := f.plain(h.field)
		if err != nil {
			return err
		}
		if strings.ContainsFunc(text, unicode.IsControl) {
			return &FieldError{h.field, "contains a control character and cannot be a header"}
		}
		value = text
	}
	headers.Set(h.name, value)
	return nil
}

// parseValue tells a field from literal text.
func parseValue(s string) (literal, field string, err error) {
	switch {
	case strings.HasPrefix(s, "::"):
		return s[1:], "", nil
	case !strings.HasPrefix(s, ":"):
		return s, "", nil
	case nameLen(s[1:]) != len(s)-1 || len(s) == 1:
		return "", "", fmt.Errorf("%q is no field; text that begins with a colon is written with two", s)
	default:
		return "", s[1:], nil
	}
}

// node is a part of a body's JSON tree.
type node interface {
	appendJSON(b []byte, f *fields) ([]byte, error)
}

type (
	literalNode json.RawMessage
	fieldNode   string
	listNode    []node
	objectNode  []member
	member      struct {
		name  json.RawMessage
		value node
	}
)

// parseBody reads a tree as YAML gives it. Nil is no tree.
func parseBody(v any) (node, error) {
	if v == nil {
		return nil, nil
	}
	n, err := parseNode(v)
	if err != nil {
		return nil, fmt.Errorf("http effect: body: %w", err)
	}
	return n, nil
}

func parseNode(v any) (node, error) {
	switch v := v.(type) {
	case map[string]any:
		return parseObject(v)
	case []any:
		list := make(listNode, len(v))
		for i, element := range v {
			n, err := parseNode(element)
			if err != nil {
				return nil, err
			}
			list[i] = n
		}
		return list, nil
	case string:
		literal, field, err := parseValue(v)
		if err != nil || field != "" {
			return fieldNode(field), err
		}
		return parseLiteral(literal)
	default:
		return parseLiteral(v)
	}
}

func parseObject(v map[string]any) (node, error) {
	object := make(objectNode, 0, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		n, err := parseNode(v[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		object = append(object, member{quoted, n})
	}
	return object, nil
}

func parseLiteral(v any) (node, error) {
	switch v := v.(type) {
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil, fmt.Errorf("%v is no JSON number", v)
		}
	case nil, string, bool, int, int64, uint64, json.Number:
	default:
		return nil, fmt.Errorf("a value of type %T has no JSON form", v)
	}
	b, err := json.Marshal(v)
	return literalNode(b), err
}

func (n literalNode) appendJSON(b []byte, _ *fields) ([]byte, error) { return append(b, n...), nil }

// appendJSON copies the field as it stands in the payload: a number keeps every
// digit, and no text can leave its quotes.
func (n fieldNode) appendJSON(b []byte, f *fields) ([]byte, error) {
	raw, err := f.raw(string(n))
	return append(b, raw...), err
}

func (n listNode) appendJSON(b []byte, f *fields) (_ []byte, err error) {
	b = append(b, '[')
	for i, element := range n {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = element.appendJSON(b, f); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func (n objectNode) appendJSON(b []byte, f *fields) (_ []byte, err error) {
	b = append(b, '{')
	for i, m := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, m.name...), ':')
		if b, err = m.value.appendJSON(b, f); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}
