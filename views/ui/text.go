package ui

import (
	"context"
	"io"
	"time"

	"github.com/a-h/templ"

	"oncemore/views/locale"
)

// Slots fills the placeholders of a text with components.
type Slots map[string]templ.Component

// Rich writes the text of key with components in place of its placeholders. n
// picks the plural and fills {n}; nil where there is none.
func Rich(key string, n any, slots Slots) templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		l := locale.From(ctx)
		for _, p := range l.Parts(key, n) {
			if err := richPart(l, p, n, slots).Render(ctx, w); err != nil {
				return err
			}
		}
		return nil
	})
}

func richPart(l locale.Locale, p locale.Part, n any, slots Slots) templ.Component {
	switch slot, ok := slots[p.Name]; {
	case p.Name == "":
		return Words(p.Words)
	case ok:
		return slot
	case p.Name == "n" && n != nil:
		return Words(l.Text("number", "n", n))
	}
	return Words("{" + p.Name + "}")
}

// Words is plain text as a component.
func Words(s string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, templ.EscapeString(s))
		return err
	})
}

// Gap stands between two sentences: a space in English, nothing in Chinese.
func Gap() templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		_, err := io.WriteString(w, locale.T(ctx, "sentence.gap"))
		return err
	})
}

// Seq writes one component after the other.
func Seq(parts ...templ.Component) templ.Component { return templ.Join(parts...) }

// iso is the machine-readable form of <time>.
func iso(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
