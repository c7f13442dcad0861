package dlq

import (
	"encoding/binary"
	"fmt"
	"strings"

	"oncemore/dlq/amqpform"
)

func (h Header) typed() bool { return h.Type != 0 }

// Field is the header as a field of RabbitMQ.
func (h Header) Field() amqpform.Field {
	return amqpform.Field{Name: h.Name, Type: h.Type, Value: h.Value}
}

// Text is the value for people: of a typed header what it says, else its bytes.
func (h Header) Text() string {
	if h.typed() {
		return h.Field().Text()
	}
	return string(h.Value)
}

// typedMark begins headers that have types: a name's length of zero written in a
// way that EncodeHeaders never writes one.
var typedMark = []byte{0x80, 0x00, 1}

// encodeTyped writes the mark and for each header the name's length as uvarint,
// the name, the type, the value's length as uvarint, and the value.
func encodeTyped(headers []Header) []byte {
	out := append([]byte{}, typedMark...)
	for _, h := range headers {
		out = binary.AppendUvarint(out, uint64(len(h.Name)))
		out = append(append(out, h.Name...), h.Type)
		out = binary.AppendUvarint(out, uint64(len(h.Value)))
		out = append(out, h.Value...)
	}
	return out
}

func decodeTyped(rest []byte) ([]Header, error) {
	var out []Header
	for len(rest) > 0 {
		name, after, ok := cutCounted(rest, 0)
		if !ok || len(after) == 0 {
			return nil, fmt.Errorf("%w: header %d", ErrBadHeaders, len(out))
		}
		h := Header{Name: string(name), Type: after[0]}
		if h.Value, rest, ok = cutCounted(after[1:], 0); !ok {
			return nil, fmt.Errorf("%w: value of header %d", ErrBadHeaders, len(out))
		}
		if h.Type == amqpform.Void {
			h.Value = nil
		}
		out = append(out, h)
	}
	return out, nil
}

// typedHeaders are the fields of a message as headers.
func typedHeaders(fields []amqpform.Field) []Header {
	headers := make([]Header, len(fields))
	for i, f := range fields {
		headers[i] = Header{Name: f.Name, Type: f.Type, Value: f.Value}
	}
	return headers
}

// fieldsOf is the reverse of typedHeaders. An untyped header, such as one that
// somebody added in an edit, is a string.
func fieldsOf(headers []Header) []amqpform.Field {
	fields := make([]amqpform.Field, len(headers))
	for i, h := range headers {
		fields[i] = h.Field()
		if !h.typed() {
			fields[i].Type = amqpform.LongStr
		}
	}
	return fields
}

// brokersOwn are headers that RabbitMQ writes, or by which it routes a message
// once more: no replay carries them, whatever the dialect says.
func brokersOwn(name string) bool {
	switch name {
	case "x-death", "x-delivery-count", "x-acquired-count", "x-opt-deaths", "CC", "BCC":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// rabbitAdded names the header that a consumer of ours put on a letter of
// RabbitMQ whose message carries its id elsewhere.
const rabbitAdded = "x-original-addedHeader"

func addedByRabbit(headers []Header) string {
	for _, h := range headers {
		if h.Name == rabbitAdded && h.typed() {
			return string(h.Value)
		}
	}
	return ""
}
