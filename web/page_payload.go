package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"oncemore/dlq"
	"oncemore/dlq/payload"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// How much of a payload a page shows; the whole can be downloaded.
const (
	shownText = 64 << 10
	shownHex  = 8 << 10
	sideText  = 8 << 10
)

var payloadViews = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range payload.Views {
		all[name] = true
	}
	return all
}()

// payloadOf shows the letter's value. masked is why values are hidden, "" they
// are not.
func payloadOf(here locale.Locale, at letterAddress, f letterFacts, masked string) views.Payload {
	value := f.body.Value
	v := views.Payload{Title: here.Text("payload.title"), Size: here.Bytes(len(value)), Masked: masked}
	opened := f.opened
	if opened == nil {
		opened = payload.Open(context.Background(), payload.Input{Value: value})
	}
	shown := viewFor(opened, at.view, masked != "", deref(f.letter.EventID))
	switch {
	case value == nil && !slices.Contains(shown.views, payload.Event):
		v.Size, v.Note, v.Masked = "", here.Text("payload.null"), ""
		return v
	case len(value) == 0 && !slices.Contains(shown.views, payload.Event):
		v.Note, v.Masked = here.Text("payload.empty"), ""
		return v
	case shown.name == "":
		v.Note = here.Text("payload.masked_binary")
		return v
	case masked == "" && len(value) > 0:
		v.Download = "/letters/" + at.id.String() + "/body"
	}
	for _, name := range shown.views {
		v.Views = append(v.Views, ui.Tab{Label: here.Text("payload." + name), Href: at.with(at.target, name), Current: name == shown.name})
	}
	v.Steps = stepsText(here, opened)
	v.Problems = problemTexts(here, opened, masked != "")
	lines, cut := payloadLines(shown)
	v.Lines = lines
	v.Note = strings.TrimSpace(viewNote(here, opened, at.view, shown) + " " + cutNote(here, opened, shown, cut, masked != ""))
	return v
}

// stepsText says how the bytes were opened: "gzip, 14 KB → Avro, schema 17, shop.OrderPaid".
func stepsText(here locale.Locale, o *payload.Opened) string {
	var parts []string
	for _, step := range o.Steps {
		switch {
		case step.Schema != "":
			parts = append(parts, here.Text("payload.step.schema", "format", here.Text("payload."+step.Kind), "schema", step.Schema, "name", step.Name))
		case step.Kind == payload.MsgPack:
			parts = append(parts, here.Text("payload.msgpack"))
		default:
			parts = append(parts, here.Text("payload.step.inflated", "codec", step.Kind, "size", here.Bytes(step.Size)))
		}
	}
	return strings.Join(parts, " → ")
}

// problemTexts say what a decoder could not do. They quote libraries, and those
// quote values: where values are hidden, that part is.
func problemTexts(here locale.Locale, o *payload.Opened, hide bool) []string {
	var texts []string
	for _, p := range o.Problems {
		args := maps.Clone(p.Args)
		if _, quotes := args["error"]; quotes && hide {
			args["error"] = masked
		}
		texts = append(texts, sentence(here, p.Key, args, p.Text))
	}
	return texts
}

// viewNote says where the asked view cannot be, and what the shown one leaves out.
func viewNote(here locale.Locale, o *payload.Opened, asked string, shown bodyView) string {
	broken := 0
	if shown.name == payload.Text {
		broken = payload.BrokenBytes(cutBytes(shown.content, shownText))
	}
	switch {
	case asked == payload.JSON && shown.name == payload.Text:
		err := json.Unmarshal(o.Inflated, new(json.RawMessage))
		return here.Text("payload.not_json", "line", lineOf(o.Inflated, err))
	case asked == "" && shown.name == payload.Hex:
		return here.Text("payload.not_json_hex")
	case broken > 0:
		return here.Text("payload.not_text", "n", broken)
	}
	return ""
}

func cutNote(here locale.Locale, o *payload.Opened, shown bodyView, cut, hide bool) string {
	switch limit := here.Bytes(shownOf(shown.name)); {
	case o.Cut && shown.name != payload.Hex:
		return here.Text("payload.cut_inflated", "shown", limit, "most", here.Bytes(payload.MaxInflated))
	case cut && hide:
		return here.Text("payload.cut_masked", "shown", limit)
	case cut:
		return here.Text("payload.cut", "shown", limit)
	}
	return ""
}

func shownOf(view string) int {
	if view == payload.Hex {
		return shownHex
	}
	return shownText
}

// lineOf is where the parser stopped.
func lineOf(value []byte, err error) int {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return 1
	}
	end := min(int(syntax.Offset), len(value))
	return 1 + bytes.Count(value[:end], []byte("\n"))
}

func payloadLines(v bodyView) (lines []views.CodeLine, cut bool) {
	switch {
	case v.isJSON:
		lines, cut = jsonShown(v.content)
		return numbered(lines), cut
	case v.name == payload.Hex:
		return hexLines(cutBytes(v.content, shownHex)), len(v.content) > shownHex
	}
	return numbered(textLines(cutBytes(v.content, shownText))), len(v.content) > shownText
}

func cutBytes(b []byte, limit int) []byte { return b[:min(len(b), limit)] }

// shortLines shows one side of a comparison.
func shortLines(b dlq.Body) []views.CodeLine {
	if b.Value == nil {
		return []views.CodeLine{{Tokens: []views.Token{{Class: "m", Text: "null"}}}}
	}
	if json.Valid(b.Value) {
		return numbered(jsonLines(b.Value))
	}
	if payload.BrokenBytes(b.Value) > 0 {
		return hexLines(cutBytes(b.Value, sideText/4))
	}
	return numbered(textLines(cutBytes(b.Value, sideText)))
}

func numbered(lines []views.CodeLine) []views.CodeLine {
	for i := range lines {
		lines[i].No = strconv.Itoa(i + 1)
	}
	return lines
}

func jsonLines(value []byte) []views.CodeLine {
	lines, _ := jsonShown(value)
	return lines
}

// jsonShown lays a JSON document out and colours it; cut says that there is more.
// Only the white space between tokens changes: names keep their order and
// repeats, numbers and texts every byte.
func jsonShown(value []byte) (lines []views.CodeLine, cut bool) {
	text, cut := payload.Indent(value, shownText)
	s := jsonScanner{text: text}
	for s.at < len(s.text) {
		s.next()
	}
	return s.done(), cut
}

type jsonScanner struct {
	text   []byte
	at     int
	lines  []views.CodeLine
	tokens []views.Token
}

func (s *jsonScanner) next() {
	switch c := s.text[s.at]; {
	case c == '\n':
		s.lines, s.tokens = append(s.lines, views.CodeLine{Tokens: s.tokens}), nil
		s.at++
	case c == '"':
		end := stringEnd(s.text, s.at)
		class := "s"
		if end < len(s.text) && s.text[end] == ':' {
			class = "k"
		}
		s.take(class, end)
	case strings.IndexByte("{}[],: \t\r", c) >= 0:
		s.take("", s.runEnd(func(c byte) bool { return strings.IndexByte("{}[],: \t\r", c) >= 0 }))
	default:
		s.take("n", s.runEnd(func(c byte) bool { return strings.IndexByte("{}[],: \t\r\n\"", c) < 0 }))
	}
}

func (s *jsonScanner) runEnd(in func(byte) bool) int {
	end := s.at + 1
	for end < len(s.text) && in(s.text[end]) {
		end++
	}
	return end
}

func (s *jsonScanner) take(class string, end int) {
	s.tokens = append(s.tokens, visible(class, s.text[s.at:end])...)
	s.at = end
}

func (s *jsonScanner) done() []views.CodeLine {
	return append(s.lines, views.CodeLine{Tokens: s.tokens})
}

// stringEnd is behind the closing quote of the string that begins at at.
func stringEnd(text []byte, at int) int {
	for i := at + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func textLines(value []byte) []views.CodeLine {
	var lines []views.CodeLine
	for line := range bytes.SplitSeq(value, []byte("\n")) {
		lines = append(lines, views.CodeLine{Tokens: visible("", line)})
	}
	return lines
}

// visible makes tokens of text in which nothing hides: bytes that are no UTF-8,
// control characters and those that turn the direction of writing are spelled out.
func visible(class string, text []byte) []views.Token {
	var tokens []views.Token
	from := 0
	flush := func(to int) {
		if to > from {
			tokens = append(tokens, views.Token{Class: class, Text: string(text[from:to])})
		}
	}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if spelled := spell(r, size, text[i]); spelled != "" {
			flush(i)
			tokens = append(tokens, views.Token{Class: "x", Text: spelled})
			from = i + size
		}
		i += size
	}
	flush(len(text))
	return tokens
}

// spell is how a character that cannot be seen is written, "" where it can.
func spell(r rune, size int, first byte) string {
	switch {
	case r == utf8.RuneError && size == 1:
		return fmt.Sprintf(`\x%02x`, first)
	case r == '\t':
		return ""
	case unicode.IsControl(r):
		return fmt.Sprintf(`\x%02x`, r)
	case unicode.Is(unicode.Bidi_Control, r), unicode.Is(unicode.Cf, r) && r != 0x200D:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return ""
}

// hexLines writes sixteen bytes a line, with their offset and what can be read of them.
func hexLines(value []byte) []views.CodeLine {
	var lines []views.CodeLine
	for at := 0; at < len(value); at += 16 {
		row := value[at:min(at+16, len(value))]
		var hex, text strings.Builder
		for i, b := range row {
			if i == 8 {
				hex.WriteByte(' ')
			}
			fmt.Fprintf(&hex, "%02x ", b)
			if b < 0x20 || b > 0x7e {
				b = '.'
			}
			text.WriteByte(b)
		}
		lines = append(lines, views.CodeLine{Tokens: []views.Token{
			{Class: "m", Text: fmt.Sprintf("%08x  ", at)}, {Text: fmt.Sprintf("%-50s", hex.String())}, {Class: "s", Text: text.String()},
		}})
	}
	return lines
}
