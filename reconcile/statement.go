package reconcile

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// tokens are what a colon may stand in without being a parameter, and parameters.
// A backslash hides a quote in MySQL only, where it is the default.
var tokens = map[dialect]*regexp.Regexp{
	postgres: regexp.MustCompile(`(?s)'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\w*\$|--[^\n]*|/\*.*?\*/|::|:=|:[A-Za-z_]\w*`),
	mysql:    regexp.MustCompile("(?s)'(?:[^'\\\\]|\\\\.|'')*'|\"(?:[^\"\\\\]|\\\\.|\"\")*\"|`[^`]*`|--[ \\t][^\\n]*|#[^\\n]*|/\\*.*?\\*/|:=|:[A-Za-z_]\\w*"),
}

// errStatement is wrapped by what is wrong with a side's statement.
var errStatement = errors.New("statement")

// bound is a statement with its parameters replaced.
type bound struct {
	text string
	args []any
}

// bind replaces each parameter by what value writes for it. Names other than
// those allowed are errors.
func bind(d dialect, sql string, allowed []string, value func(name string) string) (string, error) {
	var bad error
	text := tokens[d].ReplaceAllStringFunc(sql, func(token string) string {
		if token[0] != ':' || token == "::" || token == ":=" {
			return token
		}
		name := token[1:]
		if !slices.Contains(allowed, name) {
			bad = fmt.Errorf("%w: has the parameter :%s, but only :%s can be used", errStatement, name, strings.Join(allowed, ", :"))
			return token
		}
		return value(name)
	})
	return strings.TrimRight(strings.TrimSpace(text), ";"), bad
}

var (
	startsQuery = regexp.MustCompile(`(?is)^\s*(select|with)\s`)
	secondQuery = regexp.MustCompile(`;\s*\S`)
)

// statements looks at the text of a party's statements.
func (j *Job) statements(p Party) error {
	s := j.side(p)
	for _, st := range []struct {
		sql     string
		allowed []string
	}{{s.Query, windowParams}, {s.Lookup, keyParams}} {
		if !startsQuery.MatchString(st.sql) {
			return fmt.Errorf("%w: has to begin with select or with", errStatement)
		}
		if secondQuery.MatchString(st.sql) {
			return fmt.Errorf("%w: has to be one statement, but something follows a semicolon", errStatement)
		}
		if _, err := bind(postgres, st.sql, st.allowed, func(string) string { return "" }); err != nil {
			return err
		}
	}
	return nil
}

var (
	windowParams = []string{"from", "to"}
	keyParams    = []string{"keys"}
)
