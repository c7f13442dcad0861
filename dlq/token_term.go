package dlq

import (
	"slices"
	"strings"
)

// maxTerms bounds one search.
const maxTerms = 10

// Term is one thing that a search asks for.
type Term struct {
	Field string // event_id | key | header | json | error | "" any of them
	Name  string // of the header; path of the JSON scalar
	Value string
}

// termFields are the chips that take no name.
var termFields = []string{"event_id", "key", "error"}

// ParseTerms reads a search: terms with space between them, all of which have to
// hold. A term is a value, or a value behind event_id:, key:, error:,
// header.<name>: or json.<path>:. A value with space in it stands in double
// quotes; in them, \" and \\ stand for themselves. Errors: *ErrBadFilter.
func ParseTerms(search string) ([]Term, error) {
	var terms []Term
	for rest := strings.TrimSpace(search); rest != ""; rest = strings.TrimSpace(rest) {
		var t Term
		t.Field, t.Name, rest = cutField(rest)
		var err error
		if t.Value, rest, err = cutValue(rest); err != nil {
			return nil, err
		}
		if err := t.check(); err != nil {
			return nil, err
		}
		terms = append(terms, t)
	}
	if len(terms) > maxTerms {
		return nil, &ErrBadFilter{Field: "q", Reason: "holds more than 10 terms"}
	}
	return terms, nil
}

// cutField takes the chip in front of a value; what only looks like one belongs
// to the value.
func cutField(s string) (field, name, rest string) {
	end := strings.IndexAny(s, " \t\n\"")
	if end < 0 {
		end = len(s)
	}
	head, after, ok := strings.Cut(s[:end], ":")
	if !ok {
		return "", "", s
	}
	after += s[end:]
	if slices.Contains(termFields, head) {
		return head, "", after
	}
	for _, f := range []string{"header", "json"} {
		if name, ok := strings.CutPrefix(head, f+"."); ok && name != "" {
			return f, name, after
		}
	}
	return "", "", s
}

func cutValue(s string) (value, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		if end := strings.IndexAny(s, " \t\n"); end >= 0 {
			return s[:end], s[end:], nil
		}
		return s, "", nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], nil
		case c == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", &ErrBadFilter{Field: "q", Reason: "has a quote that does not end"}
}

func (t Term) check() error {
	switch {
	case t.Value == "":
		return &ErrBadFilter{Field: "q", Reason: "has a term without a value"}
	case len(t.Value) > tokenBytes:
		return &ErrBadFilter{Field: "q", Reason: "has a term of more than 255 bytes: look for it as text"}
	case t.Field == "error" && len(longWords(t.Value)) == 0,
		len(t.Value) < tokenShort && (t.Field == "header" || t.Field == "json"):
		return &ErrBadFilter{Field: "q", Reason: "has a term of fewer than 3 bytes, which only event_id and key are found by"}
	}
	return nil
}

func longWords(text string) []string {
	return slices.DeleteFunc(wordsOf(text), func(w string) bool { return len(w) < tokenShort })
}

// hashes are the tokens that every letter with the term has.
func (t Term) hashes() []int64 {
	values := []string{t.Value}
	if t.Field == "error" {
		values = longWords(t.Value)
	}
	all := make([]int64, len(values))
	for i, v := range values {
		all[i] = tokenHash(v)
	}
	return all
}

// holds compares the term with a letter's facts: event ids, keys, headers and
// JSON to the byte, words of errors without regard to case.
func (t Term) holds(facts []fact) bool {
	if t.Field == "error" {
		for _, w := range longWords(t.Value) {
			if !slices.ContainsFunc(facts, func(f fact) bool { return f.field == "error" && strings.EqualFold(f.value, w) }) {
				return false
			}
		}
		return true
	}
	return slices.ContainsFunc(facts, t.is)
}

func (t Term) is(f fact) bool {
	words := f.field == "error" || f.field == ""
	switch {
	case f.value != t.Value && !(words && strings.EqualFold(f.value, t.Value)):
		return false
	case t.Field == "":
		return true
	case t.Field != f.field:
		return false
	case t.Field == "header":
		return strings.EqualFold(f.name, t.Name)
	case t.Field == "json":
		return f.name == strings.TrimPrefix(t.Name, "$.") || strings.HasSuffix(f.name, "."+strings.TrimPrefix(t.Name, "$."))
	}
	return true
}

// String writes the term as ParseTerms reads it.
func (t Term) String() string {
	value := t.Value
	if strings.ContainsAny(value, " \t\n") || strings.HasPrefix(value, `"`) {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
	switch t.Field {
	case "":
		return value
	case "header", "json":
		return t.Field + "." + t.Name + ":" + value
	}
	return t.Field + ":" + value
}
