package payload

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
)

// Encode writes an edited document back into the frame that a value came in, by
// the schema that wrote it: the id stays. It refuses, with the reason, what the
// schema does not allow, and a value whose document does not show all of it; the
// error is a *Why then.
func Encode(ctx context.Context, registry *Registry, original, edited []byte) ([]byte, error) {
	id, rest, ok := frame(original)
	switch {
	case !ok:
		return nil, why("payload.why.not_framed")
	case registry == nil:
		return nil, why("payload.why.no_registry", "schema", strconv.Itoa(id))
	}
	if err := json.Unmarshal(edited, new(json.RawMessage)); err != nil {
		return nil, why("payload.why.edit_json", "error", err.Error())
	}
	s, w := registry.schema(ctx, strconv.Itoa(id))
	if w != nil {
		return nil, w
	}
	out, w := s.codec.encode(rest, edited)
	if w != nil {
		return nil, w
	}
	return framed(id, out), nil
}

// Document is a framed value as the JSON that Encode takes back. The error is a
// *Why where there is none.
func Document(ctx context.Context, registry *Registry, value []byte) (document []byte, format string, err error) {
	id, rest, ok := frame(value)
	switch {
	case !ok:
		return nil, "", why("payload.why.not_framed")
	case registry == nil:
		return nil, "", why("payload.why.no_registry", "schema", strconv.Itoa(id))
	}
	s, w := registry.schema(ctx, strconv.Itoa(id))
	if w != nil {
		return nil, "", w
	}
	d, w := s.decode(rest)
	if d.document == nil {
		return nil, s.format, w
	}
	return bytes.Clone(d.document), s.format, nil
}
