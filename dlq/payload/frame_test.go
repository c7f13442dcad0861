package payload_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/sr"

	"oncemore/dlq/payload"
)

// Confluent's newer serializers name the schema in a header, by its GUID or id,
// and leave the value without a frame.
func TestASchemaNamedInAHeader(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.seedAvro()
	client, err := sr.NewClient(sr.URLs(b.fake.URL()))
	if err != nil {
		t.Fatal(err)
	}
	known, err := client.SchemaByVersion(t.Context(), "order", 1)
	if err != nil || known.GUID == "" {
		t.Fatalf("%+v, %v", known, err)
	}
	guid := uuid.MustParse(known.GUID)
	for name, header := range map[string][]byte{"id": binary.BigEndian.AppendUint32([]byte{0}, id), "guid": append([]byte{1}, guid[:]...)} {
		o := open(t, payload.Input{Value: orderBytes(t), SchemaHeader: header, Registry: b.Registry})
		if string(o.Document) != orderJSON || o.Best() != payload.Avro || len(o.Problems) != 0 {
			t.Errorf("%s: %s, %+v", name, o.Document, o.Problems)
		}
	}
	blind := open(t, payload.Input{Value: orderBytes(t), SchemaHeader: append([]byte{1}, guid[:]...)})
	if len(blind.Problems) != 1 || blind.Problems[0].Key != "payload.why.no_registry" || !strings.Contains(blind.Problems[0].Text, known.GUID) {
		t.Errorf("without a registry: %+v", blind.Problems)
	}
	other := uuid.New()
	if gone := open(t, payload.Input{Value: orderBytes(t), SchemaHeader: append([]byte{1}, other[:]...), Registry: b.Registry}); len(gone.Problems) != 1 || gone.Problems[0].Key != "payload.why.schema_missing" {
		t.Errorf("a schema that nobody has: %+v", gone.Problems)
	}
	if odd := open(t, payload.Input{Value: []byte(`{"a":1}`), SchemaHeader: []byte("17"), Registry: b.Registry}); len(odd.Problems) != 0 || odd.Best() != payload.JSON {
		t.Errorf("a header of somebody else: %+v", odd.Problems)
	}
}

// The place of a Protobuf message stands in the header too.
func TestAProtobufSchemaNamedInAHeader(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fake.SeedSchema("pair", 1, 61, sr.Schema{Schema: `syntax = "proto3"; message A { string a = 1; } message B { string b = 1; }`, Type: sr.TypeProtobuf})
	header := append(binary.BigEndian.AppendUint32([]byte{0}, 61), 2, 2) // one place: the second message
	if o := open(t, payload.Input{Value: []byte{0x0a, 1, 'x'}, SchemaHeader: header, Registry: b.Registry}); string(o.Document) != `{"b":"x"}` {
		t.Errorf("%s, %+v", o.Document, o.Problems)
	}
}

// Frames of registries that are not asked are named, whatever is configured, and
// the bytes stay to be seen.
func TestFramesOfOtherRegistriesAreNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	version := uuid.MustParse("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
	for want, value := range map[string][]byte{
		"Apicurio registry, schema 4711":     slices.Concat([]byte{0}, binary.BigEndian.AppendUint64(nil, 4711), []byte("rest")),
		"schema version " + version.String(): slices.Concat([]byte{3, 0}, version[:], []byte("rest")),
	} {
		for _, registry := range []*payload.Registry{nil, b.Registry} {
			o := open(t, payload.Input{Value: value, Registry: registry})
			if len(o.Problems) != 1 || !strings.Contains(o.Problems[0].Text, want) || o.Document != nil {
				t.Errorf("%q: %+v", want, o.Problems)
			}
		}
	}
	if b.asked.Load() != 0 {
		t.Error("the registry was asked about another one's schema")
	}
	if o := open(t, payload.Input{Value: []byte{3, 1, 2}}); len(o.Problems) != 0 {
		t.Errorf("three bytes: %+v", o.Problems)
	}
}
