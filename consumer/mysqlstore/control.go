package mysqlstore

import (
	"errors"
	"fmt"
	"strings"
)

// ErrTransactionControl is returned for every statement but queries and changes
// of rows. COMMIT and the like are the runtime's; in MySQL also CREATE, ALTER,
// TRUNCATE, LOCK TABLES, GRANT and more commit what is under way, SET can, and
// EXECUTE hides what it does.
var ErrTransactionControl = errors.New("mysqlstore: a handler may only query and change rows")

// harmless are the first words of statements that leave the transaction alone.
// CALL may end it, which the guard finds out.
var harmless = map[string]bool{
	"select": true, "insert": true, "update": true, "delete": true, "replace": true, "with": true, "values": true, "table": true,
	"call": true, "do": true, "show": true, "explain": true, "describe": true, "desc": true, "signal": true,
}

// refuseControl returns the statement's first word in lower case. The pool
// allows one statement per call, so that word is all that matters.
func refuseControl(query string) (string, error) {
	head := skipComments(query)
	end := strings.IndexFunc(head, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' })
	if end < 0 {
		end = len(head)
	}
	word := strings.ToLower(head[:end])
	if !harmless[word] {
		return word, fmt.Errorf("%w: %.20s", ErrTransactionControl, head)
	}
	return word, nil
}

// skipComments cuts off leading blanks, brackets and comments. A comment that
// the server may execute (/*! and /*M!) stays, and is refused.
func skipComments(query string) string {
	for {
		query = strings.TrimLeft(query, " \t\r\n\f\v(")
		var ok bool
		switch {
		case strings.HasPrefix(query, "/*!"), strings.HasPrefix(query, "/*M!"):
			return query
		case strings.HasPrefix(query, "/*"):
			_, query, ok = strings.Cut(query[2:], "*/")
		case strings.HasPrefix(query, "#"), strings.HasPrefix(query, "-- "), strings.HasPrefix(query, "--\t"), strings.HasPrefix(query, "--\n"):
			_, query, ok = strings.Cut(query, "\n")
		default:
			return query
		}
		if !ok {
			return ""
		}
	}
}
