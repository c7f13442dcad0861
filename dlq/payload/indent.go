package payload

import "strings"

// Indent lays a JSON document out, two spaces a level, and stops behind most
// bytes. Only the white space between tokens changes: names keep their order and
// repeats, numbers and texts every byte. cut says that there is more. A document
// that is not JSON comes out as something, and ends.
func Indent(document []byte, most int) (text []byte, cut bool) {
	w := &indenter{doc: document, out: make([]byte, 0, min(2*len(document)+16, most+256))}
	for w.at < len(document) {
		if w.next(most); len(w.out) > most {
			return w.out[:most], true
		}
	}
	return w.out, false
}

type indenter struct {
	doc, out []byte
	at       int
	depth    int
}

func (w *indenter) next(most int) {
	switch c := w.doc[w.at]; c {
	case ' ', '\t', '\r', '\n':
		w.at++
	case '{', '[':
		w.open(c)
	case '}', ']':
		w.depth = max(0, w.depth-1)
		w.line()
		w.byte(c)
	case ',':
		w.byte(c)
		w.line()
	case ':':
		w.byte(c)
		w.out = append(w.out, ' ')
	case '"':
		w.take(w.stringEnd(), most)
	default:
		w.take(w.wordEnd(), most)
	}
}

func (w *indenter) byte(c byte) {
	w.out = append(w.out, c)
	w.at++
}

// take copies a token, of a long one no more than is shown.
func (w *indenter) take(end, most int) {
	shown := min(end, w.at+max(0, most-len(w.out))+1)
	w.out = append(w.out, w.doc[w.at:shown]...)
	w.at = end
}

// open writes an empty object or array on one line.
func (w *indenter) open(c byte) {
	w.byte(c)
	rest := w.at
	for rest < len(w.doc) && strings.IndexByte(" \t\r\n", w.doc[rest]) >= 0 {
		rest++
	}
	if rest < len(w.doc) && (w.doc[rest] == '}' || w.doc[rest] == ']') {
		w.at = rest
		w.byte(w.doc[rest])
		return
	}
	w.depth++
	w.line()
}

func (w *indenter) line() {
	w.out = append(w.out, '\n')
	for range min(w.depth, 64) { // deeper levels stay in one column
		w.out = append(w.out, ' ', ' ')
	}
}

func (w *indenter) stringEnd() int {
	for i := w.at + 1; i < len(w.doc); i++ {
		switch w.doc[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(w.doc)
}

func (w *indenter) wordEnd() int {
	end := w.at + 1
	for end < len(w.doc) && strings.IndexByte("{}[],:\" \t\r\n", w.doc[end]) < 0 {
		end++
	}
	return end
}
