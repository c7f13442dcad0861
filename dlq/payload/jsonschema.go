package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

var english = message.NewPrinter(language.English)

// jsonCodec is JSON behind a frame: the document is the bytes themselves.
type jsonCodec struct {
	id     string
	title  string
	schema *jsonschema.Schema
}

// mainSchema is the address of a schema among those that it refers to.
const mainSchema = "registry:///schema.json"

// refuseAll keeps a schema from reading files or addresses of its own choice.
type refuseAll struct{}

// Load is part of jsonschema.URLLoader.
func (refuseAll) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is not among the schema's references", url)
}

func newJSONSchema(id string, text string, refs []reference) (*jsonCodec, error) {
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(refuseAll{})
	compiler.DefaultDraft(jsonschema.Draft7)
	add := func(url, text string) error {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
		if err != nil {
			return err
		}
		return compiler.AddResource(url, doc)
	}
	for _, ref := range refs {
		url := ref.name
		if !bytes.Contains([]byte(url), []byte(":")) {
			url = "registry:///" + url
		}
		if err := add(url, ref.text.Schema); err != nil {
			return nil, fmt.Errorf("%s: %w", ref.name, err)
		}
	}
	if err := add(mainSchema, text); err != nil {
		return nil, err
	}
	schema, err := compiler.Compile(mainSchema)
	if err != nil {
		return nil, err
	}
	return &jsonCodec{id: id, schema: schema, title: schema.Title}, nil
}

func (c *jsonCodec) name() string {
	if c.title == "" {
		return "JSON Schema"
	}
	return c.title
}

// decode shows a document that its schema does not allow, too, and says so: it
// may be why the message died.
func (c *jsonCodec) decode(rest []byte) (decoded, error) {
	d := decoded{name: c.name()}
	if !json.Valid(rest) {
		return d, errors.New("it is not JSON")
	}
	d.document = rest
	if err := c.valid(rest); err != nil {
		d.remark = why("payload.why.invalid", "schema", c.id, "error", oneLine(err))
	}
	return d, nil
}

func (c *jsonCodec) valid(document []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return err
	}
	err = c.schema.Validate(value)
	if wrong, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return firstCause(wrong)
	}
	return err
}

// firstCause is the deepest of the first things that are wrong, with its place.
func firstCause(e *jsonschema.ValidationError) error {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	var at bytes.Buffer
	for _, key := range e.InstanceLocation {
		at.WriteByte('/')
		at.WriteString(key)
	}
	if at.Len() == 0 {
		at.WriteByte('/')
	}
	return fmt.Errorf("at %s: %s", at.String(), e.ErrorKind.LocalizedString(english))
}

func (c *jsonCodec) encode(_, edited []byte) ([]byte, *Why) {
	if err := c.valid(edited); err != nil {
		return nil, why("payload.why.edit_schema", "schema", c.id, "name", c.name(), "error", oneLine(err))
	}
	return edited, nil
}
