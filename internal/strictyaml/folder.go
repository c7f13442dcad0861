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
// those of read and of files that cannot be read as YAML.
func EachFile(dir, key string, read func(file string, b []byte) error) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.y*ml"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	var bad []error
	for _, file := range files {
		b, err := os.ReadFile(file)
		var mine bool
		if err == nil {
			mine, err = has(file, b, key)
		}
		if mine {
			err = read(file, b)
		}
		bad = append(bad, err)
	}
	return errors.Join(bad...)
}

// has reports whether the document is a mapping with the key. What is no YAML is
// an error: nobody knows whose file it is.
func has(file string, b []byte, key string) (bool, error) {
	doc, err := Document(file, b)
	if err != nil {
		return false, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return false, nil
	}
	for i := 0; i < len(doc.Content[0].Content); i += 2 {
		if doc.Content[0].Content[i].Value == key {
			return true, nil
		}
	}
	return false, nil
}
