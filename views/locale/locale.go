// Package locale holds every text of the pages, in English and 简体中文, and
// writes numbers, times and sizes the way each language does.
package locale

import (
	"context"
	"strings"
	"time"
)

// Tag names a language of the catalog, as in <html lang>.
type Tag string

// The languages.
const (
	English Tag = "en"
	Chinese Tag = "zh-Hans"
)

// Tags lists the languages, the default first.
var Tags = []Tag{English, Chinese}

// Locale is how one reader is spoken to. The zero value speaks English in UTC.
type Locale struct {
	Tag  Tag
	Zone *time.Location
	Now  time.Time // instant of the page: relative times count from it
}

type contextKey struct{}

// With returns a context that carries the locale.
func With(ctx context.Context, l Locale) context.Context {
	return context.WithValue(ctx, contextKey{}, l)
}

// From returns the context's locale, or the zero value.
func From(ctx context.Context) Locale {
	l, _ := ctx.Value(contextKey{}).(Locale)
	if l.Tag == "" {
		l.Tag = English
	}
	if l.Zone == nil {
		l.Zone = time.UTC
	}
	return l
}

// T is the text of key in the language of ctx. Args are names and values of its
// placeholders, in turn; whole numbers get thousands separators, and "n" picks
// the plural.
func T(ctx context.Context, key string, args ...any) string {
	return From(ctx).Text(key, args...)
}

// Parse finds the language of a cookie's or profile's value; false if it is none of ours.
func Parse(s string) (Tag, bool) {
	for _, t := range Tags {
		if strings.EqualFold(string(t), s) {
			return t, true
		}
	}
	return English, false
}

// Accept picks a language for an Accept-Language header: the first of its
// languages that the catalog speaks, in the order of the header.
func Accept(header string) Tag {
	for part := range strings.SplitSeq(header, ",") {
		lang, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		lang = strings.ToLower(lang)
		switch {
		case lang == "zh" || strings.HasPrefix(lang, "zh-"):
			return Chinese
		case lang == "en" || strings.HasPrefix(lang, "en-"):
			return English
		}
	}
	return English
}
