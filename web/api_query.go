package web

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
)

// maxText is the longest text that a parameter or field may hold, in bytes.
const maxText = 2000

// query reads the parameters of a list, strictly: what is not asked for before
// done is a parameter that does not exist. The first error counts.
type query struct {
	values url.Values
	asked  []string // parameters that exist
	actor  access.Actor
	now    time.Time
	err    error
}

func parseQuery(c echo.Context) *query { return queryFrom(c, c.Request().URL.RawQuery) }

// queryFrom reads a list's query that came another way: in a form, or saved.
func queryFrom(c echo.Context, raw string) *query {
	q := &query{now: localeOf(c).Now}
	q.actor, _ = c.Get(actorKey).(access.Actor)
	var err error
	if q.values, err = url.ParseQuery(strings.TrimPrefix(raw, "?")); err != nil {
		q.err = &fieldError{Field: "query", Text: "cannot be read: " + err.Error()}
	}
	return q
}

// take removes a parameter and returns its value, "" where it is absent or empty.
func (q *query) take(name string) string {
	q.asked = append(q.asked, name)
	given := q.values[name]
	delete(q.values, name)
	switch {
	case len(given) == 0:
		return ""
	case len(given) > 1:
		q.fail(name, "is given more than once")
		return ""
	}
	if why := badText(given[0]); why != "" {
		q.fail(name, why)
		return ""
	}
	return given[0]
}

func (q *query) fail(field, why string) {
	if q.err == nil {
		q.err = &fieldError{Field: field, Text: why}
	}
}

func (q *query) time(name string) time.Time {
	t, err := parseTime(name, q.take(name))
	q.keep(err)
	return t
}

// id reads a positive whole number, 0 where it is absent.
func (q *query) id(name string, bits int) int64 {
	text := q.take(name)
	if text == "" {
		return 0
	}
	n, err := parseID(name, text, bits)
	q.keep(err)
	return n
}

// page reads limit and cursor. The cursor is checked by who made it.
func (q *query) page() dlq.Page {
	p := dlq.Page{Cursor: q.take("cursor")}
	if text := q.take("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 200 {
			q.fail("limit", "is a whole number from 1 to 200")
		}
		p.Limit = n
	}
	return p
}

func (q *query) keep(err error) {
	if q.err == nil {
		q.err = err
	}
}

// done returns the first error; a parameter that nobody took is one.
func (q *query) done() error {
	if q.err != nil {
		return q.err
	}
	for name := range q.values {
		text := "is not a parameter here, where there are none"
		if len(q.asked) > 0 {
			slices.Sort(q.asked)
			text = "is not a parameter of this list, which takes " + strings.Join(slices.Compact(q.asked), ", ")
		}
		return &fieldError{Field: printable(name), Text: text}
	}
	return nil
}

// noQuery refuses parameters where there are none.
func noQuery(c echo.Context) error { return parseQuery(c).done() }

// choice finds a name among those that exist.
func choice[T any](field, name string, all map[string]T) (T, error) {
	v, ok := all[name]
	if !ok {
		return v, &fieldError{Field: field, Text: "is one of " + strings.Join(sortedKeys(all), ", ")}
	}
	return v, nil
}

func parseTime(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1970 || t.Year() > 9999 {
		return time.Time{}, &fieldError{Field: field, Text: "is a time such as 2026-11-30T13:58:11Z"}
	}
	return t, nil
}

func parseID(field, text string, bits int) (int64, error) {
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != text {
		return 0, &fieldError{Field: field, Text: "is a positive whole number"}
	}
	return n, nil
}

// parseUUID takes the usual form only: 36 characters with dashes.
func parseUUID(field, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 {
		return uuid.Nil, &fieldError{Field: field, Text: "is a UUID such as 01932f00-0000-7000-8000-000000000000"}
	}
	return id, nil
}

// badText says why a text cannot be used: PostgreSQL stores neither broken UTF-8
// nor zero bytes.
func badText(s string) string {
	switch {
	case len(s) > maxText:
		return fmt.Sprintf("is longer than %d bytes", maxText)
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.ContainsRune(s, 0):
		return "holds a zero byte"
	}
	return ""
}

// printable shortens and cleans a name that came from outside, for an answer.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}
