package bodydiff_test

import (
	"fmt"
	"strings"
	"testing"

	"oncemore/dlq/bodydiff"
)

func show(d bodydiff.Diff) string {
	var out strings.Builder
	for _, h := range d.Hunks {
		for _, l := range h.Lines {
			if l.Op != ' ' {
				fmt.Fprintf(&out, "%c%s\n", l.Op, strings.TrimSpace(l.Text))
			}
		}
	}
	return out.String()
}

func TestDiff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		form          bodydiff.Form
		want          string
	}{
		"a JSON value on one line":   {`{"a":1,"b":{"c":[1,2]}}`, `{"a":1,"b":{"c":[1,3]}}`, bodydiff.JSON, "-2\n+3\n"},
		"digits beyond 2^53":         {`{"n":9007199254740993}`, `{"n":9007199254740992}`, bodydiff.JSON, "-\"n\": 9007199254740993\n+\"n\": 9007199254740992\n"},
		"decimals keep their zeroes": {`{"n":1.10}`, `{"n":1.1}`, bodydiff.JSON, "-\"n\": 1.10\n+\"n\": 1.1\n"},
		"repeated names stay":        {`{"a":1,"a":2}`, `{"a":1,"a":3}`, bodydiff.JSON, "-\"a\": 2\n+\"a\": 3\n"},
		"white space only":           {`{"a":1}`, "{ \"a\": 1 }\n", bodydiff.JSON, ""},
		"escaped and not":            {`{"a":"\u00e9"}`, `{"a":"é"}`, bodydiff.JSON, "-\"a\": \"\\u00e9\"\n+\"a\": \"é\"\n"},
		"no JSON any more":           {`{"a":1}`, `{"a":1`, bodydiff.Text, "-{\"a\":1}\n+{\"a\":1\n"},
		"text":                       {"one\ntwo\n", "one\nzwei\n", bodydiff.Text, "-two\n+zwei\n"},
		"bytes":                      {"\x00\x01A", "\x00\x02A", bodydiff.Hex, "-00000000  000141                            ..A\n+00000000  000241                            ..A\n"},
		"from nothing":               {"", `{"a":1}`, bodydiff.JSON, "+{\n+\"a\": 1\n+}\n"},
		"equal":                      {`{"a":1}`, `{"a":1}`, bodydiff.JSON, ""},
	} {
		d := bodydiff.Of([]byte(c.before), []byte(c.after))
		if got := show(d); d.Form != c.form || got != c.want {
			t.Errorf("%s: %s\n%s", name, d.Form, got)
		}
	}
	if d := bodydiff.Of([]byte(`{"a":1,"b":2}`), []byte(`{"b":2,"a":1}`)); len(d.Hunks) == 0 {
		t.Error("another order of names is no difference")
	}
	if d := bodydiff.Of([]byte(`{"a":1}`), []byte(`{"a": 1}`)); d.Equal || !d.SameMeaning {
		t.Errorf("white space: %+v", d)
	}
}

func TestLinesAreNumbered(t *testing.T) {
	t.Parallel()
	d := bodydiff.Of([]byte("a\nb\nc\nd\ne\nf\n"), []byte("a\nb\nc\nd\nE\nf\ng\n"))
	var got []string
	for _, l := range d.Hunks[0].Lines {
		got = append(got, fmt.Sprintf("%c%d/%d", l.Op, l.Old, l.New))
	}
	if s := strings.Join(got, " "); s != " 2/2  3/3  4/4 -5/0 +0/5  6/6 +0/7" {
		t.Error(s)
	}
}

// Stored bytes are never touched, whatever they are.
func FuzzBytesStay(f *testing.F) {
	f.Add([]byte(`{"a":1}`), []byte("\x00\xff"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, y := string(a), string(b)
		d := bodydiff.Of(a, b)
		if string(a) != x || string(b) != y {
			t.Fatal("the bytes were changed")
		}
		if d.Equal && len(d.Hunks) > 0 {
			t.Fatal("equal bytes differ")
		}
	})
}
