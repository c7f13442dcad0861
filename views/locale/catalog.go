package locale

import (
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
)

//go:embed en.json zh-Hans.json
var files embed.FS

// message is one text with its plural forms; a text without any has only Other.
type message struct {
	Other string
	One   string
}

// UnmarshalJSON reads "text" or {"one": "text", "other": "text"}.
func (m *message) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &m.Other); err == nil {
		return nil
	}
	forms := map[string]string{}
	if err := json.Unmarshal(b, &forms); err != nil {
		return err
	}
	for form, text := range forms {
		switch form {
		case "one":
			m.One = text
		case "other":
			m.Other = text
		default:
			return fmt.Errorf("plural form %q is not known", form)
		}
	}
	return nil
}

var catalogs = func() map[Tag]map[string]message {
	all := map[Tag]map[string]message{}
	for _, tag := range Tags {
		b, err := files.ReadFile(string(tag) + ".json")
		if err != nil {
			panic(fmt.Sprintf("locale: %v", err))
		}
		catalog := map[string]message{}
		if err := json.Unmarshal(b, &catalog); err != nil {
			panic(fmt.Sprintf("locale: %s.json: %v", tag, err))
		}
		all[tag] = catalog
	}
	return all
}()

var pluralTags = map[Tag]language.Tag{English: language.English, Chinese: language.SimplifiedChinese}

// Has reports whether the catalog knows the key.
func Has(key string) bool {
	_, ok := catalogs[English][key]
	return ok
}

// Keys lists the keys of a language, sorted.
func Keys(tag Tag) []string {
	keys := make([]string, 0, len(catalogs[tag]))
	for k := range catalogs[tag] {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Text is T for a locale at hand. A key that is not in the catalog is returned
// itself, so that the page shows what is missing; a test finds such keys.
func (l Locale) Text(key string, args ...any) string {
	named := pairs(args)
	text := l.form(key, named["n"])
	if len(named) == 0 {
		return text
	}
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		v, ok := named[p[1:len(p)-1]]
		if !ok {
			return p
		}
		return l.format(v)
	})
}

// Part is a piece of a text: words, or the name of a placeholder.
type Part struct {
	Words, Name string
}

// Parts splits the text of key at its placeholders, for a page that puts a link
// or a time in their place. N picks the plural; nil where there is none.
func (l Locale) Parts(key string, n any) []Part {
	var parts []Part
	text, at := l.form(key, n), 0
	for _, m := range placeholder.FindAllStringIndex(text, -1) {
		if m[0] > at {
			parts = append(parts, Part{Words: text[at:m[0]]})
		}
		parts = append(parts, Part{Name: text[m[0]+1 : m[1]-1]})
		at = m[1]
	}
	if at < len(text) {
		parts = append(parts, Part{Words: text[at:]})
	}
	return parts
}

var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

func (l Locale) form(key string, n any) string {
	m, ok := catalogs[l.Tag][key]
	if !ok {
		return key
	}
	if m.One != "" && l.isOne(n) {
		return m.One
	}
	return m.Other
}

func (l Locale) isOne(n any) bool {
	i, ok := integer(n)
	if !ok || i < 0 {
		return false
	}
	return plural.Cardinal.MatchPlural(pluralTags[l.Tag], int(min(i, 1<<30)), 0, 0, 0, 0) == plural.One
}

func pairs(args []any) map[string]any {
	named := make(map[string]any, len(args)/2)
	for i := 0; i+1 < len(args); i += 2 {
		name, _ := args[i].(string)
		named[strings.Trim(name, "{}")] = args[i+1]
	}
	return named
}

func (l Locale) format(v any) string {
	if i, ok := integer(v); ok {
		return Number(i)
	}
	if s, ok := v.(string); ok {
		return s
	}
	return fmt.Sprint(v)
}

func integer(v any) (int64, bool) {
	switch i := v.(type) {
	case int:
		return int64(i), true
	case int16:
		return int64(i), true
	case int32:
		return int64(i), true
	case int64:
		return i, true
	}
	return 0, false
}
