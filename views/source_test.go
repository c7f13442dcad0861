package views_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/a-h/templ/parser/v2"
	"github.com/a-h/templ/parser/v2/visitor"
)

// ownWords may stand in a page as they are: they are the same in every language.
var ownWords = []string{"Oncemore", "· Oncemore", "R-", "F-", "B-", "YAML", "EXPLAIN", "NULL", "Kafka", "RabbitMQ", "PostgreSQL", "MySQL / MariaDB", "j", "k", "x", "Enter"}

func templates(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.templ")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("ui/*.templ")
	if err != nil || len(files) < 10 || len(more) < 4 {
		t.Fatalf("%d and %d templates, %v", len(files), len(more), err)
	}
	return append(files, more...)
}

func TestNoTextStandsInATemplate(t *testing.T) {
	t.Parallel()
	for _, path := range templates(t) {
		file, err := parser.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		v := visitor.New()
		v.Text = func(n *parser.Text) error {
			if words := strings.TrimSpace(n.Value); strings.ContainsFunc(words, unicode.IsLetter) && !slices.Contains(ownWords, words) {
				t.Errorf("%s:%d: %q belongs in the catalog", path, n.Range.From.Line+1, words)
			}
			return nil
		}
		spoken := []string{"title", "aria-label", "placeholder", "alt", "label", "aria-description"}
		v.ConstantAttribute = func(n *parser.ConstantAttribute) error {
			if slices.Contains(spoken, n.Key.String()) && strings.ContainsFunc(n.Value, unicode.IsLetter) {
				t.Errorf("%s:%d: %s=%q belongs in the catalog", path, n.Range.From.Line+1, n.Key, n.Value)
			}
			return nil
		}
		if err := file.Visit(v); err != nil {
			t.Fatal(err)
		}
	}
}

// The policy allows no inline style, script or handler; nothing may depend on one.
func TestNothingInline(t *testing.T) {
	t.Parallel()
	inline := regexp.MustCompile(`(?i)\s(style|on[a-z]+|hx-on[:a-z-]*|hx-vars|hx-vals)\s*=|javascript:|templ\.ComponentScript|templ\.JS|^script |^css `)
	for _, path := range templates(t) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(b), "\n") {
			if m := inline.FindString(line); m != "" {
				t.Errorf("%s:%d holds %q", path, i+1, m)
			}
		}
	}
}
