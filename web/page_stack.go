package web

import (
	"regexp"
	"strings"

	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/views"
	"oncemore/views/locale"
)

// shownStack is how much of a stack trace the page carries; the whole is in the
// header's download.
const shownStack = 256 << 10

// stackOf finds the stack trace that the letter's dialect names. Frames of the
// reader's own code stand first, the rest is folded.
func (s *Server) stackOf(here locale.Locale, l dlq.LetterDetail, body dlq.Body, mayRead bool) views.Stack {
	trace := s.stackText(l, body)
	if trace == "" {
		return views.Stack{}
	}
	if !mayRead {
		trace = maskText(trace)
	}
	lines := textLines(cutBytes([]byte(strings.TrimRight(strings.ReplaceAll(trace, "\r\n", "\n"), "\n")), shownStack))
	v := views.Stack{Rest: lines}
	skipped := 0
	for i, line := range lines {
		text := lineText(line)
		switch frame := frameOf(text); {
		case i == 0 || strings.HasPrefix(text, "Caused by:"):
			v.Head = append(v.Head, line)
		case frame == "":
		case foreign(frame):
			v.Frames++
			skipped++
		default:
			v.Frames++
			if v.Own++; v.Own == 1 {
				v.Where = frame
			}
			v.Head = append(v.Head, views.CodeLine{Tokens: []views.Token{{Class: "own", Text: text}}})
		}
	}
	if v.Frames == 0 { // no trace of frames, but a chain of causes
		v.Head = lines[:min(len(lines), 40)]
	}
	if skipped > 0 {
		v.Head = append(v.Head, views.CodeLine{Tokens: []views.Token{{Class: "m", Text: "  " + here.Text("stack.more", "n", skipped)}}})
	}
	return v
}

func (s *Server) stackText(l dlq.LetterDetail, body dlq.Body) string {
	return deref(s.dialects().Read(body.Message(l.Letter), dialect.Configured{}).Stack())
}

func lineText(l views.CodeLine) string {
	var b strings.Builder
	for _, t := range l.Tokens {
		b.WriteString(t.Text)
	}
	return b.String()
}

// frames are how languages write one frame: Java and JavaScript, Python, Go.
var frames = []*regexp.Regexp{
	regexp.MustCompile(`^\s+at (.+)$`),
	regexp.MustCompile(`^\s+File "(.+)", line \d+`),
	regexp.MustCompile(`^([\w./*()-]+\.[\w.()*]+)\(.*\)$`),
}

// frameOf is the place that a line of a stack trace names, "" none.
func frameOf(line string) string {
	for _, f := range frames {
		if m := f.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return ""
}

// foreignCode begins or stands in the frames of frameworks and run-time libraries.
var foreignCode = regexp.MustCompile(`^(java|javax|jakarta|jdk|sun|com\.sun|kotlin|kotlinx|scala|reactor|io\.netty|io\.micrometer|` +
	`org\.springframework|org\.apache|org\.hibernate|org\.postgresql|org\.aopalliance|com\.mysql|com\.zaxxer|com\.fasterxml|` +
	`runtime|net/http|reflect|testing|database/sql|github\.com/(jackc|twmb|labstack|riverqueue))[./]|` +
	`(node_modules|site-packages|node:internal|dist-packages)|^(async )?(new )?(Promise|process|Object|Module)\b`)

func foreign(frame string) bool { return foreignCode.MatchString(frame) }
