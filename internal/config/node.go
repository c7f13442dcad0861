package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// node is a value of the file with its path, and where problems go.
type node struct {
	*yaml.Node
	file string
	path string
	bad  *problems
}

func (n node) pos() Pos { return Pos{n.file, n.Line, n.path} }

func (n node) fail(format string, args ...any) { n.bad.add(n.pos().Problemf(format, args...)) }

func (n node) child(y *yaml.Node, path string) node {
	if y.Kind == yaml.AliasNode {
		line := y.Line
		resolved := *y.Alias
		y = &resolved
		y.Line = line
	}
	return node{y, n.file, path, n.bad}
}

func (n node) at(key string) string {
	if n.path == "" {
		return key
	}
	return n.path + "." + key
}

// fields says what to do with each key of a mapping.
type fields map[string]func(node)

// object walks over a mapping. Keys that are not in f and keys given twice are
// problems; so is each of the required ones that is missing.
func (n node) object(f fields, required ...string) {
	seen := map[string]bool{}
	ok := n.pairs(func(key string, k, v node) {
		read, known := f[key]
		switch {
		case !known:
			k.fail("unknown key%s", suggest(key, f))
		case seen[key]:
			k.fail("is given twice")
		default:
			read(v)
		}
		seen[key] = true
	})
	for _, key := range required {
		if ok && !seen[key] {
			n.bad.add(Pos{n.file, n.Line, n.at(key)}.Problemf("is missing"))
		}
	}
}

// named walks over a mapping whose keys are names of one's own.
func (n node) named(each func(name string, v node)) {
	seen := map[string]bool{}
	n.pairs(func(name string, k, v node) {
		if seen[name] {
			k.fail("is given twice")
			return
		}
		seen[name] = true
		each(name, v)
	})
}

func (n node) pairs(each func(key string, k, v node)) bool {
	if n.Kind != yaml.MappingNode {
		n.fail("has to be a mapping, not %s", n.what())
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		each(key, n.child(n.Content[i], n.at(key)), n.child(n.Content[i+1], n.at(key)))
	}
	return true
}

func (n node) list(each func(node)) {
	if n.Kind != yaml.SequenceNode {
		n.fail("has to be a list, not %s", n.what())
		return
	}
	for i, y := range n.Content {
		each(n.child(y, fmt.Sprintf("%s[%d]", n.path, i)))
	}
}

// text reads a non-empty string.
func (n node) text(into *string) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		n.fail("has to be text, not %s", n.what())
		return
	}
	if n.Value == "" {
		n.fail("is empty")
		return
	}
	*into = n.Value
}

func (n node) texts(into *[]string) {
	n.list(func(item node) {
		var s string
		item.text(&s)
		*into = append(*into, s)
	})
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		n.fail("is an empty list")
	}
}

func (n node) oneOf(into *string, allowed ...string) {
	n.text(into)
	if *into != "" && !slices.Contains(allowed, *into) {
		n.fail("has to be one of %s, not %q", strings.Join(allowed, ", "), *into)
	}
}

// whole reads a whole number of at least least.
func (n node) whole(into *int, least int) {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		n.fail("has to be a whole number, not %s", n.what())
		return
	}
	if v < least {
		n.fail("has to be at least %d, not %d", least, v)
	}
	*into = v
}

func (n node) number(into *float64, least float64) {
	v, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || err != nil {
		n.fail("has to be a number, not %s", n.what())
		return
	}
	if v < least {
		n.fail("has to be at least %g, not %g", least, v)
	}
	*into = v
}

func (n node) yes(into *bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		n.fail("has to be true or false, not %s", n.what())
		return
	}
	*into = n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
}

func (n node) duration(into *time.Duration) {
	d, err := ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		n.fail("has to be a duration such as 10s, 24h or 90d, not %s", n.what())
		return
	}
	*into = d
}

// date reads a day or an instant; a day begins at midnight UTC.
func (n node) date(into *time.Time) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, n.Value); err == nil && n.Kind == yaml.ScalarNode {
			*into = t.UTC()
			return
		}
	}
	n.fail("has to be a date such as 2026-09-01 or 2026-09-01T08:00:00Z, not %s", n.what())
}

func (n node) what() string {
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
func suggest(key string, f fields) string {
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
