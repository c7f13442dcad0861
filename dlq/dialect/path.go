package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// path is steps into a decoded JSON or AMQP value.
type path []step

// step is a key of an object, an index of an array (negative: from its end), or
// each of an array's elements.
type step struct {
	key   string
	index int
	kind  stepKind
}

type stepKind int8

const (
	byKey stepKind = iota
	byIndex
	each
)

// CheckPath says what is wrong with a path such as $.order.eventId or
// items[0].id.
func CheckPath(text string) error {
	p, err := parsePath(text)
	if err == nil && p.spreads() {
		return fmt.Errorf("path %q: [*] has more than one value", text)
	}
	return err
}

// parsePath reads key.key[0].key[*]; a leading $ or $. stands for the whole value.
func parsePath(text string) (path, error) {
	var p path
	rest := strings.TrimPrefix(text, "$")
	for rest != "" {
		if inner, ok := strings.CutPrefix(rest, "["); ok {
			index, after, closed := strings.Cut(inner, "]")
			s, err := parseIndex(index)
			if err != nil || !closed {
				return nil, fmt.Errorf("path %q: %q is no index", text, index)
			}
			p, rest = append(p, s), after
			continue
		}
		if strings.HasPrefix(rest, ".") == (len(p) == 0 && !strings.HasPrefix(text, "$")) {
			return nil, fmt.Errorf("path %q: a key is missing or not separated", text)
		}
		rest = strings.TrimPrefix(rest, ".")
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, fmt.Errorf("path %q: a key is empty", text)
		}
		p, rest = append(p, step{key: rest[:end]}), rest[end:]
	}
	if len(p) == 0 {
		return nil, fmt.Errorf("path %q names nothing", text)
	}
	return p, nil
}

func parseIndex(s string) (step, error) {
	if s == "*" {
		return step{kind: each}, nil
	}
	n, err := strconv.Atoi(s)
	return step{index: n, kind: byIndex}, err
}

func (p path) spreads() bool {
	for _, s := range p {
		if s.kind == each {
			return true
		}
	}
	return false
}

// walk returns the values at the path: at most one, unless it has [*]. keep
// decides which elements of the array at [*] count.
func (p path) walk(node any, keep func(element any) bool) []any {
	for i, s := range p {
		if s.kind != each {
			var ok bool
			if node, ok = child(node, s); !ok {
				return nil
			}
			continue
		}
		var found []any
		for _, e := range elements(node) {
			if keep == nil || keep(e) {
				found = append(found, p[i+1:].walk(e, nil)...)
			}
		}
		return found
	}
	return []any{node}
}

func child(node any, s step) (any, bool) {
	if s.kind == byIndex {
		list := elements(node)
		if s.index < 0 {
			s.index += len(list)
		}
		if s.index < 0 || s.index >= len(list) {
			return nil, false
		}
		return list[s.index], true
	}
	switch n := node.(type) {
	case gjson.Result:
		return member(n, s.key)
	case map[string]any:
		v, ok := n[s.key]
		return v, ok
	}
	return nil, false
}

// member looks a key up by itself: gjson's own paths give meaning to characters
// that a key may hold.
func member(object gjson.Result, key string) (found gjson.Result, ok bool) {
	if !object.IsObject() {
		return gjson.Result{}, false
	}
	object.ForEach(func(k, v gjson.Result) bool {
		if k.Str == key {
			found, ok = v, true
		}
		return !ok
	})
	return found, ok
}

func elements(node any) []any {
	switch n := node.(type) {
	case []any:
		return n
	case gjson.Result:
		if !n.IsArray() {
			return nil
		}
		var list []any
		n.ForEach(func(_, v gjson.Result) bool { list = append(list, v); return true })
		return list
	}
	return nil
}

// scalar is the node as text, number, bool or time; an array or object of JSON is
// its text. Null is none.
func scalar(node any) (any, bool) {
	r, ok := node.(gjson.Result)
	if !ok {
		return node, node != nil
	}
	switch r.Type {
	case gjson.String:
		return r.Str, true
	case gjson.Number:
		return number(r.Raw), true
	case gjson.True, gjson.False:
		return r.Bool(), true
	case gjson.JSON:
		return container(lines(r)), true
	}
	return nil, false
}

// container is an array or object of JSON as text.
type container string

// lines joins a list of texts, such as a backtrace; anything else stays JSON.
func lines(r gjson.Result) string {
	var out []string
	for _, e := range elements(r) {
		s, ok := e.(gjson.Result)
		if !ok || s.Type != gjson.String {
			return r.Raw
		}
		out = append(out, s.Str)
	}
	if len(out) == 0 {
		return r.Raw
	}
	return strings.Join(out, "\n")
}

// validJSON also bounds the depth, which gjson does not.
func validJSON(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && json.Valid(b)
}

// String is the path as files write it.
func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch s.kind {
		case byIndex:
			fmt.Fprintf(&b, "[%d]", s.index)
		case each:
			b.WriteString("[*]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.key)
		}
	}
	return b.String()
}
