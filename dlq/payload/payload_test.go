package payload_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/tinylib/msgp/msgp"

	"oncemore/dlq/payload"
)

func pack(t testing.TB, to func(io.Writer) io.WriteCloser, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := to(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var codecs = map[string]func(io.Writer) io.WriteCloser{
	"gzip":   func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"zlib":   func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"zstd":   func(w io.Writer) io.WriteCloser { e, _ := zstd.NewWriter(w); return e },
	"lz4":    func(w io.Writer) io.WriteCloser { return lz4.NewWriter(w) },
	"snappy": func(w io.Writer) io.WriteCloser { return snappy.NewBufferedWriter(w) },
}

func TestCompressedBodiesAreInflatedForShowing(t *testing.T) {
	t.Parallel()
	body := []byte(`{"orderId":"ORD-1","n":1.10}`)
	named := map[string]string{"zlib": "deflate", "snappy": "snappy"}
	for kind, to := range codecs {
		o := open(t, payload.Input{Value: pack(t, to, body), ContentEncoding: named[kind]})
		if string(o.Inflated) != string(body) || o.Best() != payload.JSON || len(o.Steps) != 1 || o.Steps[0].Kind != kind {
			t.Errorf("%s: %q, best %s, steps %+v, %+v", kind, o.Inflated, o.Best(), o.Steps, o.Problems)
		}
		if kept, _ := o.Content(payload.Hex); bytes.Equal(kept, body) {
			t.Errorf("%s: hex does not show the stored bytes", kind)
		}
	}
	for name, packed := range map[string][]byte{"bare": snappy.Encode(nil, body), "Java's": xerial.Encode(nil, body)} {
		if o := open(t, payload.Input{Value: packed, ContentEncoding: "snappy"}); string(o.Inflated) != string(body) {
			t.Errorf("snappy, %s: %q, %+v", name, o.Inflated, o.Problems)
		}
	}
	twice := pack(t, codecs["gzip"], pack(t, codecs["zstd"], body))
	if o := open(t, payload.Input{Value: twice}); string(o.Inflated) != string(body) || len(o.Steps) != 2 {
		t.Errorf("twice: %q, %+v", o.Inflated, o.Steps)
	}
}

func TestWhatCannotBeInflatedIsShownAsItIs(t *testing.T) {
	t.Parallel()
	whole := pack(t, codecs["gzip"], bytes.Repeat([]byte("text "), 100))
	o := open(t, payload.Input{Value: whole[:len(whole)-6], ContentEncoding: "gzip"})
	if len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.inflate" || o.Best() != payload.Hex || len(o.Steps) != 0 {
		t.Errorf("cut off: %+v, %s", o.Problems, o.Best())
	}
	if o := open(t, payload.Input{Value: []byte("plain"), ContentEncoding: "gzip"}); len(o.Problems) != 1 || o.Best() != payload.Text {
		t.Errorf("not compressed at all: %+v, %s", o.Problems, o.Best())
	}
	if o := open(t, payload.Input{Value: []byte("plain"), ContentEncoding: "identity"}); len(o.Problems) != 0 {
		t.Errorf("identity: %+v", o.Problems)
	}
	if o := open(t, payload.Input{Value: []byte("\x1f\x8b\x08 by chance")}); len(o.Problems) != 0 {
		t.Errorf("gzip's first bytes by chance: %+v", o.Problems)
	}
}

// A small body that inflates without end is cut, and takes neither the memory nor
// the time of the whole.
func TestBombs(t *testing.T) {
	t.Parallel()
	zeros := func(w io.WriteCloser) {
		chunk := make([]byte, 1<<20)
		for range payload.MaxInflated>>20 + 1 {
			w.Write(chunk) //nolint:errcheck // into a buffer
		}
		w.Close() //nolint:errcheck
	}
	for _, kind := range []string{"gzip", "zlib", "zstd", "lz4", "snappy"} {
		var b bytes.Buffer
		zeros(codecs[kind](&b))
		o := open(t, payload.Input{Value: b.Bytes(), ContentEncoding: kind})
		if !o.Cut || len(o.Inflated) != payload.MaxInflated {
			t.Errorf("%s: %d bytes of %d, cut %v, %+v", kind, len(o.Inflated), b.Len(), o.Cut, o.Problems)
		}
	}
	for name, lie := range map[string][]byte{"bare": {0xff, 0xff, 0xff, 0xff, 0x0f, 0}, "Java's": append([]byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x06"), 0xff, 0xff, 0xff, 0xff, 0x0f, 0)} {
		if o := open(t, payload.Input{Value: lie, ContentEncoding: "snappy"}); len(o.Problems) != 1 {
			t.Errorf("snappy, %s, that says 4 GB: %+v", name, o.Problems)
		}
	}
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 1, 0, 0} // a zstd frame with a window of many gigabytes
	if o := open(t, payload.Input{Value: window, ContentEncoding: "zstd"}); len(o.Problems) != 1 {
		t.Errorf("window: %+v", o.Problems)
	}
	const levels = 60 // maps that are keys of maps: each quotes the one in it
	keys := append(bytes.Repeat([]byte{0x81}, levels), bytes.Repeat([]byte{0xc0}, levels+1)...)
	if o := open(t, payload.Input{Value: keys, ContentType: "application/msgpack"}); len(o.Problems) != 1 || o.Document != nil {
		t.Errorf("MessagePack: %d bytes of %d, %+v", len(o.Document), len(keys), o.Problems)
	}
}

func TestBestView(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`{"a":1}`: payload.JSON, ` [1] `: payload.JSON, `7`: payload.JSON, "plain": payload.Text, "<a/>": payload.Text, "mostly text \xff and more of it": payload.Text,
		"\xff\xfe\x00\x01": payload.Hex, "{\"cut": payload.Text, "": payload.Text,
	} {
		if o := open(t, payload.Input{Value: []byte(value)}); o.Best() != want {
			t.Errorf("%q is best seen as %s, want %s", value, o.Best(), want)
		}
	}
	o := open(t, payload.Input{Value: []byte(`{"a":1}`)})
	if !slices.Equal(o.Views(), []string{payload.JSON, payload.Text, payload.Hex}) {
		t.Errorf("views %v", o.Views())
	}
	if content, isJSON := o.Content("avro"); isJSON || string(content) != `{"a":1}` {
		t.Errorf("a view that is not there: %s", content)
	}
}

func TestMessagePack(t *testing.T) {
	t.Parallel()
	var b []byte
	b = msgp.AppendMapHeader(b, 9)
	b = msgp.AppendUint64(msgp.AppendString(b, "big"), math.MaxUint64)
	b = msgp.AppendInt64(msgp.AppendString(b, "low"), math.MinInt64)
	b = msgp.AppendFloat64(msgp.AppendString(b, "rate"), 0.1)
	b = msgp.AppendBool(msgp.AppendString(b, "dup"), true)
	b = msgp.AppendNil(msgp.AppendString(b, "dup"))
	b = msgp.AppendBytes(msgp.AppendString(b, "raw"), []byte{0, 255})
	b = msgp.AppendArrayHeader(msgp.AppendInt(b, 7), 2)
	b = msgp.AppendString(msgp.AppendFloat64(b, math.Inf(1)), "<双>")
	b = msgp.AppendString(b, "ext")
	b = append(b, 0xd4, 5, 9)
	b = msgp.AppendTimeExt(msgp.AppendString(b, "at"), time.Unix(1773480413, 500))
	want := `{"big":18446744073709551615,"low":-9223372036854775808,"rate":0.1,"dup":true,"dup":null,"raw":{"$binary":"AP8="},"7":["+Inf","<双>"],"ext":{"$ext":5,"data":"CQ=="},"at":{"$time":"2026-03-14T09:26:53.0000005Z"}}`
	o := open(t, payload.Input{Value: b})
	if string(o.Document) != want || o.Best() != payload.MsgPack {
		t.Errorf("%s\nwant %s", o.Document, want)
	}
	if o := open(t, payload.Input{Value: msgp.AppendInt(nil, 7), ContentType: "application/vnd.msgpack"}); string(o.Document) != "7" {
		t.Errorf("%s, %+v", o.Document, o.Problems)
	}
	if o := open(t, payload.Input{Value: b[:len(b)-1]}); o.Document != nil || len(o.Problems) != 0 {
		t.Errorf("not said, not whole: %s, %+v", o.Document, o.Problems)
	}
	if o := open(t, payload.Input{Value: b[:len(b)-1], ContentType: "application/x-msgpack"}); len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.msgpack" {
		t.Errorf("said, not whole: %+v", o.Problems)
	}
	for name, bomb := range map[string][]byte{"deep": bytes.Repeat([]byte{0x91}, 1_000_000), "long": {0xdd, 0xff, 0xff, 0xff, 0xff, 0xc0}, "wide": {0xdf, 0xff, 0xff, 0xff, 0xff}} {
		if o := open(t, payload.Input{Value: bomb, ContentType: "application/msgpack"}); o.Document != nil || len(o.Problems) != 1 {
			t.Errorf("%s: %d bytes, %+v", name, len(o.Document), o.Problems)
		}
	}
}

func TestCloudEvents(t *testing.T) {
	t.Parallel()
	attributes := []payload.Attribute{{Name: "specversion", Value: "1.0"}, {Name: "id", Value: "e-1"}, {Name: "source", Value: "/shop"}, {Name: "type", Value: "paid"}}
	const head = `{"specversion":"1.0","id":"e-1","source":"/shop","type":"paid"`
	for _, c := range []struct {
		in   payload.Input
		want string // "": no event
	}{
		{payload.Input{Value: []byte(`{"n":1.10}`), ContentType: "application/json", Attributes: attributes}, head + `,"datacontenttype":"application/json","data":{"n":1.10}}`},
		{payload.Input{Value: []byte("text"), Attributes: attributes}, head + `,"data":"text"}`},
		{payload.Input{Value: []byte{0, 255}, Attributes: attributes}, head + `,"data_base64":"AP8="}`},
		{payload.Input{Attributes: attributes}, head + `,"data":null}`},
		{payload.Input{Value: []byte(`{}`), Attributes: attributes[:3]}, ""},
		{payload.Input{Value: []byte(head + `,"data":{"n":1.10},"data":2}`)}, head + `,"data":{"n":1.10},"data":2}`},
		{payload.Input{Value: []byte(head + `,"data_base64":"eyJhIjoxfQ=="}`), ContentType: "application/cloudevents+json; charset=utf-8"}, head + `,"data":{"a":1}}`},
		{payload.Input{Value: []byte(head + `,"data_base64":"/w=="}`)}, head + `,"data_base64":"/w=="}`},
		{payload.Input{Value: []byte("[" + head + "}]"), ContentType: "application/cloudevents-batch+json"}, "[" + head + "}]"},
		{payload.Input{Value: []byte(`{"id":"1","source":"s","type":7,"specversion":"1.0"}`)}, ""},
	} {
		o := open(t, c.in)
		event, isJSON := o.Content(payload.Event)
		if has := slices.Contains(o.Views(), payload.Event); has != (c.want != "") || has && (string(event) != c.want || !isJSON || o.Best() != payload.Event) {
			t.Errorf("%s\nshows %s\nwant  %s, %v", c.in.Value, event, c.want, o.Views())
		}
	}
	if o := open(t, payload.Input{Value: []byte("<xml/>"), ContentType: "application/cloudevents+xml"}); len(o.Problems) != 1 || o.Problems[0].Key != "payload.why.event" {
		t.Errorf("%+v", o.Problems)
	}
}

func TestIndentChangesWhiteSpaceOnly(t *testing.T) {
	t.Parallel()
	in := `{"b":7308412990155264513,"a":1.10e+2,"a":-0,"text":"\u00e9\/\" ,{双","list":[ true,null ],"empty":{ },"none":[],"nul":"\u0000"}`
	want := `{
  "b": 7308412990155264513,
  "a": 1.10e+2,
  "a": -0,
  "text": "\u00e9\/\" ,{双",
  "list": [
    true,
    null
  ],
  "empty": {},
  "none": [],
  "nul": "\u0000"
}`
	if got, cut := payload.Indent([]byte(in), 1000); string(got) != want || cut {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got, cut := payload.Indent([]byte(in), 50); string(got) != want[:50] || !cut {
		t.Errorf("%s", got)
	}
}

// Ten megabytes, in whatever shape, cost no more than a look at their bytes.
func TestLargeBodiesAreBounded(t *testing.T) {
	t.Parallel()
	for name, value := range map[string][]byte{
		"long text": []byte(`"` + strings.Repeat("x", 10<<20) + `"`), "many": []byte("[" + strings.Repeat("1,", 5<<20) + "1]"),
		"deep": []byte(strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)), "deeper than the parser goes": bytes.Repeat([]byte("["), 10<<20), "binary": bytes.Repeat([]byte{0, 255}, 5<<20),
	} {
		begin := time.Now()
		o := open(t, payload.Input{Value: value})
		content, _ := o.Content(o.Best())
		text, _ := payload.Indent(content, 64<<10)
		if took := time.Since(begin); took > time.Minute || len(text) > 64<<10 {
			t.Errorf("%s: %s, %d bytes are shown", name, took, len(text))
		}
	}
}

func FuzzOpen(f *testing.F) {
	b := newBench(f)
	b.seedProto()
	id := b.seedAvro()
	f.Add(framed(id, orderBytes(f)...), "")
	f.Add(framed(31, append([]byte{2, 2}, protoOrder()...)...), "")
	for kind, to := range codecs {
		f.Add(pack(f, to, []byte(`{"a":[1,"x",{}]}`)), kind)
	}
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"e30="}`), "application/cloudevents+json")
	f.Add(msgp.AppendMapStrStr(nil, map[string]string{"a": "b"}), "application/msgpack")
	f.Fuzz(func(t *testing.T, value []byte, said string) {
		before := bytes.Clone(value)
		o := payload.Open(t.Context(), payload.Input{Value: value, ContentType: said, ContentEncoding: said, Registry: b.Registry})
		for _, view := range o.Views() {
			content, isJSON := o.Content(view)
			if isJSON && !json.Valid(content) {
				t.Errorf("%s of %x is not JSON: %s", view, value, content)
			}
			text, cut := payload.Indent(content, 1<<20)
			var a, b bytes.Buffer
			if isJSON && !cut && json.Compact(&a, content) == nil && json.Compact(&b, text) == nil && a.String() != b.String() {
				t.Errorf("laid out, %s became %s", content, text)
			}
		}
		if !bytes.Equal(before, value) {
			t.Errorf("%x became %x", before, value)
		}
		if document, _, err := payload.Document(t.Context(), b.Registry, value); err == nil {
			if again, err := payload.Encode(t.Context(), b.Registry, value, document); err == nil {
				if now, _, err := payload.Document(t.Context(), b.Registry, again); err != nil || !bytes.Equal(now, document) {
					t.Errorf("written back, %s became %s, %v", document, now, err)
				}
			}
		}
	})
}
