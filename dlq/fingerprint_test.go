package dlq

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNormalise(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"":                         "",
		"order 10001 has no stock": "order # has no stock",
		"order o-evt-3 has no stock: 库存不足":                "order o-evt-# has no stock: 库存不足",
		"card 4242-4242-4242 declined":                    "card # declined",
		"id 5f0c7a1e-8e0b-4a53-9d39-0c8d5b7d2f10 unknown": "id # unknown",
		"id abcdefab-abcd-abcd-abcd-abcdefabcdef unknown": "id # unknown",
		"at 2026-11-30T12:00:01.5Z, took 3.5s":            "at #, took #",
		"hash deadbeefdeadbeefdeadbeef":                   "hash #",
		"feed the cafe":                                   "feed the cafe",
		"mail to jane.doe+x@example.com failed":           "mail to @ failed",
		"value 'abc' of \"b c\" and `d`":                  "value “…” of “…” and “…”",
		"can't do it, won't do it":                        "can't do it, won't do it",
		"an open \" quote 7":                              "an open \" quote #",
		"two\n\tlines   of  space ":                       "two lines of space",
		"\x00\xffbad\x01bytes":                            "\ufffdbad bytes",
		"from 10.0.0.1:5432 to [::1]:80":                  "from # to [::#]:#",
	} {
		if got := normalise(message); got != want {
			t.Errorf("%q becomes %q, want %q", message, got, want)
		}
	}
}

func TestNormaliseStaysSmallAndStorable(t *testing.T) {
	t.Parallel()
	for _, message := range []string{strings.Repeat("x ", 5000), strings.Repeat("库", 5000), strings.Repeat("\xff", 5000), strings.Repeat("'a' ", 5000), strings.Repeat("a@b.c ", 900)} {
		got := normalise(message)
		if len(got) > patternBytes || !utf8.ValidString(got) || strings.ContainsAny(got, "\x00\n") {
			t.Errorf("%.20q…: %d bytes, valid %v", message, len(got), utf8.ValidString(got))
		}
	}
}

func FuzzNormalise(f *testing.F) {
	f.Add("order 1 'x' \xff a@b 5f0c7a1e-8e0b-4a53-9d39-0c8d5b7d2f10")
	f.Fuzz(func(t *testing.T, message string) {
		got := normalise(message)
		if len(got) > patternBytes || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%q becomes %q", message, got)
		}
	})
}

func TestStorableText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"grün": "grün", "a\x00b": "a\ufffdb", "\xff\xfea": "\ufffda", "": ""} {
		if got := storable(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	if got := cutText("aüb", 2); got != "a" {
		t.Errorf("cut to %q", got)
	}
}
