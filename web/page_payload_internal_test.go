package web

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"oncemore/dlq"
	"oncemore/views"
	"oncemore/views/locale"
)

func plain(lines []views.CodeLine) string {
	var all []string
	for _, l := range lines {
		all = append(all, lineText(l))
	}
	return strings.Join(all, "\n")
}

func TestJSONIsShownWithoutChangingTokens(t *testing.T) {
	t.Parallel()
	value := `{"b":7308412990155264513,"a":1.10e+2,"a":-0,"text":"\u00e9\/\"双十一","list":[ true,null ],"empty":{}}`
	want := `{
  "b": 7308412990155264513,
  "a": 1.10e+2,
  "a": -0,
  "text": "\u00e9\/\"双十一",
  "list": [
    true,
    null
  ],
  "empty": {}
}`
	lines := jsonLines([]byte(value))
	if got := plain(lines); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	classes := map[string]string{}
	for _, l := range lines {
		for _, token := range l.Tokens {
			classes[token.Text] = token.Class
		}
	}
	for text, class := range map[string]string{`"a"`: "k", "7308412990155264513": "n", "null": "n", `"\u00e9\/\"双十一"`: "s", ": ": ""} {
		if classes[text] != class {
			t.Errorf("%s has class %q, want %q", text, classes[text], class)
		}
	}
}

func FuzzJSONKeepsEveryByte(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"x",{}]}`, `"\u202e"`, `[1,1,1]`, `{"a":"\\\""}`, "\"\xff\"", ` {"a" : 1 } `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !json.Valid(value) || len(value) > 10_000 || !utf8.Valid(value) {
			return
		}
		for _, r := range string(value) {
			if spell(r, utf8.RuneLen(r), 0) != "" {
				return // is spelled out, and not kept
			}
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if got := plain(jsonLines(value)); squeeze(got) != squeeze(string(value)) {
			t.Errorf("%q became %q", value, got)
		}
	})
}

func TestNothingHidesInText(t *testing.T) {
	t.Parallel()
	got := plain(textLines([]byte("a\x00b\xff\xfe\tc\u202edab\u2066\n\r\u200b双\U0001F469\u200D\U0001F4BB")))
	if want := "a\\x00b\\xff\\xfe\tc\\u202edab\\u2066\n\\x0d\\u200b双\U0001F469\u200D\U0001F4BB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHex(t *testing.T) {
	t.Parallel()
	got := plain(hexLines([]byte("0123456789abcdef\x00\xff")))
	want := "00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  0123456789abcdef\n" +
		"00000010  00 ff                                             .."
	if got != want {
		t.Errorf("\n%s\nwant\n%s", got, want)
	}
}

func TestSuitedView(t *testing.T) {
	t.Parallel()
	here := locale.Locale{Tag: locale.English}
	for _, c := range []struct {
		value, asked, view, note string
	}{
		{`{"a":1}`, "", "json", ""},
		{`{"a":1}`, "text", "text", ""},
		{`{"a":1}`, "hex", "hex", ""},
		{"plain", "", "text", ""},
		{"{\n\"a\":\n oops}", "json", "text", "Not valid JSON: line 3. Shown as text."},
		{"mostly text \xff and more of it", "", "text", `1 byte is not UTF-8, shown as \x…`},
		{"\xff\xfe\x00\x01", "", "hex", "Not text. Shown as hex."},
		{"\xff\xfe", "text", "text", `2 bytes are not UTF-8, shown as \x…`},
	} {
		view, note := suitedView(here, []byte(c.value), c.asked)
		if view != c.view || note != c.note {
			t.Errorf("%q as %q: %s, %q; want %s, %q", c.value, c.asked, view, note, c.view, c.note)
		}
	}
}

func TestLongPayloadsAreCutAndSaySo(t *testing.T) {
	t.Parallel()
	here := locale.Locale{Tag: locale.English}
	value := []byte(strings.Repeat("双", 400_000))
	p := payloadOf(here, letterAddress{}, letterFacts{body: dlq.Body{Value: value}}, "")
	if !strings.Contains(p.Note, "The first 65 KB are shown. Download it for the whole.") || len(plain(p.Lines)) > shownText+10 {
		t.Errorf("note %q, %d bytes shown", p.Note, len(plain(p.Lines)))
	}
}

func TestNullAndEmptyAreTold(t *testing.T) {
	t.Parallel()
	here := locale.Locale{Tag: locale.English}
	for note, value := range map[string][]byte{"The body is null: there are no bytes.": nil, "The body is empty: it has 0 bytes.": {}} {
		if p := payloadOf(here, letterAddress{}, letterFacts{body: dlq.Body{Value: value}}, ""); p.Note != note || len(p.Lines) != 0 {
			t.Errorf("%v: %q with %d lines", value, p.Note, len(p.Lines))
		}
	}
}

func TestHeaderValuesAreDecoded(t *testing.T) {
	t.Parallel()
	here := locale.Locale{Tag: locale.English}
	for _, c := range []struct {
		value      []byte
		text, kind string
	}{
		{nil, "", "null"}, {[]byte{}, "", "empty"}, {[]byte("1234"), "1234", "text"}, {[]byte{0, 0, 0, 3}, "3", "int32"},
		{[]byte{0xff, 0xff, 0xff, 0xff}, "-1", "int32"}, {[]byte{0, 0, 1, 0x92, 0xf0, 0, 0, 0}, "1730603384832", "int64"},
		{[]byte{1, 2, 3}, "010203", "3 bytes"}, {[]byte(strings.Repeat("é", 300)), strings.Repeat("é", 100) + "… (600 bytes in all)", "text"},
	} {
		if text, kind := headerText(here, c.value); text != c.text || kind != c.kind {
			t.Errorf("%q: %q, %q; want %q, %q", c.value, text, kind, c.text, c.kind)
		}
	}
}

func TestReasonsHaveBothLanguages(t *testing.T) {
	t.Parallel()
	for _, texts := range []map[string]string{dlq.ReasonTexts, dlq.ReplayReasonTexts, dlq.TimelineTexts} {
		for key, english := range texts {
			if !locale.Has(key) {
				t.Errorf("%s is not in the catalog", key)
				continue
			}
			ours := (locale.Locale{Tag: locale.English}).Text(key)
			if strings.ReplaceAll(ours, "’", "'") != english {
				t.Errorf("%s: the catalog says %q, the package %q", key, ours, english)
			}
		}
	}
}

func TestReasonsAreSpokenInTheReadersZone(t *testing.T) {
	t.Parallel()
	here := locale.Locale{Tag: locale.English}
	r := dlq.Reason{Key: "reason.in_flight.replay", Args: map[string]any{"replay": float64(1412), "at": "1970-01-01T00:00:08Z"}, Text: "raw"}
	here.Now = time.Unix(60, 0)
	if got, want := reasonText(here, r), "Replay R-1412 holds this event since 00:00:08."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := reasonText(here, dlq.Reason{Key: "reason.of.tomorrow", Text: "English"}); got != "English" {
		t.Errorf("an unknown key reads %q", got)
	}
}
