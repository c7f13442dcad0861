package strictyaml

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
)

// EachFile hands the YAML files of a folder to read, by name: those whose
// document has the key, since one folder holds several kinds. The error joins
// those of read and of files that cannot be opened.
func EachFile(dir, key string, read func(file string, b []byte) error) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.y*ml"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	var bad []error
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err == nil && has(b, key) {
			err = read(file, b)
		}
		bad = append(bad, err)
	}
	return errors.Join(bad...)
}

// has reports whether the document is a mapping with the key.
func has(b []byte, key string) bool {
	var doc yaml.Node
	if yaml.Unmarshal(b, &doc) != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(doc.Content[0].Content); i += 2 {
		if doc.Content[0].Content[i].Value == key {
			return true
		}
	}
	return false
}
