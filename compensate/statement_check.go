package compensate

import (
	"regexp"
	"strings"
)

// What a statement, and a query, may begin with. Anything else commits by itself,
// so that neither a preview nor a wrong number of rows could be rolled back.
var (
	changes = regexp.MustCompile(`(?i)^(insert|update|delete|replace|merge|with|select)\b`)
	asks    = regexp.MustCompile(`(?i)^(select|with)\b`)
)

// bare is a statement without its literals and comments.
func bare(text string) string {
	return strings.TrimSpace(parameter.ReplaceAllStringFunc(text, func(token string) string {
		switch {
		case strings.HasPrefix(token, "--"), strings.HasPrefix(token, "/*"):
			return " "
		case strings.ContainsAny(token[:1], "'\"`"):
			return token[:1] + token[:1]
		}
		return token
	}))
}

// several reports whether a text holds more than one statement.
func several(text string) bool {
	_, rest, found := strings.Cut(bare(text), ";")
	return found && strings.TrimSpace(rest) != ""
}

// check says what is wrong with a statement and its guard query; "" nothing.
func (s *Statement) check() string {
	switch {
	case s.Text != "" && !changes.MatchString(bare(s.Text)):
		return "sql has to begin with insert, update, delete, replace, merge, with or select: other statements cannot be rolled back"
	case several(s.Text), several(s.Guard):
		return "sql and guard hold one statement each"
	case s.Guard != "" && !asks.MatchString(bare(s.Guard)):
		return "guard has to be a query: it counts what the statement would affect"
	}
	return ""
}

// checkAsked is check for a probe's query.
func (s *Statement) checkAsked() string {
	if s.Text == "" || asks.MatchString(bare(s.Text)) && !several(s.Text) {
		return ""
	}
	return "the sql of a probe has to be one query: a row means that the step has been applied"
}
