package effect

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// SyntaxError says what a statement cannot be read for, and where.
type SyntaxError struct {
	Offset int // bytes into the statement
	Reason string
}

// Error is the reason with its place.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("statement, byte %d: %s", e.Offset, e.Reason)
}

// statement is SQL with its named parameters replaced by $1, $2, … One name
// has one number, however often it is used.
type statement struct {
	text   string
	params []string

	// Of MySQL, where a parameter's value may be written into the text.
	parts []string // what stands around the parameters: one more than they are
	order []int    // which parameter stands between two parts
}

// verbs are the words a statement may begin with. COMMIT, ROLLBACK and their
// like would end the transaction that holds the consume record.
var (
	verbs      = []string{"insert", "update", "delete", "merge", "with", "select", "call"}
	mysqlVerbs = []string{"insert", "update", "delete", "replace", "with", "select", "call"}
)

// parse reads one statement. A parameter is a colon and a name: `:orderId`, a
// dotted path `:order.id`, `:items.0.sku`, and `:$.topic` or `:$` where the
// payload's own field or the whole payload is meant. Casts, literals, quoted
// names, dollar quotes, comments, `:=` and array slices are left alone. In a
// subscript a colon after an operand is a slice: write `a[1:(:n)]`.
func parse(sql string) (statement, error) { return scan(scanner{src: sql, verbs: verbs}) }

// parseMySQL is parse by MySQL's rules: a backslash escapes in literals of either
// quote, names stand in backticks, # begins a comment, and -- does before a space.
func parseMySQL(sql string) (statement, error) {
	return scan(scanner{src: sql, verbs: mysqlVerbs, mysql: true})
}

func scan(s scanner) (statement, error) {
	for !s.done() {
		if err := s.step(); err != nil {
			return statement{}, err
		}
	}
	if s.verb == "" {
		return statement{}, &SyntaxError{0, "is empty"}
	}
	st := statement{text: s.out.String(), params: s.params}
	if s.mysql {
		st.parts, st.order = append(s.parts, st.text), s.order
		st.text = strings.Join(st.parts, "?")
	}
	return st, nil
}

// scanner walks over the source once. Everything but parameters goes to out
// byte for byte.
type scanner struct {
	src    string
	mysql  bool
	verbs  []string
	pos    int
	out    strings.Builder
	params []string
	parts  []string // of MySQL, as of statement
	order  []int

	verb     string
	ended    bool   // a semicolon was seen: only white space and comments may follow
	brackets []byte // open ones: '(' or '[' or 'A' for an array constructor's
	operand  bool   // the last token can stand before an operator
	word     string // the last token, when it was a word
}

func (s *scanner) done() bool   { return s.pos >= len(s.src) }
func (s *scanner) rest() string { return s.src[s.pos:] }

// take copies n bytes.
func (s *scanner) take(n int) {
	s.out.WriteString(s.src[s.pos : s.pos+n])
	s.pos += n
}

func (s *scanner) fail(format string, args ...any) error {
	return &SyntaxError{s.pos, fmt.Sprintf(format, args...)}
}

// step reads one token.
func (s *scanner) step() error {
	rest := s.rest()
	c := rest[0]
	switch {
	case isSpace(c):
		s.take(1)
		return nil
	case s.isLineComment(rest):
		s.take(lineComment(rest))
		return nil
	case s.mysql && (strings.HasPrefix(rest, "/*!") || strings.HasPrefix(rest, "/*M!")):
		return s.fail("the server would execute what stands in %.4s: write it without", rest)
	case strings.HasPrefix(rest, "/*"):
		return s.blockComment()
	case s.ended:
		return s.fail("one statement only, but something follows the semicolon")
	case c == ';':
		s.ended = true
		s.pos++ // the server does not need it, and nothing may follow it
		return nil
	}
	if s.verb == "" {
		return s.first()
	}
	return s.token(c, rest)
}

// first reads the word that says what the statement does.
func (s *scanner) first() error {
	n := wordLen(s.rest())
	word := strings.ToLower(s.rest()[:n])
	if !slices.Contains(s.verbs, word) {
		return s.fail("has to begin with one of %s", strings.Join(s.verbs, ", "))
	}
	s.verb = word
	s.takeWord(n)
	return nil
}

func (s *scanner) token(c byte, rest string) error {
	switch {
	case c == '\'':
		return s.quoted(1, '\'', s.escapes())
	case c == '"':
		return s.quoted(1, '"', s.mysql)
	case c == '`' && s.mysql:
		return s.quoted(1, '`', false)
	case c == '?' && s.mysql:
		return s.fail("parameters have names here: write :name instead of ?")
	case c == '$' && !s.mysql:
		return s.dollar()
	case c == ':':
		return s.colon()
	case isDigit(c):
		s.takeWord(numberLen(rest))
	case isWordStart(c):
		s.takeWord(wordLen(rest))
	case c == '(' || c == '[':
		s.open(c)
	case c == ')' || c == ']':
		return s.close(c)
	default:
		s.take(1)
		s.operand, s.word = false, ""
	}
	return nil
}

func (s *scanner) takeWord(n int) {
	s.word = strings.ToLower(s.src[s.pos : s.pos+n])
	s.operand = true
	s.take(n)
}

// escapes reports whether the literal at pos is an E'…' one, where a backslash
// hides the quote. The E has to touch the quote. In MySQL every literal is one.
func (s *scanner) escapes() bool {
	return s.mysql || s.word == "e" && s.pos > 0 && (s.src[s.pos-1] == 'e' || s.src[s.pos-1] == 'E')
}

// continued matches what joins two literals into one: a newline, perhaps with
// comments, and a quote. The second part keeps the first one's rule for backslashes.
var continued = regexp.MustCompile(`^(?:[ \t\f\v]|--[^\n\r]*)*[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*[\n\r])*'`)

// quoted copies a literal or a quoted name; skip bytes open it.
func (s *scanner) quoted(skip int, quote byte, backslash bool) error {
	rest := s.rest()
	for i := skip; i < len(rest); i++ {
		switch {
		case backslash && rest[i] == '\\':
			i++
		case rest[i] == quote && i+1 < len(rest) && rest[i+1] == quote:
			i++
		case backslash && continued.MatchString(rest[i+1:]):
			i += len(continued.FindString(rest[i+1:]))
		case rest[i] == quote:
			s.take(i + 1)
			s.operand, s.word = true, ""
			return nil
		}
	}
	return s.fail("%c is never closed", quote)
}

// dollar copies $tag$ … $tag$. A bare $1 is refused: the numbers are ours.
func (s *scanner) dollar() error {
	rest := s.rest()
	if len(rest) > 1 && isDigit(rest[1]) {
		return s.fail("parameters have names here: write :name instead of $%c", rest[1])
	}
	end := strings.IndexByte(rest[1:], '$')
	if end < 0 || !isTag(rest[1:1+end]) {
		s.take(1)
		s.operand, s.word = false, ""
		return nil
	}
	tag := rest[:end+2]
	body := strings.Index(rest[len(tag):], tag)
	if body < 0 {
		return s.fail("%s is never closed", tag)
	}
	s.take(len(tag) + body + len(tag))
	s.operand, s.word = true, ""
	return nil
}

// isLineComment reports whether a comment begins that ends with the line.
func (s *scanner) isLineComment(rest string) bool {
	if !s.mysql {
		return strings.HasPrefix(rest, "--")
	}
	return rest[0] == '#' || strings.HasPrefix(rest, "--") && (len(rest) == 2 || isSpace(rest[2]))
}

// blockComment copies a comment. PostgreSQL nests them, MySQL does not.
func (s *scanner) blockComment() error {
	rest, depth := s.rest(), 0
	for i := 0; i+1 < len(rest); i++ {
		switch rest[i : i+2] {
		case "/*":
			if depth == 0 || !s.mysql {
				depth++
			}
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				s.take(i + 1)
				return nil
			}
		}
	}
	return s.fail("/* is never closed")
}

func (s *scanner) open(c byte) {
	if c == '[' && (!s.operand || s.word == "array") {
		c = 'A'
	}
	s.brackets = append(s.brackets, c)
	s.take(1)
	s.operand, s.word = false, ""
}

func (s *scanner) close(c byte) error {
	last := len(s.brackets) - 1
	if last < 0 || (c == ')') != (s.brackets[last] == '(') {
		return s.fail("%c without its opening bracket", c)
	}
	s.brackets = s.brackets[:last]
	s.take(1)
	s.operand, s.word = true, ""
	return nil
}

// colon decides what a colon is.
func (s *scanner) colon() error {
	rest := s.rest()
	if strings.HasPrefix(rest, "::") && !s.mysql || strings.HasPrefix(rest, ":=") {
		s.take(2)
		s.operand, s.word = false, ""
		return nil
	}
	n := nameLen(rest[1:])
	if n == 0 || s.inSubscript() && s.operand {
		s.take(1)
		s.operand, s.word = false, ""
		return nil
	}
	s.parameter(rest[1 : 1+n])
	s.pos += 1 + n
	s.operand, s.word = true, ""
	return nil
}

func (s *scanner) inSubscript() bool {
	return len(s.brackets) > 0 && s.brackets[len(s.brackets)-1] == '['
}

func (s *scanner) parameter(name string) {
	no := slices.Index(s.params, name)
	if no < 0 {
		no = len(s.params)
		s.params = append(s.params, name)
	}
	if s.mysql {
		s.parts, s.order = append(s.parts, s.out.String()), append(s.order, no)
		s.out.Reset()
		return
	}
	fmt.Fprintf(&s.out, "$%d", no+1)
}

// nameLen is the length of a parameter's name at the start of s; 0: there is none.
func nameLen(s string) int {
	n := 0
	switch {
	case strings.HasPrefix(s, "$") && segmentLen(s[1:]) == 0 && !strings.HasPrefix(s[1:], "$"):
		n = 1
	case s != "" && isWordStart(s[0]):
		n = segmentLen(s)
	default:
		return 0
	}
	for n < len(s) && s[n] == '.' {
		segment := segmentLen(s[n+1:])
		if segment == 0 {
			break
		}
		n += 1 + segment
	}
	return n
}

func segmentLen(s string) int {
	n := 0
	for n < len(s) && (isWordStart(s[n]) || isDigit(s[n])) {
		n++
	}
	return n
}

func lineComment(s string) int {
	if end := strings.IndexAny(s, "\r\n"); end >= 0 {
		return end
	}
	return len(s)
}

// wordLen counts a keyword or a name; a dollar sign may stand inside one.
func wordLen(s string) int {
	n := 0
	for n < len(s) && (isWordStart(s[n]) || n > 0 && (isDigit(s[n]) || s[n] == '$')) {
		n++
	}
	return n
}

func numberLen(s string) int {
	n := 0
	for n < len(s) && (isDigit(s[n]) || isWordStart(s[n]) || s[n] == '.') {
		n++
	}
	return n
}

func isTag(s string) bool {
	return s == "" || isWordStart(s[0]) && segmentLen(s) == len(s)
}

func isSpace(c byte) bool { return strings.IndexByte(" \t\n\r\f\v", c) >= 0 }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isWordStart counts every byte beyond ASCII as a letter, as PostgreSQL does.
func isWordStart(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
