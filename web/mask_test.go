package web_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"oncemore/web"
)

func TestMask(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`{"eventId":"payment-success-10001","name":"Ada","amount":100.00,"paid":true,"note":null}`, `{"eventId":"payment-success-10001","name":"•••","amount":100.00,"paid":true,"note":null}`},
		{`{"a":[{"b":"secret"},"secret"],"c":{"d":["x"]}}`, `{"a":[{"b":"•••"},"•••"],"c":{"d":["•••"]}}`},
		{`{"card":4111111111111111,"n":12345678901}`, `{"card":"•••","n":12345678901}`},
		{`{"big":123456.789012345}`, `{"big":"•••"}`},
		{`{"dup":"a","dup":"b"}`, `{"dup":"•••","dup":"•••"}`},
		{`{"ada@example.com":1}`, `{"•••":1}`},
		{`"secret"`, `"•••"`},
		{`42`, `42`},
		{`call +49 (30) 123456 78 or ada.lovelace@mail.example.com`, `call ••• or •••`},
		{`card 4111-1111-1111-1111.`, `card •••.`},
		{`payment-success-10001`, `payment-success-10001`},
		{`01932f00-0000-7000-8000-000000000000`, `01932f00-0000-7000-8000-000000000000`},
		{`java.lang.IllegalStateException: order 10001`, `java.lang.IllegalStateException: order 10001`},
		{"\x00\x00\x00\x01", "\x00\x00\x00\x01"},
		{"\xff\xfe binary secret", `•••`},
		{`{"cut off":"sec`, `•••`},
		{` <order><name>Ada</name></order>`, `•••`},
		{``, ``},
	} {
		got, changed := web.MaskBytes([]byte(c.in), "payment-success-10001")
		if string(got) != c.want {
			t.Errorf("%s became %s, want %s", c.in, got, c.want)
		}
		if changed != (c.in != c.want) {
			t.Errorf("%s: changed %v", c.in, changed)
		}
	}
	if got, changed := web.MaskBytes(nil); got != nil || changed {
		t.Errorf("null became %q", got)
	}
}

// No text of a JSON document survives, whatever its shape.
func FuzzMask(f *testing.F) {
	for _, seed := range []string{`{"a":"secret-text"}`, `["secret-text",{"b":["secret-text"]}]`, `{"secret-text":{}}`, `"\ud800"`, `[[[[`} {
		f.Add([]byte(seed), "secret-text")
	}
	f.Fuzz(func(t *testing.T, doc []byte, secret string) {
		got, _ := web.MaskBytes(doc)
		if utf8.Valid(doc) && json.Valid(doc) && !json.Valid(got) {
			t.Errorf("%q became %q, which is no JSON", doc, got)
		}
		quoted, err := json.Marshal(map[string]any{"k": []any{secret, map[string]string{"x": secret}}})
		if err != nil || len(secret) < 6 || strings.Contains("•••", secret) {
			return
		}
		masked, _ := web.MaskBytes(quoted)
		if inner, _ := json.Marshal(secret); bytes.Contains(masked, inner) {
			t.Errorf("%s became %s", quoted, masked)
		}
	})
}
