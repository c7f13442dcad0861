// Package strictyaml reads YAML for people: each problem names file, line and
// key, all of them are found at once, and unknown or doubled keys are problems.
package strictyaml

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Node is a value of the file with its path, and where problems go.
type Node struct {
	*yaml.Node
	file string
	path string
	bad  *Problems
}

// Pos is where the value stands.
func (n Node) Pos() Pos { return Pos{n.file, n.Line, n.path} }

// Fail notes a problem with the value; the sentence follows its place.
func (n Node) Fail(format string, args ...any) { n.bad.Add(n.Pos().Problemf(format, args...)) }

// Parse hands the document's root to read, and returns what was wrong, one line
// a problem. An empty document is a problem; file is for messages.
func Parse(file string, b []byte, read func(Node, *Problems)) error {
	doc, err := Document(file, b)
	if err != nil {
		return err
	}
	if len(doc.Content) == 0 {
		return fmt.Errorf("%s: is empty", file)
	}
	var bad Problems
	read(Node{doc.Content[0], file, "", &bad}, &bad)
	return bad.Err()
}

func (n Node) child(y *yaml.Node, path string) Node {
	if y.Kind == yaml.AliasNode {
		line := y.Line
		resolved := *y.Alias
		y = &resolved
		y.Line = line
	}
	return Node{y, n.file, path, n.bad}
}

// At is the path of a key below this one.
func (n Node) At(key string) string {
	if n.path == "" {
		return key
	}
	return n.path + "." + key
}

// Fields says what to do with each key of a mapping.
type Fields map[string]func(Node)

// Object walks over a mapping. Keys that are not in f and keys given twice are
// problems; so is each of the required ones that is missing.
func (n Node) Object(f Fields, required ...string) {
	seen := map[string]bool{}
	ok := n.pairs(func(key string, k, v Node) {
		read, known := f[key]
		switch {
		case !known:
			k.Fail("unknown key%s", suggest(key, f))
		case seen[key]:
			k.Fail("is given twice")
		default:
			read(v)
		}
		seen[key] = true
	})
	for _, key := range required {
		if ok && !seen[key] {
			n.bad.Add(Pos{n.file, n.Line, n.At(key)}.Problemf("is missing"))
		}
	}
}

// Named walks over a mapping whose keys are names of one's own.
func (n Node) Named(each func(name string, v Node)) {
	seen := map[string]bool{}
	n.pairs(func(name string, k, v Node) {
		if seen[name] {
			k.Fail("is given twice")
			return
		}
		seen[name] = true
		each(name, v)
	})
}

func (n Node) pairs(each func(key string, k, v Node)) bool {
	if n.Kind != yaml.MappingNode {
		n.Fail("has to be a mapping, not %s", n.What())
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		each(key, n.child(n.Content[i], n.At(key)), n.child(n.Content[i+1], n.At(key)))
	}
	return true
}

// List walks over a sequence.
func (n Node) List(each func(Node)) {
	if n.Kind != yaml.SequenceNode {
		n.Fail("has to be a list, not %s", n.What())
		return
	}
	for i, y := range n.Content {
		each(n.child(y, fmt.Sprintf("%s[%d]", n.path, i)))
	}
}

// Text reads a non-empty string.
func (n Node) Text(into *string) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		n.Fail("has to be text, not %s", n.What())
		return
	}
	if n.Value == "" {
		n.Fail("is empty")
		return
	}
	*into = n.Value
}

// Texts reads a list of non-empty strings that is not empty itself.
func (n Node) Texts(into *[]string) {
	n.List(func(item Node) {
		var s string
		item.Text(&s)
		*into = append(*into, s)
	})
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		n.Fail("is an empty list")
	}
}

// OneOf reads a string that has to be one of those allowed.
func (n Node) OneOf(into *string, allowed ...string) {
	n.Text(into)
	if *into != "" && !slices.Contains(allowed, *into) {
		n.Fail("has to be one of %s, not %q", strings.Join(allowed, ", "), *into)
	}
}

// Whole reads a whole number of at least least.
func (n Node) Whole(into *int, least int) {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		n.Fail("has to be a whole number, not %s", n.What())
		return
	}
	if v < least {
		n.Fail("has to be at least %d, not %d", least, v)
	}
	*into = v
}

// Number reads a number of at least least.
func (n Node) Number(into *float64, least float64) {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || err != nil {
		n.Fail("has to be a number, not %s", n.What())
		return
	}
	if v < least {
		n.Fail("has to be at least %g, not %g", least, v)
	}
	*into = v
}

// Yes reads true or false.
func (n Node) Yes(into *bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		n.Fail("has to be true or false, not %s", n.What())
		return
	}
	*into = n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
}

// Duration reads what ParseDuration reads.
func (n Node) Duration(into *time.Duration) {
	d, err := ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		n.Fail("has to be a duration such as 10s, 24h or 90d, not %s", n.What())
		return
	}
	*into = d
}

// Date reads a day or an instant; a day begins at midnight UTC.
func (n Node) Date(into *time.Time) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, n.Value); err == nil && n.Kind == yaml.ScalarNode {
			*into = t.UTC()
			return
		}
	}
	n.Fail("has to be a date such as 2026-09-01 or 2026-09-01T08:00:00Z, not %s", n.What())
}

var named = regexp.MustCompile(`^[a-z0-9]+(?:[._-][a-z0-9]+)*$`)

// Name reads a name of one's own that is fit for addresses and file names.
func (n Node) Name(into *string) {
	n.Text(into)
	if *into != "" && !named.MatchString(*into) {
		n.Fail("has to be small letters, digits, and - . _ between them, not %q", *into)
	}
}

// Zone reads the name of a time zone; the machine's own is none.
func (n Node) Zone(into **time.Location) {
	var name string
	n.Text(&name)
	zone, err := time.LoadLocation(name)
	if name == "" || name == "Local" || err != nil {
		n.Fail("has to be a zone such as Asia/Shanghai, not %q", name)
		return
	}
	*into = zone
}

// What names what stands there instead, for a problem.
func (n Node) What() string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	}
	return strconv.Quote(n.Value)
}

// suggest names the known key that is nearest, or all of them.
func suggest(key string, f Fields) string {
	known := slices.Sorted(maps.Keys(f))
	for _, k := range known {
		if distance(key, k) <= 2 {
			return fmt.Sprintf(": is %s meant?", k)
		}
	}
	return fmt.Sprintf(": known here are %s", strings.Join(known, ", "))
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left, diagonal := i+1, i
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j] = left
			left = min(cost, left+1, diagonal+1)
		}
		row[len(b)] = left
	}
	return row[len(b)]
}
