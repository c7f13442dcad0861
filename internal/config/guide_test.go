package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Every key that the reader knows is in the guide.
func TestGuideNamesEveryKey(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`"([a-z_0-9]+)":\s+func\(n node\)|secret\(f, "([a-z_]+)"`)
	known := 0
	for _, file := range []string{"load.go", "read.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range key.FindAllStringSubmatch(string(source), -1) {
			known++
			name := regexp.MustCompile(`\b` + m[1] + m[2] + `(_env|_file)?\b`)
			if !name.Match(guide) {
				t.Errorf("docs/configuration.md does not name %s", m[1]+m[2])
			}
		}
	}
	if known < 50 {
		t.Errorf("only %d keys were found in the source", known)
	}
}
