package effect

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"oncemore/consumer"
)

func event(value string) consumer.Event {
	return consumer.Event{ID: "evt-1", Group: "points", Topic: "order.paid", Key: []byte("k"), Value: []byte(value)}
}

func TestFieldText(t *testing.T) {
	t.Parallel()
	const payload = `{"a":"x","n":9007199254740993,"d":0.10,"e":1e400,"t":true,"z":null,"o":{"k":[1,{"s":"é"}]},
		"empty":"","topic":"mine","u":"\u4e2d\n","r":"\ufffd","o":{"k":[1,{"s":"last"}], "b": 2 }}`
	cases := []struct{ name, want string }{
		{"a", "x"},
		{"n", "9007199254740993"}, // not representable as a float64
		{"d", "0.10"},
		{"e", "1e400"},
		{"t", "true"},
		{"empty", ""},
		{"u", "中\n"},
		{"r", "\uFFFD"},
		{"o.k.1.s", "last"},
		{"o.k.0", "1"},
		{"o.k", `[1,{"s":"last"}]`},
		{"topic", "order.paid"},
		{"$.topic", "mine"},
		{"event_id", "evt-1"},
		{"consumer_group", "points"},
		{"key", "k"},
	}
	f := fields{ev: event(payload)}
	for _, c := range cases {
		got, err := f.text(c.name)
		if err != nil || got == nil || *got != c.want {
			t.Errorf("text(%q) = %v, %v, want %q", c.name, deref(got), err, c.want)
		}
	}
	if got, err := f.text("z"); got != nil || err != nil {
		t.Errorf("text of null = %v, %v, want nil", deref(got), err)
	}
	if got, err := f.text("$"); err != nil || *got != payload {
		t.Errorf("text(\"$\") = %v, %v, want the payload byte for byte", deref(got), err)
	}
}

func deref(s *string) string {
	if s == nil {
		return "<nil>"
	}
	return *s
}

func TestFieldTextRefuses(t *testing.T) {
	t.Parallel()
	cases := []struct{ name, payload, field, reason string }{
		{"missing", `{"a":1}`, "b", `field "b" is missing`},
		{"missing deeper", `{"a":{"b":1}}`, "a.c", `field "a.c" is missing`},
		{"below null", `{"a":null}`, "a.c", `field "a.c" is missing`},
		{"below a number", `{"a":1}`, "a.c", `field "a.c" is missing`},
		{"beyond an array", `{"a":[1]}`, "a.1", `field "a.1" is missing`},
		{"other case", `{"A":1}`, "a", `field "a" is missing`},
		{"no object", `[1]`, "a", `field "a" is missing`},
		{"null payload", `null`, "a", `field "a" is missing`},
		{"no JSON", `{"a":`, "a", "payload is not JSON"},
		{"two values", `{"a":1} {"a":2}`, "a", "payload is not JSON"},
		{"empty", "", "a", "payload is empty"},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", "a", "not UTF-8"},
		{"half a pair", `{"a":"\ud83d"}`, "a", "half a surrogate pair"},
		{"half a pair beside a spelled one", `{"a":"\ufffd\ud83d"}`, "a", "half a surrogate pair"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := fields{ev: event(c.payload)}
			_, err := f.text(c.field)
			var field *FieldError
			if !errors.As(err, &field) || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("text(%q) of %q = %v, want a FieldError that says %q", c.field, c.payload, err, c.reason)
			}
		})
	}
}

func TestNullKeyIsNull(t *testing.T) {
	t.Parallel()
	ev := event(`{}`)
	ev.Key = nil
	f := fields{ev: ev}
	if got, err := f.text("key"); got != nil || err != nil {
		t.Errorf("key = %v, %v, want nil", deref(got), err)
	}
	f.ev.Key = []byte{0xff}
	if _, err := f.text("key"); err == nil {
		t.Error("a key that is not UTF-8 was taken as text")
	}
}

// Whatever a string holds, it comes out as it went in.
func TestStringsSurvive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "value")
		payload, err := json.Marshal(map[string]any{"a": map[string]any{"b": want}})
		if err != nil {
			t.Fatal(err)
		}
		f := fields{ev: event(string(payload))}
		got, err := f.text("a.b")
		if err != nil || *got != want {
			t.Fatalf("text = %q, %v, want %q", deref(got), err, want)
		}
	})
}
