package dlq

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// tokenHits is how many hits of the index are compared together.
const tokenHits = 1000

const sqlTokenHits = `
SELECT t.letter_id FROM letter_token t
WHERE t.tokens @> @tokens AND t.letter_id > @lower AND t.letter_id < @upper
ORDER BY t.letter_id %s LIMIT @rows`

// nextByTokens asks one month's index for the following hits, newest month first
// where the list is. Months before the first hit cost an index look-up each.
func (w *comparing) nextByTokens(ctx context.Context) (walkPart, error) {
	if len(w.months) == 0 {
		return walkPart{done: true}, nil
	}
	m := w.months[0]
	lower, upper := maxID(w.query.lower, beforeID(m.lower)), minID(w.query.upper, m.upper)
	if !lessID(lower, upper) {
		w.months = w.months[1:]
		return walkPart{}, nil
	}
	hits, err := w.tokenHits(ctx, lower, upper)
	if err != nil {
		return walkPart{}, err
	}
	if len(hits) < tokenHits {
		w.months = w.months[1:]
	}
	if len(hits) == 0 {
		return walkPart{}, nil
	}
	part, err := w.compareHits(ctx, hits)
	part.last = hits[len(hits)-1]
	w.query.place(cursor{direction: w.direction, id: part.last})
	return part, err
}

func (w *comparing) tokenHits(ctx context.Context, lower, upper uuid.UUID) ([]uuid.UUID, error) {
	var tokens []int64
	for _, t := range w.terms {
		tokens = append(tokens, t.hashes()...)
	}
	order := "DESC"
	if w.direction == newer {
		order = "ASC"
	}
	// A plan for these very tokens: rare ones are asked of the GIN index, common
	// ones are met soon enough among the newest letters.
	rows, err := w.letters.pool.Query(ctx, fmt.Sprintf(sqlTokenHits, order), pgx.QueryExecModeCacheDescribe,
		pgx.NamedArgs{"tokens": tokens, "lower": lower, "upper": upper, "rows": tokenHits})
	if err != nil {
		return nil, fmt.Errorf("search tokens: %w", err)
	}
	hits, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("read token hits: %w", err)
	}
	return hits, nil
}

// sqlHits reads what hits are compared by. The rest of the filter is in it.
const sqlHits = `
SELECT d.id, d.event_id, d.event_id_alt, c.name, d.error_message, b.key, b.value, b.headers
FROM dead_letter d
LEFT JOIN dead_letter_body b ON b.id = d.id
LEFT JOIN letter_name c ON c.id = d.class_id
WHERE d.id = ANY(@ids) AND (%s)
ORDER BY d.id %s`

// compareHits compares hits with the letters themselves: a hash may be another
// value's, and a field is asked for by name.
func (w *comparing) compareHits(ctx context.Context, hits []uuid.UUID) (walkPart, error) {
	order := "DESC"
	if w.direction == newer {
		order = "ASC"
	}
	args := w.query.named()
	for k, v := range w.args {
		args[k] = v
	}
	args["ids"] = hits
	rows, err := w.letters.pool.Query(ctx, fmt.Sprintf(sqlHits, w.where+w.query.beside(), order), args)
	if err != nil {
		return walkPart{}, fmt.Errorf("query token hits: %w", err)
	}
	var part walkPart
	var id uuid.UUID
	var s searchable
	_, err = pgx.ForEachRow(rows, []any{&id, &s.EventID, &s.EventIDAlt, &s.Class, &s.Message, &s.Key, &s.Value, &s.Headers}, func() error {
		facts := s.facts()
		if !slices.ContainsFunc(w.terms, func(t Term) bool { return !t.holds(facts) }) {
			part.ids = append(part.ids, id)
		}
		return nil
	})
	if err != nil {
		return walkPart{}, fmt.Errorf("compare token hits: %w", err)
	}
	return part, nil
}

// beside is what the query holds besides the token index, as a condition.
func (q letterQuery) beside() string {
	var parts []string
	if q.via {
		parts = append(parts, "d.fault_id = ANY(@faults)")
	} else if q.where != "" {
		parts = append(parts, q.where)
	}
	if q.state != 0 {
		parts = append(parts, fmt.Sprintf("d.state = %d", q.state))
	}
	if len(parts) == 0 {
		return ""
	}
	return " AND " + strings.Join(parts, " AND ")
}

// needles are the forms in which a text may stand in a payload: as it is, and as
// JSON writes it, with or without escapes for what is not ASCII.
func needles(text string) [][]byte {
	all := []string{text}
	if quoted, err := json.Marshal(text); err == nil {
		all = append(all, strings.Trim(string(quoted), `"`))
	}
	ascii := asciiJSON(text)
	all = append(all, ascii, upperEscapes(ascii))
	slices.Sort(all)
	var out [][]byte
	for _, s := range slices.Compact(all) {
		out = append(out, []byte(s))
	}
	return out
}

// foldedNeedles are the needles of a text in each way that its letters may be
// written, folded like the bytes that they are looked for in.
func foldedNeedles(text string) []string {
	var all []string
	for _, written := range []string{text, strings.ToLower(text), strings.ToUpper(text), capitalised(text)} {
		for _, n := range needles(written) {
			all = append(all, fold(n))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func capitalised(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToTitle(first)) + strings.ToLower(text[size:])
}

// fold writes bytes as PostgreSQL's escape format does, Latin letters small, a
// backslash as one character that no other byte is written with.
func fold(b []byte) string {
	var out strings.Builder
	for _, c := range b {
		switch {
		case c == '\\':
			out.WriteRune('¦')
		case c == 0 || c >= 0x80:
			fmt.Fprintf(&out, `\%03o`, c)
		case c >= 'A' && c <= 'Z':
			out.WriteByte(c + 'a' - 'A')
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// asciiJSON escapes what is not ASCII, as many serialisers do.
func asciiJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x80:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}

// upperEscapes writes the hex digits of \u escapes in capitals.
func upperEscapes(s string) string {
	parts := strings.Split(s, `\u`)
	for i := 1; i < len(parts); i++ {
		if n := min(4, len(parts[i])); n > 0 {
			parts[i] = strings.ToUpper(parts[i][:n]) + parts[i][n:]
		}
	}
	return strings.Join(parts, `\u`)
}

// TokenIndex says how far the index of exact search is.
type TokenIndex struct {
	Until time.Time     // letters that arrived before can be found; zero: none yet
	Lag   time.Duration // how far that is behind the newest letter; 0: not at all
}

const sqlTokenIndex = `
SELECT p.last_id, p.moved_at, (SELECT d.id FROM dead_letter d ORDER BY d.id DESC LIMIT 1)
FROM (SELECT 1) one LEFT JOIN letter_token_position p ON true`

// TokenIndex reads how far exact search can look.
func (l *Letters) TokenIndex(ctx context.Context) (TokenIndex, error) {
	var last, newest *uuid.UUID
	var moved *time.Time
	if err := l.pool.QueryRow(ctx, sqlTokenIndex).Scan(&last, &moved, &newest); err != nil {
		return TokenIndex{}, fmt.Errorf("read place of the token index: %w", err)
	}
	var t TokenIndex
	if last != nil {
		t.Until = arrived(*last)
	}
	if newest != nil && (last == nil || lessID(*last, *newest)) {
		t.Lag = arrived(*newest).Sub(t.Until)
	}
	return t, nil
}
