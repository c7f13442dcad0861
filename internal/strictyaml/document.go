package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Document reads a file's only document; one of an empty file has no content. A
// second document behind --- is an error, since nobody would read it.
func Document(file string, b []byte) (doc yaml.Node, err error) {
	d := yaml.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return doc, fmt.Errorf("%s: %w", file, err)
	}
	var next yaml.Node
	switch err := d.Decode(&next); {
	case errors.Is(err, io.EOF):
		return doc, nil
	case err != nil:
		return doc, fmt.Errorf("%s: %w", file, err)
	case len(next.Content) == 1 && next.Content[0].Tag == "!!null": // a line of --- at the end
		return doc, nil
	}
	return doc, fmt.Errorf("%s:%d: a second document begins here: put it into a file of its own, or leave out the --- before it", file, next.Line)
}
