package compensate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// telling are fields of an answer whose values are nobody's to read.
var telling = regexp.MustCompile(`(?i)("[^"]*(?:password|passwd|secret|token|authorization|api_?key|credential)[^"]*"\s*:\s*)("(?:[^"\\]|\\.)*"|[^\s,}\]]+)`)

// masker makes what hides secrets of the config wherever they come back: whole,
// and without the scheme before them. Of those too short to be one it lets go.
func masker(bases map[string]Base) *strings.Replacer {
	var secrets []string
	for _, b := range bases {
		for _, value := range b.Headers {
			secrets = append(secrets, value)
			if _, bare, ok := strings.Cut(value, " "); ok {
				secrets = append(secrets, bare)
			}
		}
	}
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) // the longer one first
	var pairs []string
	for _, s := range secrets {
		if len(s) >= 6 {
			pairs = append(pairs, s, "***")
		}
	}
	return strings.NewReplacer(pairs...)
}

// mask hides secrets in what is kept and shown.
func (c *Compensations) mask(text string) string {
	if text == "" {
		return text
	}
	return telling.ReplaceAllString(c.secrets.Replace(text), `$1"***"`)
}
