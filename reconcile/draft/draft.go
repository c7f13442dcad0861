// Package draft changes a job's YAML value by value, as a form does, and leaves
// everything else as somebody wrote it: order, comments, style.
package draft

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Kind is how a value is written.
type Kind int

// The kinds of values.
const (
	Plain  Kind = iota
	Quoted      // a decimal: YAML's own numbers are binary fractions
	Query       // SQL of any number of lines
	List        // texts, with commas in the form
)

// Field is a value of a job by its path.
type Field struct {
	Path string // such as window.size
	Kind Kind
}

// Fields are all values of a job in the order of a form.
var Fields = slices.Concat(
	[]Field{{"job", Plain}, {"timezone", Plain}, {"schedule", Plain}, {"window.size", Plain}, {"window.overlap", Plain}, {"window.grace", Plain}},
	side("outbox"), side("consumed"), side("effect"),
	[]Field{
		{"key", List}, {"match.mode", Plain}, {"match.amount", Plain}, {"match.currency", Plain},
		{"match.outbox_time", Plain}, {"match.consumed_time", Plain}, {"match.effect_time", Plain},
		{"tolerance.amount", Quoted}, {"tolerance.percent", Quoted}, {"tolerance.time", Plain}, {"tolerance.run_total_cap", Quoted},
		{"limits.statement", Plain}, {"limits.run", Plain}, {"limits.breaks", Plain}, {"limits.parallel", Plain},
		{"sign_off.required", Plain}, {"sign_off.auto_below", Quoted}, {"recheck", List},
	},
)

func side(name string) []Field {
	return []Field{{name + ".connection", Plain}, {name + ".query", Query}, {name + ".lookup", Query}, {name + ".timezone", Plain}}
}

// Read gives the values of a text by path; those that it does not have are
// absent. The error is that of the YAML.
func Read(text string) (map[string]string, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, f := range Fields {
		if n := find(root, strings.Split(f.Path, ".")); n != nil {
			values[f.Path] = valueOf(n)
		}
	}
	return values, nil
}

// Apply sets values by path; empty ones are taken out, and so is a mapping that
// is left empty. A text whose values are the same already stays byte for byte.
func Apply(text string, values map[string]string) (string, error) {
	root, err := parse(text)
	if err != nil {
		return "", err
	}
	changed := false
	for _, f := range Fields {
		value, given := values[f.Path]
		if !given {
			continue
		}
		value = strings.TrimSpace(strings.ReplaceAll(value, "\r\n", "\n"))
		path := strings.Split(f.Path, ".")
		have := find(root, path)
		switch {
		case have == nil && value == "", have != nil && valueOf(have) == value:
			continue
		case value == "":
			remove(root, path)
		default:
			set(root, path, node(f.Kind, value), have)
		}
		changed = true
	}
	if !changed {
		return text, nil
	}
	return write(root)
}

func parse(text string) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("yaml: a job is a mapping of keys to values")
	}
	return &doc, nil
}

func write(doc *yaml.Node) (string, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(doc); err != nil {
		return "", fmt.Errorf("write the definition: %w", err)
	}
	return b.String(), nil
}

// find is the value at a path; nil: there is none.
func find(doc *yaml.Node, path []string) *yaml.Node {
	n := doc.Content[0]
	for _, key := range path {
		at := index(n, key)
		if at < 0 {
			return nil
		}
		n = n.Content[at+1]
	}
	return n
}

func index(n *yaml.Node, key string) int {
	if n.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

func valueOf(n *yaml.Node) string {
	if n.Kind != yaml.SequenceNode {
		return strings.TrimSpace(n.Value)
	}
	var all []string
	for _, item := range n.Content {
		all = append(all, item.Value)
	}
	return strings.Join(all, ", ")
}

// node writes a value: SQL folded where it is one line of text, as it stands
// where it has several.
func node(kind Kind, value string) *yaml.Node {
	switch kind {
	case Quoted:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: value}
	case Query:
		style := yaml.Style(0)
		if strings.Contains(value, "\n") {
			style = yaml.LiteralStyle
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: style, Value: value}
	case List:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range strings.Split(value, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: item})
			}
		}
		return list
	}
	return plain(value)
}

// plain writes numbers and truths as such, and everything else as text: a cron
// expression that begins with a star would be no YAML without quotes.
func plain(value string) *yaml.Node {
	var n yaml.Node
	n.SetString(value)
	if value == "true" || value == "false" || strings.Trim(value, "0123456789") == "" {
		n.Tag = ""
	}
	return &n
}

func set(doc *yaml.Node, path []string, value, have *yaml.Node) {
	if have != nil {
		value.HeadComment, value.LineComment, value.FootComment = have.HeadComment, have.LineComment, have.FootComment
		*have = *value
		return
	}
	n := doc.Content[0]
	for _, key := range path[:len(path)-1] {
		at := index(n, key)
		if at < 0 {
			n.Content = append(n.Content, plain(key), &yaml.Node{Kind: yaml.MappingNode})
			at = len(n.Content) - 2
		}
		n = n.Content[at+1]
	}
	if n.Kind == yaml.MappingNode {
		n.Content = append(n.Content, plain(path[len(path)-1]), value)
	}
}

func remove(doc *yaml.Node, path []string) {
	parent := doc
	if len(path) > 1 {
		parent = find(doc, path[:len(path)-1])
	} else {
		parent = doc.Content[0]
	}
	if at := index(parent, path[len(path)-1]); at >= 0 {
		parent.Content = slices.Delete(parent.Content, at, at+2)
	}
	if len(path) > 1 && len(parent.Content) == 0 {
		remove(doc, path[:len(path)-1])
	}
}
