// Package bodydiff compares two forms of a message's bytes, line by line of the
// form in which people read them: JSON indented, text as it is, other bytes as a
// dump in hex. It never changes bytes: numbers keep their digits, names their
// order and repeats.
package bodydiff

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"
	"github.com/go-json-experiment/json/jsontext"
)

// Form is how bytes are read for comparing.
type Form string

// The forms.
const (
	JSON Form = "json" // both are JSON and compared indented
	Text Form = "text" // both are UTF-8
	Hex  Form = "hex"  // at least one is neither
)

// Line is one line of a diff.
type Line struct {
	Op   byte // ' ' in both, '-' only before, '+' only after
	Text string
	Old  int // number of the line before, from 1; 0 for '+'
	New  int // number after; 0 for '-'
}

// Hunk is a run of lines that differ, with three lines around it.
type Hunk struct{ Lines []Line }

// Diff is what differs between two bodies.
type Diff struct {
	Form        Form
	Hunks       []Hunk // nil: equal as people read them
	Equal       bool   // byte for byte
	SameMeaning bool   // JSON that differs in white space only
}

const around = 3 // lines of context

// Of compares two bodies. Nil, which is null, and empty are both no lines; whoever
// tells them apart says so beside the diff.
func Of(before, after []byte) Diff {
	d := Diff{Equal: bytes.Equal(before, after)}
	old, new := "", ""
	d.Form, old, new = readable(before, after)
	d.Hunks = hunks(old, new)
	d.SameMeaning = d.Form == JSON && !d.Equal && len(d.Hunks) == 0
	return d
}

func readable(before, after []byte) (Form, string, string) {
	old, oldJSON := indented(before)
	new, newJSON := indented(after)
	switch {
	case oldJSON && newJSON:
		return JSON, old, new
	case utf8.Valid(before) && utf8.Valid(after) && !bytes.ContainsRune(before, 0) && !bytes.ContainsRune(after, 0):
		return Text, string(before), string(after)
	}
	return Hex, dump(before), dump(after)
}

// indented is a JSON document one value a line. Nothing counts as JSON too, so
// that a document against none is still shown indented.
func indented(b []byte) (string, bool) {
	if len(bytes.TrimSpace(b)) == 0 {
		return "", true
	}
	v := jsontext.Value(bytes.Clone(b))
	err := v.Format(jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true), jsontext.Multiline(true), jsontext.WithIndent("  "))
	if err != nil {
		return "", false
	}
	return string(v), true
}

// dump is 16 bytes a line: offset, hex, and what of it is printable ASCII.
func dump(b []byte) string {
	var out strings.Builder
	for at := 0; at < len(b); at += 16 {
		part := b[at:min(at+16, len(b))]
		text := bytes.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '.'
			}
			return r
		}, ascii(part))
		fmt.Fprintf(&out, "%08x  %-32s  %s\n", at, hex.EncodeToString(part), text)
	}
	return out.String()
}

// ascii makes every byte beyond ASCII one that is shown as a dot.
func ascii(b []byte) []byte {
	out := bytes.Clone(b)
	for i := range out {
		if out[i] > '~' {
			out[i] = 0
		}
	}
	return out
}

func hunks(old, new string) []Hunk {
	old, new = ended(old), ended(new)
	unified, err := udiff.ToUnifiedDiff("", "", old, udiff.Lines(old, new), around)
	if err != nil { // edits of the library's own making fit their text
		return []Hunk{{Lines: append(all('-', old), all('+', new)...)}}
	}
	var out []Hunk
	for _, h := range unified.Hunks {
		var hunk Hunk
		was, is := h.FromLine, h.ToLine
		for _, l := range h.Lines {
			line := Line{Text: strings.TrimSuffix(l.Content, "\n")}
			switch l.Kind {
			case udiff.Delete:
				line.Op, line.Old = '-', was
				was++
			case udiff.Insert:
				line.Op, line.New = '+', is
				is++
			default:
				line.Op, line.Old, line.New = ' ', was, is
				was, is = was+1, is+1
			}
			hunk.Lines = append(hunk.Lines, line)
		}
		out = append(out, hunk)
	}
	return out
}

// ended lets every line end, so that the last one compares like the others.
func ended(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}

func all(op byte, s string) (lines []Line) {
	for text := range strings.Lines(s) {
		lines = append(lines, Line{Op: op, Text: strings.TrimSuffix(text, "\n")})
	}
	return lines
}
