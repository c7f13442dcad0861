package web

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// masked stands where a value was taken out.
const masked = "•••"

// MaskBytes is a payload or header value for somebody who may not read it: JSON
// keeps its names, numbers and shape but none of its texts; other text loses
// e-mail addresses and long digit runs; other documents, and bytes that are no
// text, are taken out, except the eight and less in which frameworks write their
// numbers. Texts in
// keep stay, such as the event id, which the reader sees anyway. It reports
// whether anything was taken out. Null stays null.
func MaskBytes(b []byte, keep ...string) ([]byte, bool) {
	switch {
	case len(b) == 0, slices.Contains(keep, string(b)):
		return b, false
	case !utf8.Valid(b) || slices.ContainsFunc([]rune(string(b)), unprintable):
		if len(b) <= 8 {
			return b, false
		}
		return []byte(masked), true
	}
	if out, err := maskJSON(b, keep); err == nil {
		return out, !bytes.Equal(out, compacted(b))
	}
	if text := bytes.TrimSpace(b); len(text) > 0 && bytes.IndexByte([]byte("{[<"), text[0]) >= 0 {
		return []byte(masked), true // a document cut short, or of another kind
	}
	out := maskText(string(b))
	return []byte(out), out != string(b)
}

// maskJSON copies the document token by token, so that numbers keep their digits
// and names their order. It fails on what is no JSON.
func maskJSON(b []byte, keep []string) ([]byte, error) {
	return copyJSON(b, func(t jsontext.Token, isName bool) jsontext.Token {
		switch {
		case t.Kind() == '"' && isName:
			return jsontext.String(maskText(t.String()))
		case t.Kind() == '"' && !slices.Contains(keep, t.String()), t.Kind() == '0' && digits(t.String()) >= cardDigits:
			return jsontext.String(masked)
		}
		return t
	})
}

// compacted is b as copyJSON writes it, to compare with.
func compacted(b []byte) []byte {
	out, _ := copyJSON(b, func(t jsontext.Token, _ bool) jsontext.Token { return t })
	return out
}

func copyJSON(b []byte, change func(t jsontext.Token, isName bool) jsontext.Token) ([]byte, error) {
	var out bytes.Buffer
	dec := jsontext.NewDecoder(bytes.NewReader(b), jsontext.AllowDuplicateNames(true))
	enc := jsontext.NewEncoder(&out, jsontext.AllowDuplicateNames(true))
	for n := 0; ; n++ {
		inside, at := dec.StackIndex(dec.StackDepth())
		token, err := dec.ReadToken()
		if errors.Is(err, io.EOF) && n > 0 {
			return bytes.TrimSpace(out.Bytes()), nil
		}
		if err != nil {
			return nil, err
		}
		if err := enc.WriteToken(change(token, inside == '{' && at%2 == 0)); err != nil {
			return nil, err
		}
	}
}

// cardDigits is the length from which a number may be a card's or an account's.
const cardDigits = 12

var (
	emailLike = regexp.MustCompile(`[\p{L}\p{N}._%+-]+@[\p{L}\p{N}-]+(\.[\p{L}\p{N}-]+)+`)
	phoneLike = regexp.MustCompile(`\+?\d(?:[ ().-]{0,3}\d){6,}`)
)

func maskText(s string) string {
	if _, err := uuid.Parse(s); err == nil {
		return s
	}
	return phoneLike.ReplaceAllString(emailLike.ReplaceAllString(s, masked), masked)
}

func digits(s string) int {
	return len(s) - len(strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, s))
}
