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

// What stands behind --- is read by nobody, so it is no part of a file.
func TestAFileIsOneDocument(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "# nothing\n": "", "a: 1\n": "", "---\na: 1\n": "", "---\na: 1\n...\n": "", "a: 1\n---\n": "",
		"a: 1\n---\nb: 2\n":  "f.yaml:2: a second document",
		"a: 1\n---\nb: [\n":  "f.yaml: yaml",
		"---\n---\njob: 1\n": "f.yaml:2: a second document",
	} {
		_, err := strictyaml.Document("f.yaml", []byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
