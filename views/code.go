package views

import (
	"context"
	"io"

	"github.com/a-h/templ"
)

// code shows lines of somebody else's text. It is written by hand and not by
// templ, whose white space between elements would become part of the text.
func code(lines []CodeLine, label string, wide bool) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		class := "code"
		if wide {
			class = "code wide"
		}
		b := []byte(`<pre class="` + class + `" tabindex="0" role="region" aria-label="` + templ.EscapeString(label) + `">`)
		for _, l := range lines {
			b = l.append(b)
		}
		_, err := w.Write(append(b, "</pre>"...))
		return err
	})
}

func (l CodeLine) append(b []byte) []byte {
	b = append(b, `<span class="l"`...)
	if l.No != "" {
		b = append(b, ` data-no="`+templ.EscapeString(l.No)+`"`...)
	}
	b = append(b, '>')
	for _, t := range l.Tokens {
		if t.Class == "" {
			b = append(b, templ.EscapeString(t.Text)...)
			continue
		}
		b = append(b, `<span class="`+templ.EscapeString(t.Class)+`">`+templ.EscapeString(t.Text)+`</span>`...)
	}
	return append(b, "</span>"...)
}
