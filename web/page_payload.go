package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"oncemore/dlq"
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

var payloadViews = map[string]bool{"json": true, "text": true, "hex": true}

// payloadOf shows the letter's value. masked is why values are hidden, "" they
// are not.
func payloadOf(here locale.Locale, at letterAddress, f letterFacts, masked string) views.Payload {
	value := f.body.Value
	v := views.Payload{Title: here.Text("payload.title"), Size: here.Bytes(len(value)), Masked: masked}
	switch {
	case value == nil:
		v.Size, v.Note, v.Masked = "", here.Text("payload.null"), ""
		return v
	case len(value) == 0:
		v.Note, v.Masked = here.Text("payload.empty"), ""
		return v
	case masked == "":
		v.Download = "/letters/" + at.id.String() + "/body"
	default:
		value, _ = MaskBytes(value, deref(f.letter.EventID))
		if readable(value) == nil {
			v.Note = here.Text("payload.masked_binary")
			return v
		}
	}
	view, note := suitedView(here, value, at.view)
	v.Note = note
	for _, name := range []string{"json", "text", "hex"} {
		v.Views = append(v.Views, ui.Tab{Label: here.Text("payload." + name), Href: at.with(at.target, name), Current: name == view})
	}
	v.Lines = payloadLines(value, view)
	if cut := shownOf(view); len(value) > cut {
		key := "payload.cut"
		if masked != "" {
			key = "payload.cut_masked"
		}
		v.Note = strings.TrimSpace(v.Note + " " + here.Text(key, "shown", here.Bytes(cut)))
	}
	return v
}

func shownOf(view string) int {
	if view == "hex" {
		return shownHex
	}
	return shownText
}

// suitedView is the asked view, else JSON where the bytes are that, else text,
// else hex; and a note where the asked one cannot be.
func suitedView(here locale.Locale, value []byte, asked string) (view, note string) {
	jsonErr := json.Unmarshal(value, new(json.RawMessage))
	broken := brokenBytes(value)
	switch {
	case asked == "hex":
		return "hex", ""
	case asked == "json" && jsonErr != nil:
		return "text", here.Text("payload.not_json", "line", lineOf(value, jsonErr))
	case asked == "json", asked == "" && jsonErr == nil:
		return "json", ""
	case asked == "" && broken > len(value)/10:
		return "hex", here.Text("payload.not_json_hex")
	case broken > 0:
		return "text", here.Text("payload.not_text", "n", broken)
	}
	return "text", ""
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

func brokenBytes(value []byte) int {
	n := 0
	for i := 0; i < len(value); {
		r, size := utf8.DecodeRune(value[i:])
		if r == utf8.RuneError && size == 1 || r == 0 {
			n++
		}
		i += size
	}
	return n
}

func payloadLines(value []byte, view string) []views.CodeLine {
	switch view {
	case "json":
		return numbered(jsonLines(value))
	case "text":
		return numbered(textLines(cutBytes(value, shownText)))
	}
	return hexLines(cutBytes(value, shownHex))
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
	if brokenBytes(b.Value) > 0 {
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

// jsonLines indents and colours JSON. Only the white space between tokens
// changes: names keep their order and repeats, numbers and texts every byte.
func jsonLines(value []byte) []views.CodeLine {
	var b bytes.Buffer
	if err := json.Indent(&b, value, "", "  "); err != nil {
		return textLines(cutBytes(value, shownText))
	}
	s := jsonScanner{text: cutBytes(b.Bytes(), shownText)}
	for s.at < len(s.text) {
		s.next()
	}
	return s.done()
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
