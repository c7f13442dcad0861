package dialect

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// jsonNode is valid JSON as nodes of YAML, which know their lines.
func jsonNode(text []byte) *yaml.Node {
	r := &jsonNodes{text: text, line: 1, dec: jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	return r.value()
}

type jsonNodes struct {
	text     []byte
	dec      *jsontext.Decoder
	at, line int
}

// here is the line of the token that was read last.
func (r *jsonNodes) here() int {
	to := int(r.dec.InputOffset())
	r.line += bytes.Count(r.text[r.at:to], []byte("\n"))
	r.at = to
	return r.line
}

func (r *jsonNodes) value() *yaml.Node {
	token, err := r.dec.ReadToken()
	if err != nil {
		return nil
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.here()}
	switch token.Kind() {
	case '{', '[':
		n.Kind = yaml.SequenceNode
		if token.Kind() == '{' {
			n.Kind = yaml.MappingNode
		}
		for k := r.dec.PeekKind(); k != ']' && k != '}'; k = r.dec.PeekKind() {
			child := r.value()
			if child == nil {
				return nil
			}
			n.Content = append(n.Content, child)
		}
		_, _ = r.dec.ReadToken()
	case 'n':
		n.Tag = "!!null"
	case 't', 'f':
		n.Tag, n.Value = "!!bool", token.String()
	case '0':
		n.Tag, n.Value = "!!float", token.String()
		if _, whole := decimal(n.Value); whole {
			n.Tag = "!!int"
		}
	default:
		n.Tag, n.Value = "!!str", token.String()
	}
	return n
}
