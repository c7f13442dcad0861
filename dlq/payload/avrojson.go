package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"github.com/twmb/avro"
)

// avroShape writes decoded values as JSON and reads them back, by a schema's tree.
type avroShape struct {
	root  *avro.SchemaNode
	types map[string]*avro.SchemaNode // by full name
}

func newAvroShape(root *avro.SchemaNode) *avroShape {
	s := &avroShape{root: root, types: map[string]*avro.SchemaNode{}}
	s.gather(root, map[*avro.SchemaNode]bool{})
	return s
}

func (s *avroShape) gather(n *avro.SchemaNode, seen map[*avro.SchemaNode]bool) {
	if n == nil || seen[n] {
		return
	}
	seen[n] = true
	if named(n) && s.types[fullName(n)] == nil {
		s.types[fullName(n)] = n
	}
	for i := range n.Fields {
		s.gather(&n.Fields[i].Type, seen)
	}
	for i := range n.Branches {
		s.gather(&n.Branches[i], seen)
	}
	s.gather(n.Items, seen)
	s.gather(n.Values, seen)
}

// node follows a reference by name.
func (s *avroShape) node(n *avro.SchemaNode) *avro.SchemaNode {
	if t, ok := s.types[n.Type]; ok {
		return t
	}
	return n
}

var errTooLarge = errors.New("it decodes to more than can be shown")

// document writes a value as the library decodes it.
func (s *avroShape) document(value any) ([]byte, error) {
	w := &avroWriter{avroShape: s}
	err := w.write(s.root, value)
	return w.out, err
}

type avroWriter struct {
	*avroShape
	out []byte
}

func (w *avroWriter) write(n *avro.SchemaNode, value any) error {
	n = w.node(n)
	if len(w.out) > MaxInflated {
		return errTooLarge
	}
	switch v := value.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	case int32:
		w.out = strconv.AppendInt(w.out, int64(v), 10)
	case int64:
		w.out = strconv.AppendInt(w.out, v, 10)
	case float32:
		w.number(float64(v), 32)
	case float64:
		w.number(v, 64)
	case *big.Rat:
		w.out = append(w.out, v.FloatString(n.Scale)...)
	case string:
		w.text(v)
	case []byte:
		w.latin(v)
	case []any:
		return w.array(n, v)
	case map[string]any:
		return w.object(n, v)
	default:
		return fmt.Errorf("%T is no value of Avro", value)
	}
	return nil
}

// number writes what JSON has no number for as text, as Java does.
func (w *avroWriter) number(f float64, bits int) {
	text, err := json.Marshal(f)
	if bits == 32 && err == nil {
		text, err = json.Marshal(float32(f))
	}
	if err != nil {
		text = []byte(strconv.Quote(map[bool]string{true: "NaN", false: signed(f)}[f != f]))
	}
	w.out = append(w.out, text...)
}

func signed(f float64) string {
	if f < 0 {
		return "-Infinity"
	}
	return "Infinity"
}

func (w *avroWriter) text(s string) { w.out = appendText(w.out, s) }

// latin writes each byte as the character of its number.
func (w *avroWriter) latin(b []byte) {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	w.text(string(runes))
}

func (w *avroWriter) array(n *avro.SchemaNode, items []any) error {
	w.out = append(w.out, '[')
	for i, item := range items {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.write(n.Items, item); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

// object writes a record by the order of its fields, a map by its keys, and the
// branch of a union.
func (w *avroWriter) object(n *avro.SchemaNode, v map[string]any) error {
	w.out = append(w.out, '{')
	member := func(first bool, name string, of *avro.SchemaNode) error {
		if !first {
			w.out = append(w.out, ',')
		}
		w.text(name)
		w.out = append(w.out, ':')
		return w.write(of, v[name])
	}
	switch n.Type {
	case "map":
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if err := member(i == 0, name, n.Values); err != nil {
				return err
			}
		}
	case "union":
		for name := range v {
			branch := w.branch(n, name)
			if branch == nil {
				return fmt.Errorf("%q is no branch of the union", name)
			}
			if err := member(true, name, branch); err != nil {
				return err
			}
		}
	default:
		for i := range n.Fields {
			if err := member(i == 0, n.Fields[i].Name, &n.Fields[i].Type); err != nil {
				return err
			}
		}
	}
	w.out = append(w.out, '}')
	return nil
}

func (s *avroShape) branch(n *avro.SchemaNode, name string) *avro.SchemaNode {
	for i := range n.Branches {
		if b := s.node(&n.Branches[i]); fullName(b) == name {
			return b
		}
	}
	return nil
}

// value reads a document that somebody may have edited. Errors name the place.
func (s *avroShape) value(document []byte) (any, error) {
	return s.read(s.root, gjson.ParseBytes(document), "")
}

func (s *avroShape) read(n *avro.SchemaNode, v gjson.Result, at string) (any, error) {
	n = s.node(n)
	switch n.Type {
	case "record", "error":
		return s.readRecord(n, v, at)
	case "map":
		return s.readMap(n, v, at)
	case "array":
		return s.readArray(n, v, at)
	case "union":
		return s.readUnion(n, v, at)
	case "bytes", "fixed":
		if n.LogicalType == "decimal" && v.Type == gjson.Number {
			return json.Number(v.Raw), nil
		}
		return readLatin(v, at)
	case "int", "long", "float", "double":
		if v.Type == gjson.Number {
			return json.Number(v.Raw), nil
		}
		if f, err := strconv.ParseFloat(v.Str, 64); err == nil && (n.Type == "float" || n.Type == "double") {
			return f, nil // NaN, Infinity
		}
	case "string", "enum":
		if v.Type == gjson.String {
			return v.Str, nil
		}
	case "boolean":
		if v.IsBool() {
			return v.Bool(), nil
		}
	case "null":
		if v.Type == gjson.Null {
			return nil, nil
		}
	}
	return nil, placed(at, "is no %s", n.Type)
}

func placed(at, format string, args ...any) error {
	if at == "" {
		at = "the document"
	}
	return fmt.Errorf("%s %s", at, fmt.Sprintf(format, args...))
}

func inside(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// members calls back for each; a name that stands twice is an error: only one of
// the two could be written.
func members(v gjson.Result, at string, each func(name string, value gjson.Result) error) error {
	if !v.IsObject() {
		return placed(at, "is no object")
	}
	seen := map[string]bool{}
	var err error
	v.ForEach(func(name, value gjson.Result) bool {
		if seen[name.Str] {
			err = placed(inside(at, name.Str), "stands there twice")
		} else {
			err = each(name.Str, value)
		}
		seen[name.Str] = true
		return err == nil
	})
	return err
}

func (s *avroShape) readRecord(n *avro.SchemaNode, v gjson.Result, at string) (any, error) {
	fields := map[string]*avro.SchemaNode{}
	for i := range n.Fields {
		fields[n.Fields[i].Name] = &n.Fields[i].Type
	}
	out := map[string]any{}
	err := members(v, at, func(name string, value gjson.Result) (err error) {
		of, ok := fields[name]
		if !ok {
			return placed(inside(at, name), "is no field of %s", fullName(n))
		}
		out[name], err = s.read(of, value, inside(at, name))
		return err
	})
	for name := range fields {
		if _, ok := out[name]; !ok && err == nil {
			err = placed(inside(at, name), "is missing")
		}
	}
	return out, err
}

func (s *avroShape) readMap(n *avro.SchemaNode, v gjson.Result, at string) (any, error) {
	out := map[string]any{}
	return out, members(v, at, func(name string, value gjson.Result) (err error) {
		out[name], err = s.read(n.Values, value, inside(at, name))
		return err
	})
}

func (s *avroShape) readArray(n *avro.SchemaNode, v gjson.Result, at string) (any, error) {
	if !v.IsArray() {
		return nil, placed(at, "is no array")
	}
	out := []any{}
	for i, item := range v.Array() {
		value, err := s.read(n.Items, item, fmt.Sprintf("%s[%d]", at, i))
		if err != nil {
			return nil, err
		}
		out = append(out, value)
	}
	return out, nil
}

func (s *avroShape) readUnion(n *avro.SchemaNode, v gjson.Result, at string) (any, error) {
	if v.Type == gjson.Null {
		if s.branch(n, "null") == nil {
			return nil, placed(at, "may not be null")
		}
		return nil, nil
	}
	out := map[string]any{}
	err := members(v, at, func(name string, value gjson.Result) (err error) {
		branch := s.branch(n, name)
		if branch == nil || len(out) > 0 {
			return placed(at, "has to name one branch of the union, such as {\"%s\": …}", fullName(s.node(&n.Branches[len(n.Branches)-1])))
		}
		out[name], err = s.read(branch, value, at)
		return err
	})
	if err == nil && len(out) == 0 {
		err = placed(at, "names no branch of the union")
	}
	return out, err
}

func readLatin(v gjson.Result, at string) (any, error) {
	if v.Type != gjson.String {
		return nil, placed(at, "is no text of bytes")
	}
	out := make([]byte, 0, len(v.Str))
	for _, r := range v.Str {
		if r > 0xFF || r == utf8.RuneError {
			return nil, placed(at, "has a character that is no byte: %q", r)
		}
		out = append(out, byte(r))
	}
	return out, nil
}
