package payload

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/twmb/avro"
)

// avroCodec shows values in Avro's JSON form, where a union names its branch and
// bytes are one character each, but for decimals, which are numbers.
type avroCodec struct {
	id     string
	schema *avro.Schema
	shape  *avroShape
}

// plainNumbers keep the numbers of dates and times as they stand in the bytes.
var plainNumbers = func() (opts []avro.SchemaOpt) {
	for _, logical := range []string{
		"date", "time-millis", "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
		"local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos", "duration", "uuid",
	} {
		opts = append(opts, avro.WithCustomType(avro.CustomType{LogicalType: logical}))
	}
	return opts
}()

func newAvro(id string, text string, refs []reference) (*avroCodec, error) {
	var cache avro.SchemaCache
	read := map[string]bool{}
	for _, ref := range refs {
		if read[ref.text.Schema] {
			continue // two subjects may hold the same type
		}
		read[ref.text.Schema] = true
		if _, err := cache.Parse(ref.text.Schema, plainNumbers...); err != nil {
			return nil, fmt.Errorf("%s: %w", ref.name, err)
		}
	}
	schema, err := cache.Parse(text, plainNumbers...)
	if err != nil {
		return nil, err
	}
	root := schema.Root().ExpandReferences()
	return &avroCodec{id: id, schema: schema, shape: newAvroShape(root)}, nil
}

func (c *avroCodec) decode(rest []byte) (decoded, error) {
	d := decoded{name: fullName(c.shape.root)}
	value, err := c.value(rest)
	if err != nil {
		return d, err
	}
	d.document, err = c.shape.document(value)
	return d, err
}

func (c *avroCodec) value(rest []byte) (value any, err error) {
	left, err := c.schema.Decode(rest, &value, avro.TaggedUnions())
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d bytes are left over", len(left))
	}
	return value, err
}

func (c *avroCodec) encode(original, edited []byte) ([]byte, *Why) {
	if w := c.exact(original); w != nil {
		return nil, w
	}
	out, err := c.bytes(edited)
	if err != nil {
		return nil, why("payload.why.edit_schema", "schema", c.id, "name", fullName(c.shape.root), "error", oneLine(err))
	}
	return out, nil
}

func (c *avroCodec) bytes(document []byte) ([]byte, error) {
	value, err := c.shape.value(document)
	if err != nil {
		return nil, err
	}
	return c.schema.Encode(value, avro.TaggedUnions())
}

// exact tries whether a value survives the way through its document: texts that
// are no UTF-8 do not.
func (c *avroCodec) exact(original []byte) *Why {
	was, err := c.value(original)
	if err != nil {
		return why("payload.why.decode", "schema", c.id, "name", fullName(c.shape.root), "error", oneLine(err))
	}
	now := any(nil)
	document, err := c.shape.document(was)
	if err == nil {
		if document, err = c.bytes(document); err == nil {
			now, err = c.value(document)
		}
	}
	if err != nil || !reflect.DeepEqual(was, now) {
		return why("payload.why.edit_inexact")
	}
	return nil
}

// fullName is a type's name as a union's branch names it.
func fullName(n *avro.SchemaNode) string {
	switch {
	case n.Name == "" || !named(n):
		return n.Type
	case n.Namespace == "" || strings.Contains(n.Name, "."):
		return n.Name
	}
	return n.Namespace + "." + n.Name
}

func named(n *avro.SchemaNode) bool {
	return n.Type == "record" || n.Type == "error" || n.Type == "enum" || n.Type == "fixed"
}
