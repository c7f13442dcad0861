package payload

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// protobufCodec shows messages in Protobuf's JSON form: 64-bit numbers are texts
// there, bytes base64.
type protobufCodec struct {
	id    string
	file  protoreflect.FileDescriptor
	types *dynamicpb.Types // for what google.protobuf.Any holds
}

// mainFile is the name of a schema among those that it imports.
const mainFile = "schema.proto"

func newProtobuf(ctx context.Context, id string, text string, refs []reference) (*protobufCodec, error) {
	files := map[string]string{mainFile: text}
	for name, source := range confluentFiles {
		files[name] = source
	}
	for _, ref := range refs {
		files[ref.name] = ref.text.Schema
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)}),
		MaxParallelism: 1,
	}
	compiled, err := compiler.Compile(ctx, mainFile)
	if err != nil {
		return nil, err
	}
	registry := &protoregistry.Files{}
	if err := registerAll(registry, compiled[0]); err != nil {
		return nil, err
	}
	return &protobufCodec{id: id, file: compiled[0], types: dynamicpb.NewTypes(registry)}, nil
}

func registerAll(into *protoregistry.Files, file protoreflect.FileDescriptor) error {
	if _, err := into.FindFileByPath(file.Path()); err == nil {
		return nil
	}
	imports := file.Imports()
	for i := range imports.Len() {
		if err := registerAll(into, imports.Get(i).FileDescriptor); err != nil {
			return err
		}
	}
	return into.RegisterFile(file)
}

// confluentFiles are imports that registries know without being told.
var confluentFiles = map[string]string{
	"confluent/type/decimal.proto": `syntax = "proto3"; package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }`,
	"confluent/meta.proto": `syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }`,
}

// message reads the message's place and its fields. place are the bytes that name
// it.
func (c *protobufCodec) message(rest []byte) (m *dynamicpb.Message, place []byte, err error) {
	path, fields, err := indexes(rest)
	if err != nil {
		return nil, nil, err
	}
	place = rest[:len(rest)-len(fields)]
	of, err := c.descriptor(path)
	if err != nil {
		return nil, place, err
	}
	m = dynamicpb.NewMessage(of)
	return m, place, proto.UnmarshalOptions{Resolver: c.types}.Unmarshal(fields, m)
}

func (c *protobufCodec) descriptor(path []int) (protoreflect.MessageDescriptor, error) {
	var of protoreflect.MessageDescriptor
	in := c.file.Messages()
	for _, i := range path {
		if i >= in.Len() {
			return nil, fmt.Errorf("there is no message %v in it", path)
		}
		of = in.Get(i)
		in = of.Messages()
	}
	return of, nil
}

func (c *protobufCodec) decode(rest []byte) (decoded, error) {
	m, _, err := c.message(rest)
	d := decoded{}
	if m != nil {
		d.name = string(m.Descriptor().FullName())
	}
	if err != nil {
		return d, err
	}
	if d.document, err = c.document(m); err != nil {
		return d, err
	}
	if n := unknownBytes(m); n > 0 {
		d.remark = why("payload.why.unknown_fields", "n", n, "schema", c.id)
	}
	return d, nil
}

func (c *protobufCodec) document(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: c.types}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer // the library puts spaces at random
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

// unknownBytes counts what belongs to fields that the schema does not have.
func unknownBytes(m protoreflect.Message) int {
	n := len(m.GetUnknown())
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, item protoreflect.Value) bool {
				n += unknownBytes(item.Message())
				return true
			})
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				n += unknownBytes(v.List().Get(i).Message())
			}
		case !f.IsMap() && !f.IsList() && f.Message() != nil:
			n += unknownBytes(v.Message())
		}
		return true
	})
	return n
}

func (c *protobufCodec) encode(original, edited []byte) ([]byte, *Why) {
	was, place, err := c.message(original)
	switch {
	case err != nil:
		return nil, why("payload.why.decode", "schema", c.id, "name", c.file.Package(), "error", oneLine(err))
	case unknownBytes(was) > 0:
		return nil, why("payload.why.edit_unknown_field", "schema", c.id)
	}
	document, err := c.document(was)
	if err != nil {
		return nil, why("payload.why.edit_inexact")
	}
	if same, err := c.read(was.Descriptor(), document); err != nil || !proto.Equal(was, same) {
		return nil, why("payload.why.edit_inexact")
	}
	now, err := c.read(was.Descriptor(), edited)
	if err != nil {
		return nil, why("payload.why.edit_schema", "schema", c.id, "name", was.Descriptor().FullName(), "error", oneLine(err))
	}
	fields, err := proto.MarshalOptions{Deterministic: true}.Marshal(now)
	if err != nil {
		return nil, why("payload.why.edit_schema", "schema", c.id, "name", was.Descriptor().FullName(), "error", oneLine(err))
	}
	return slices.Concat(place, fields), nil
}

func (c *protobufCodec) read(of protoreflect.MessageDescriptor, document []byte) (proto.Message, error) {
	m := dynamicpb.NewMessage(of)
	return m, protojson.UnmarshalOptions{Resolver: c.types}.Unmarshal(document, m)
}
