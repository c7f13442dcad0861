package strictyaml_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oncemore/internal/strictyaml"
)

// A folder's files are told apart by a key; one that is broken is never passed
// over in silence.
func TestEachFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "job: b\n", "a.yml": "job: a\n", "c.yaml": "action: c\n", "d.yaml": "job: [\n", "e.txt": "job: e\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	err := strictyaml.EachFile(dir, "job", func(file string, _ []byte) error {
		seen = append(seen, filepath.Base(file))
		return nil
	})
	if got := strings.Join(seen, " "); got != "a.yml b.yaml" {
		t.Errorf("read %s", got)
	}
	if err == nil || !strings.Contains(err.Error(), "d.yaml") || strings.Contains(err.Error(), "c.yaml") {
		t.Errorf("%v", err)
	}
}
