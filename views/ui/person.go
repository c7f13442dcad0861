package ui

import (
	"strings"
	"unicode/utf8"
)

// Initials is the mark of a name: two letters, or one Han character.
func Initials(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '.' || r == '-' || r == '_' })
	mark := ""
	for _, w := range words[:min(2, len(words))] {
		r, _ := utf8.DecodeRuneInString(w)
		mark += strings.ToUpper(string(r))
		if r > 0x2e80 {
			break
		}
	}
	if mark == "" {
		return "?"
	}
	return mark
}
