package dlq

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// factHash hashes facts so that no two lists of facts have the same bytes.
type factHash struct{ hash.Hash }

func newFactHash() factHash { return factHash{sha256.New()} }

func (h factHash) text(s string) factHash {
	var n [binary.MaxVarintLen64]byte
	h.Write(n[:binary.PutUvarint(n[:], uint64(len(s))+1)])
	h.Write([]byte(s))
	return h
}

// optional tells "not known" from an empty text.
func (h factHash) optional(s *string) factHash {
	if s == nil {
		h.Write([]byte{0})
		return h
	}
	return h.text(*s)
}

func (h factHash) number(n int64) factHash {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	return h
}

// sum is the first 128 bits.
func (h factHash) sum() uuid.UUID { return uuid.UUID(h.Sum(nil)[:16]) }

// fingerprint names a fault: cluster, source, dialect, origin, group, error class
// and normalised message.
func (a *arrival) fingerprint() uuid.UUID {
	return newFactHash().text(a.from.cluster).text(a.from.source).text(string(a.from.topicID[:])).text(a.read.Dialect).
		optional(a.origin()).optional(a.read.Group).optional(a.read.ExceptionClass).text(a.pattern).sum()
}

const (
	patternInput = 2000 // bytes of a message that are looked at
	patternBytes = 300  // bytes of a pattern that are kept
)

// normalise turns an error message into what its repeats have in common: digits,
// ids, hexadecimal, quoted values and addresses become one sign each, and space
// is one space. It is valid UTF-8 without control characters.
func normalise(message string) string {
	out := make([]byte, 0, patternBytes)
	rest := message
	if len(rest) > patternInput {
		rest = rest[:patternInput]
	}
	for rest != "" && len(out) < patternBytes {
		var sign string
		sign, rest = nextSign(rest)
		out = appendSign(out, sign)
	}
	return cutText(strings.TrimSpace(string(out)), patternBytes)
}

// appendSign holds back a second space, and an id that goes on: 5f0c-8e0b is one.
func appendSign(out []byte, sign string) []byte {
	last := len(out) - 1
	switch {
	case sign == " " && (last < 0 || out[last] == ' '):
		return out
	case sign == anID && last >= 0 && string(out[last:]) == anID:
		return out
	case sign == anID && last > 0 && isJoint(out[last]) && string(out[last-1:last]) == anID:
		return out[:last]
	}
	return append(out, sign...)
}

const (
	anID     = "#"
	aText    = "“…”"
	anMail   = "@"
	longWord = 20 // a word this long is text; hexadecimal of it without digits is an id
)

func isJoint(c byte) bool {
	return c == '-' || c == '_' || c == '.' || c == ':' || c == '/' || c == ','
}

// nextSign reads one word, quoted text, run of space or other character.
func nextSign(s string) (sign, rest string) {
	switch c := s[0]; {
	case c <= ' ' || c == 0x7f:
		return " ", s[1:]
	case c == '"' || c == '\'' || c == '`':
		if end := strings.IndexByte(s[1:], c); end >= 0 && quotes(s, end+1) {
			return aText, s[end+2:]
		}
		return s[:1], s[1:]
	case isWord(c):
		return wordSign(s)
	case c < utf8.RuneSelf:
		return s[:1], s[1:]
	}
	r, size := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && size == 1 {
		return "\ufffd", s[1:]
	}
	return s[:size], s[size:]
}

// quotes tells a pair of quotes from an apostrophe: "can't … won't".
func quotes(s string, end int) bool {
	return s[0] != '\'' || end+1 == len(s) || !isWord(s[end+1])
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func wordSign(s string) (sign, rest string) {
	if isUUID(s) {
		return anID, s[36:]
	}
	end, digits, hexOnly := 0, false, true
	for end < len(s) && isWord(s[end]) {
		c := s[end]
		digits = digits || c <= '9'
		hexOnly = hexOnly && (c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F')
		end++
	}
	if mail := mailEnd(s, end); mail > 0 {
		return anMail, s[mail:]
	}
	if digits || hexOnly && end >= longWord {
		return anID, s[end:]
	}
	return s[:end], s[end:]
}

// mailEnd is where an address ends that begins with s, or 0.
func mailEnd(s string, end int) int {
	for end < len(s) && (isWord(s[end]) || s[end] == '.' || s[end] == '_' || s[end] == '+' || s[end] == '-') {
		end++
	}
	if end == len(s) || s[end] != '@' {
		return 0
	}
	host := end + 1
	for end = host; end < len(s) && (isWord(s[end]) || s[end] == '.' || s[end] == '-'); {
		end++
	}
	if end == host {
		return 0
	}
	return end
}

func isUUID(s string) bool {
	if len(s) < 36 || s[8] != '-' {
		return false
	}
	_, err := uuid.Parse(s[:36])
	return err == nil
}

// cutText shortens s to at most n bytes without cutting a character.
func cutText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// storable makes text that PostgreSQL takes: valid UTF-8 without zero bytes.
func storable(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}
