package dlq

import (
	"bytes"
	"hash/fnv"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// What of a letter can be asked for exactly. Longer values are found as text only.
const (
	tokenBytes   = 255 // longest value
	tokenLimit   = 256 // most values of one letter
	tokenShort   = 3   // shorter values are kept of event ids and keys alone
	wordsOfText  = 4 << 10
	jsonSearched = 1 << 20 // bytes of a value that are read as JSON
)

// fact is one thing that a letter can be found by.
type fact struct {
	field string // event_id | key | header | json | error | "" a word of a payload that is no JSON
	name  string // of a header; path of a JSON scalar, with dots
	value string
}

// searchable is what the facts of a letter are made of.
type searchable struct {
	EventID, EventIDAlt *string
	Class, Message      *string
	Key, Value          []byte
	Headers             []byte // as stored
}

// tokenHash is how a value stands in letter_token. Case does not matter to it;
// what has to be exact is compared with the letter itself.
func tokenHash(value string) int64 {
	h := fnv.New64a()
	h.Write([]byte(strings.ToLower(value)))
	return int64(h.Sum64())
}

// facts lists what the letter can be found by, at most tokenLimit.
func (s searchable) facts() []fact {
	var all factList
	for _, id := range []*string{s.EventID, s.EventIDAlt} {
		if id != nil {
			all.short("event_id", "", *id)
		}
	}
	if utf8.Valid(s.Key) {
		all.short("key", "", string(s.Key))
	}
	if s.Class != nil {
		all.add("error", "", *s.Class)
		all.words("error", *s.Class)
	}
	if s.Message != nil {
		all.words("error", *s.Message)
	}
	if headers, err := DecodeHeaders(s.Headers); err == nil {
		for _, h := range headers {
			if text := h.Text(); utf8.ValidString(text) {
				all.add("header", h.Name, text)
			}
		}
	}
	all.payload(s.Value)
	return all
}

// tokens are the hashes of the facts, each once and sorted.
func (s searchable) tokens() []int64 {
	facts := s.facts()
	all := make([]int64, len(facts))
	for i, f := range facts {
		all[i] = tokenHash(f.value)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

type factList []fact

// add leaves out what is too short to single anything out.
func (l *factList) add(field, name, value string) {
	if len(value) >= tokenShort {
		l.short(field, name, value)
	}
}

func (l *factList) short(field, name, value string) {
	if value != "" && len(value) <= tokenBytes && len(*l) < tokenLimit {
		*l = append(*l, fact{field, name, value})
	}
}

func (l *factList) words(field, text string) {
	for _, w := range wordsOf(text) {
		l.add(field, "", w)
	}
}

func wordsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' })
}

// payload adds the scalars of JSON, else the words at the beginning of text.
func (l *factList) payload(value []byte) {
	value = value[:min(len(value), jsonSearched)]
	text := bytes.TrimSpace(value)
	if len(text) > 0 && (text[0] == '{' || text[0] == '[' || text[0] == '"') {
		l.json(text)
		return
	}
	if head := value[:min(len(value), wordsOfText)]; utf8.Valid(bytes.TrimRightFunc(head, func(r rune) bool { return r == utf8.RuneError })) {
		l.add("json", "", string(text))
		l.words("", string(head))
	}
}

// json walks a document as far as it can be read.
func (l *factList) json(text []byte) {
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	for len(*l) < tokenLimit {
		depth := dec.StackDepth()
		inside, at := dec.StackIndex(depth)
		token, err := dec.ReadToken()
		if err != nil {
			return
		}
		isName := inside == '{' && at%2 == 0
		switch token.Kind() {
		case '"':
			if !isName {
				l.add("json", jsonPath(dec.StackPointer()), token.String())
			}
		case '0':
			l.add("json", jsonPath(dec.StackPointer()), token.String())
		}
	}
}

// jsonPath writes a pointer with dots and without the places in arrays: all
// elements of a list have one path.
func jsonPath(p jsontext.Pointer) string {
	var parts []string
	for token := range p.Tokens() {
		if strings.Trim(token, "0123456789") != "" || token == "" {
			parts = append(parts, token)
		}
	}
	return strings.Join(parts, ".")
}

// jsonKinds name the kinds of JSON values.
var jsonKinds = map[jsontext.Kind]string{'n': "null", 't': "boolean", 'f': "boolean", '"': "text", '0': "number", '{': "object", '[': "list"}

// topFields reads the names and kinds of a JSON object's own fields. kind is
// what the payload is: object, list, text, number, boolean, null, or "other text"
// and "bytes" where it is no JSON.
func topFields(value []byte) (fields map[string]string, kind string) {
	fields = map[string]string{}
	dec := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	kind = jsonKinds[dec.PeekKind()]
	if kind != "object" {
		if err := dec.SkipValue(); err != nil || kind == "" {
			return fields, notJSON(value)
		}
		return fields, kind
	}
	if _, err := dec.ReadToken(); err != nil {
		return fields, notJSON(value)
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return fields, notJSON(value)
		}
		field := name.String()
		fields[field] = jsonKinds[dec.PeekKind()]
		if err := dec.SkipValue(); err != nil {
			return fields, notJSON(value)
		}
	}
	return fields, kind
}

func notJSON(value []byte) string {
	if utf8.Valid(value) {
		return "other text"
	}
	return "bytes"
}
