package web

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"oncemore/dlq"
	"oncemore/dlq/amqpform"
	"oncemore/dlq/dialect"
	"oncemore/dlq/payload"
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

func shownAs(value, asked string) views.Payload {
	here := locale.Locale{Tag: locale.English}
	return payloadOf(here, letterAddress{view: asked}, letterFacts{body: dlq.Body{Value: []byte(value)}}, "")
}

func currentView(p views.Payload) string {
	for _, tab := range p.Views {
		if tab.Current {
			return tab.Label
		}
	}
	return ""
}

func TestTheViewThatSuits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, asked, view, note string }{
		{`{"a":1}`, "", "JSON", ""},
		{`{"a":1}`, "text", "Text", ""},
		{`{"a":1}`, "hex", "Hex", ""},
		{"plain", "", "Text", ""},
		{"{\n\"a\":\n oops}", "json", "Text", "Not valid JSON: line 3. Shown as text."},
		{"mostly text \xff and more of it", "", "Text", `1 byte is not UTF-8, shown as \x…`},
		{"\xff\xfe\x00\x01", "", "Hex", "Not text. Shown as hex."},
		{"\xff\xfe", "text", "Text", `2 bytes are not UTF-8, shown as \x…`},
	} {
		p := shownAs(c.value, c.asked)
		if currentView(p) != c.view || p.Note != c.note {
			t.Errorf("%q as %q: %s, %q; want %s, %q", c.value, c.asked, currentView(p), p.Note, c.view, c.note)
		}
	}
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCompressedPayloadIsInflatedForShowing(t *testing.T) {
	t.Parallel()
	packed := gzipped(t, `{"name":"Ada"}`)
	p := shownAs(packed, "")
	if currentView(p) != "JSON" || p.Steps != "gzip, 14 bytes inflated" || !strings.Contains(plain(p.Lines), `"name": "Ada"`) || p.Download == "" {
		t.Errorf("%s, %q, %s", currentView(p), p.Steps, plain(p.Lines))
	}
	if hex := shownAs(packed, "hex"); !strings.HasPrefix(plain(hex.Lines), "00000000  1f 8b 08") {
		t.Errorf("hex is not of the stored bytes: %s", plain(hex.Lines))
	}
}

// A decoder that fails shows bytes and the reason, in both languages.
func TestDecodersSayWhyTheyFail(t *testing.T) {
	t.Parallel()
	for tag, want := range map[locale.Tag]string{
		locale.English: "The body has the frame of a schema registry, schema 17, but the cluster has no schema_registry in the config.",
		locale.Chinese: "消息体带有 schema registry 的帧（schema 17），但该集群的配置中没有 schema_registry。",
	} {
		p := payloadOf(locale.Locale{Tag: tag}, letterAddress{}, letterFacts{body: dlq.Body{Value: []byte("\x00\x00\x00\x00\x11\x02secret")}}, "")
		if len(p.Problems) != 1 || p.Problems[0] != want || !strings.Contains(plain(p.Lines), "00 00 00 00 11") {
			t.Errorf("%q\n%s", p.Problems, plain(p.Lines))
		}
	}
}

// Whatever the layers, a reader without the right to read sees no value: not as
// JSON, not inflated, not decoded, not as hex, not in a decoder's complaint.
func TestMaskedInEveryView(t *testing.T) {
	t.Parallel()
	const secret = "Ada Lovelace"
	here := locale.Locale{Tag: locale.English}
	document := `{"eventId":"evt-1","name":"` + secret + `","n":1}`
	message := msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "name"), secret)
	bodies := map[string]dlq.Body{
		"json": {Value: []byte(document)}, "gzip": {Value: []byte(gzipped(t, document))}, "msgpack": {Value: append(message[:len(message):len(message)], nil...)},
		"binary": {Value: []byte("\x00\xff" + secret)}, "xml": {Value: []byte("<name>" + secret + "</name>")}, "gzip of bytes": {Value: []byte(gzipped(t, "\x00\xff"+secret))},
		"cut json": {Value: []byte(`{"name":"` + secret)}, "framed": {Value: []byte("\x00\x00\x00\x00\x11" + secret)},
		"event":           {Value: []byte(document), Headers: []dlq.Header{{Name: "ce_specversion", Value: []byte("1.0")}, {Name: "ce_id", Value: []byte("evt-1")}, {Name: "ce_source", Value: []byte("/" + secret)}, {Name: "ce_type", Value: []byte(secret)}}},
		"said to be gzip": {Value: []byte(secret), Headers: []dlq.Header{{Name: "content-encoding", Value: []byte("gzip")}}},
	}
	for name, body := range bodies {
		f := letterFacts{body: body, opened: payload.Open(t.Context(), payloadInput(body)), letter: dlq.LetterDetail{Letter: dlq.Letter{EventID: ptr("evt-1")}}}
		for _, view := range append([]string{""}, payload.Views...) {
			p := payloadOf(here, letterAddress{view: view}, f, "hidden")
			shown := plain(p.Lines) + p.Note + strings.Join(p.Problems, " ")
			if strings.Contains(shown, "Lovelace") && name != "said to be gzip" || strings.Contains(shown, "41 64 61") || p.Download != "" {
				t.Errorf("%s as %q shows %s", name, view, shown)
			}
			for _, tab := range p.Views {
				if tab.Label == "Hex" {
					t.Errorf("%s offers hex", name)
				}
			}
		}
	}
	f := letterFacts{body: bodies["gzip"], opened: payload.Open(t.Context(), payloadInput(bodies["gzip"])), letter: dlq.LetterDetail{Letter: dlq.Letter{EventID: ptr("evt-1")}}}
	if p := payloadOf(here, letterAddress{}, f, "hidden"); !strings.Contains(plain(p.Lines), `"eventId": "evt-1"`) || !strings.Contains(plain(p.Lines), `"name": "•••"`) {
		t.Errorf("what may be seen is not: %s", plain(p.Lines))
	}
}

func TestTenMegabytesDoNotHangThePage(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"json": `[` + strings.Repeat(`{"name":"Ada"},`, 700_000) + `0]`, "text": strings.Repeat("line of text\n", 800_000), "bytes": strings.Repeat("\x00\xff", 5<<20),
	} {
		begin := time.Now()
		p := shownAs(value, "")
		if took := time.Since(begin); took > time.Minute || !strings.Contains(p.Note, "Download it for the whole.") || len(plain(p.Lines)) > 80<<10 {
			t.Errorf("%s: %s, %q, %d bytes", name, took, p.Note, len(plain(p.Lines)))
		}
	}
}

func TestLongPayloadsAreCutAndSaySo(t *testing.T) {
	t.Parallel()
	here := locale.Locale{Tag: locale.English}
	value := []byte(strings.Repeat("双", 400_000))
	p := payloadOf(here, letterAddress{}, letterFacts{body: dlq.Body{Value: value}}, "")
	if !strings.Contains(p.Note, "This view ends after 65 KB. Download it for the whole.") || len(plain(p.Lines)) > shownText+10 {
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

func TestHeaderViews(t *testing.T) {
	t.Parallel()
	here := locale.Locale{Tag: locale.English}
	ms := []byte{0, 0, 1, 0x92, 0xf0, 0, 0, 0}
	for _, c := range []struct {
		view       string
		value      []byte
		text, kind string
	}{
		{"number", ms, "1730603384832", "int64"}, {"time", ms, "2024-11-03 03:09:44.832 +00:00", "time"}, {"hex", ms, "00000192f0000000", "8 bytes"}, {"text", ms, `\x00\x00\x01\x92\xf0\x00\x00\x00`, "text"},
		{"number", []byte{0x01, 0x92, 0xf0, 0, 0, 0}, "1730603384832", "int48"}, {"time", []byte("1730603384832"), "2024-11-03 03:09:44.832 +00:00", "time"},
		{"time", []byte("1730603384"), "2024-11-03 03:09:44.000 +00:00", "time"}, {"time", []byte("638662001848320000"), "2024-11-03 03:09:44.832 +00:00", "time"},
		{"time", []byte("2024-11-03T03:09:44Z"), "2024-11-03 03:09:44.000 +00:00", "time"},
		{"time", []byte("soon"), "soon", "text"}, {"number", []byte("three"), "three", "text"}, {"number", []byte{}, "", "empty"}, {"hex", nil, "", "null"}, {"", []byte{0, 0, 0, 3}, "3", "int32"},
	} {
		if text, kind := headerAs(here, c.view, dlq.Header{Value: c.value}, c.value); text != c.text || kind != c.kind {
			t.Errorf("%q as %s: %q, %q; want %q, %q", c.value, c.view, text, kind, c.text, c.kind)
		}
	}
	row := headerRow(here, "hex", dlq.Header{Name: "secret", Value: []byte("ada@example.com")}, true, "evt-1")
	if strings.Contains(row.Value, "616461") || row.Type != "masked" {
		t.Errorf("hex shows what is masked: %+v", row)
	}
	typed := headerRow(here, "", dlq.Header{Name: "n", Type: amqpform.Int32, Value: []byte{0, 0, 0, 7}}, false, "")
	if typed.Value != "7" || typed.Type != "int32" {
		t.Errorf("%+v", typed)
	}
	if void := headerRow(here, "hex", dlq.Header{Name: "n", Type: amqpform.Void}, false, ""); void.Value != "" || void.Type != "null" {
		t.Errorf("%+v", void)
	}
}

func TestReasonsHaveBothLanguages(t *testing.T) {
	t.Parallel()
	for _, texts := range []map[string]string{dlq.ReasonTexts, dlq.ReplayReasonTexts, dlq.TimelineTexts, dialect.WhyTexts, payload.WhyTexts} {
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

func TestFieldsOfDialectsHaveNames(t *testing.T) {
	t.Parallel()
	for _, field := range dialect.FieldNames() {
		if field != "exception_stack" && !locale.Has("layers.field."+field) {
			t.Errorf("field %s has no name in the catalog", field)
		}
	}
}
