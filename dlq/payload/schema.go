package payload

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"
)

// schema decodes and encodes the values of one id.
type schema struct {
	id     string
	format string
	codec  codec
}

// codec knows one kind of schema.
type codec interface {
	// decode makes JSON of the bytes behind the frame. A document may come with a
	// remark on it.
	decode(rest []byte) (decoded, error)
	// encode makes the bytes behind the frame of an edited document. original is
	// the value's.
	encode(original, edited []byte) ([]byte, *Why)
}

type decoded struct {
	document []byte // JSON
	name     string // of the record or message
	remark   *Why   // what the document does not show
}

// decode returns what could be read, with a remark, or why nothing could.
func (s *schema) decode(rest []byte) (decoded, *Why) {
	d, err := s.codec.decode(rest)
	if err != nil {
		return decoded{}, why("payload.why.decode", "schema", s.id, "name", d.name, "error", oneLine(err))
	}
	return d, d.remark
}

// compile reads a schema of the registry.
func compile(ctx context.Context, id string, text sr.Schema, refs []reference) (*schema, error) {
	s := &schema{id: id}
	var err error
	switch text.Type {
	case sr.TypeAvro:
		s.format = Avro
		s.codec, err = newAvro(id, text.Schema, refs)
	case sr.TypeProtobuf:
		s.format = Protobuf
		s.codec, err = newProtobuf(ctx, id, text.Schema, refs)
	case sr.TypeJSON:
		s.format = JSONSchema
		s.codec, err = newJSONSchema(id, text.Schema, refs)
	default:
		return nil, fmt.Errorf("its type is %s", text.Type)
	}
	return s, err
}

// longestError bounds what is quoted of a library.
const longestError = 300

func oneLine(err error) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "\uFFFD")), " ")
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + "…"
	}
	return text
}
