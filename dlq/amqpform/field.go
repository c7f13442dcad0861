// Package amqpform keeps what a message of RabbitMQ carries besides its body:
// typed header fields, each in its bytes on the wire, and the basic properties.
package amqpform

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The types of a field, as RabbitMQ writes them.
const (
	Bool      byte = 't'
	Int8      byte = 'b'
	Uint8     byte = 'B'
	Int16     byte = 's'
	Uint16    byte = 'u'
	Int32     byte = 'I'
	Uint32    byte = 'i'
	Int64     byte = 'l'
	Float     byte = 'f'
	Double    byte = 'd'
	Decimal   byte = 'D'
	LongStr   byte = 'S'
	Bytes     byte = 'x'
	Array     byte = 'A'
	Timestamp byte = 'T'
	Table     byte = 'F'
	Void      byte = 'V'
)

var typeNames = map[byte]string{
	Bool: "bool", Int8: "int8", Uint8: "uint8", Int16: "int16", Uint16: "uint16", Int32: "int32", Uint32: "uint32", Int64: "int64",
	Float: "float", Double: "double", Decimal: "decimal", LongStr: "string", Bytes: "bytes", Array: "array",
	Timestamp: "timestamp", Table: "table", Void: "void",
}

// TypeName is the type's name in the API and on pages; "" for another byte.
func TypeName(kind byte) string { return typeNames[kind] }

// Field is a header field. Value is its bytes on the wire, without the type and,
// for strings, bytes, arrays and tables, without the length in front.
type Field struct {
	Name  string
	Type  byte
	Value []byte // nil for Void alone
}

// ErrBadField is returned for bytes that are no field, and for a value that the
// client does not write.
var ErrBadField = errors.New("amqpform: bad field")

// deepest bounds nesting, as the client does.
const deepest = 32

// Fields are the fields of a table by name: a table of the client has no order.
// Errors: ErrBadField.
func Fields(table amqp.Table) ([]Field, error) {
	fields := make([]Field, 0, len(table))
	for _, name := range slices.Sorted(maps.Keys(table)) {
		f := Field{Name: name}
		var err error
		if f.Type, f.Value, err = encode(table[name], 0); err != nil {
			return nil, fmt.Errorf("header %q: %w", name, err)
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// encode gives the type and the bytes of a value.
func encode(value any, depth int) (kind byte, b []byte, err error) {
	if depth > deepest {
		return 0, nil, fmt.Errorf("%w: nested too deep", ErrBadField)
	}
	be := binary.BigEndian
	switch v := value.(type) {
	case nil:
		return Void, nil, nil
	case bool:
		if v {
			return Bool, []byte{1}, nil
		}
		return Bool, []byte{0}, nil
	case int8:
		return Int8, []byte{byte(v)}, nil
	case byte:
		return Uint8, []byte{v}, nil
	case int16:
		return Int16, be.AppendUint16(nil, uint16(v)), nil
	case uint16:
		return Uint16, be.AppendUint16(nil, v), nil
	case int32:
		return Int32, be.AppendUint32(nil, uint32(v)), nil
	case int:
		return Int32, be.AppendUint32(nil, uint32(v)), nil // as the client writes it
	case uint32:
		return Uint32, be.AppendUint32(nil, v), nil
	case int64:
		return Int64, be.AppendUint64(nil, uint64(v)), nil
	case float32:
		return Float, be.AppendUint32(nil, math.Float32bits(v)), nil
	case float64:
		return Double, be.AppendUint64(nil, math.Float64bits(v)), nil
	case amqp.Decimal:
		return Decimal, be.AppendUint32([]byte{v.Scale}, uint32(v.Value)), nil
	case string:
		return LongStr, []byte(v), nil
	case []byte:
		return Bytes, append([]byte{}, v...), nil
	case time.Time:
		return Timestamp, be.AppendUint64(nil, uint64(v.Unix())), nil
	case []any:
		b, err = encodeArray(v, depth+1)
		return Array, b, err
	case amqp.Table:
		b, err = encodeTable(v, depth+1)
		return Table, b, err
	}
	return 0, nil, fmt.Errorf("%w: type %T", ErrBadField, value)
}

func encodeArray(items []any, depth int) ([]byte, error) {
	out := []byte{}
	for _, item := range items {
		kind, b, err := encode(item, depth)
		if err != nil {
			return nil, err
		}
		out = appendValue(out, kind, b)
	}
	return out, nil
}

func encodeTable(table amqp.Table, depth int) ([]byte, error) {
	out := []byte{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if len(name) > 255 {
			return nil, fmt.Errorf("%w: a name of %d bytes", ErrBadField, len(name))
		}
		kind, b, err := encode(table[name], depth)
		if err != nil {
			return nil, err
		}
		out = appendValue(append(append(out, byte(len(name))), name...), kind, b)
	}
	return out, nil
}

// counted are the types whose value has its length in front.
func counted(kind byte) bool {
	return kind == LongStr || kind == Bytes || kind == Array || kind == Table
}

func appendValue(out []byte, kind byte, b []byte) []byte {
	out = append(out, kind)
	if counted(kind) {
		out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
	}
	return append(out, b...)
}

// Decode is the value in the client's types, amqp.Table all the way down. Times
// are in UTC. Errors: ErrBadField.
func (f Field) Decode() (any, error) { return decode(f.Type, f.Value, 0) }

var fixed = map[byte]int{
	Bool: 1, Int8: 1, Uint8: 1, Int16: 2, Uint16: 2, Int32: 4, Uint32: 4, Int64: 8, Float: 4, Double: 8, Decimal: 5, Timestamp: 8, Void: 0,
}

func decode(kind byte, b []byte, depth int) (any, error) {
	if n, known := fixed[kind]; known && len(b) != n || depth > deepest {
		return nil, fmt.Errorf("%w: %d bytes of type %q", ErrBadField, len(b), kind)
	}
	be := binary.BigEndian
	switch kind {
	case Void:
		return nil, nil
	case Bool:
		return b[0] != 0, nil
	case Int8:
		return int8(b[0]), nil
	case Uint8:
		return b[0], nil
	case Int16:
		return int16(be.Uint16(b)), nil
	case Uint16:
		return be.Uint16(b), nil
	case Int32:
		return int32(be.Uint32(b)), nil
	case Uint32:
		return be.Uint32(b), nil
	case Int64:
		return int64(be.Uint64(b)), nil
	case Float:
		return math.Float32frombits(be.Uint32(b)), nil
	case Double:
		return math.Float64frombits(be.Uint64(b)), nil
	case Decimal:
		return amqp.Decimal{Scale: b[0], Value: int32(be.Uint32(b[1:]))}, nil
	case Timestamp:
		return time.Unix(int64(be.Uint64(b)), 0).UTC(), nil
	case LongStr:
		return string(b), nil
	case Bytes:
		return append([]byte{}, b...), nil
	case Array:
		return decodeArray(b, depth+1)
	case Table:
		return decodeTable(b, depth+1)
	}
	return nil, fmt.Errorf("%w: type %q", ErrBadField, kind)
}

func decodeArray(b []byte, depth int) ([]any, error) {
	items := []any{}
	for len(b) > 0 {
		kind, value, rest, err := cut(b)
		if err != nil {
			return nil, err
		}
		item, err := decode(kind, value, depth)
		if err != nil {
			return nil, err
		}
		items, b = append(items, item), rest
	}
	return items, nil
}

func decodeTable(b []byte, depth int) (amqp.Table, error) {
	table := amqp.Table{}
	for len(b) > 0 {
		n := int(b[0])
		if len(b) < 1+n {
			return nil, fmt.Errorf("%w: a name is cut off", ErrBadField)
		}
		name := string(b[1 : 1+n])
		kind, value, rest, err := cut(b[1+n:])
		if err != nil {
			return nil, err
		}
		if table[name], err = decode(kind, value, depth); err != nil {
			return nil, err
		}
		b = rest
	}
	return table, nil
}

// cut takes the field in front.
func cut(b []byte) (kind byte, value, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, nil, fmt.Errorf("%w: a type is missing", ErrBadField)
	}
	kind, b = b[0], b[1:]
	n, known := fixed[kind]
	if counted(kind) {
		if len(b) < 4 {
			return 0, nil, nil, fmt.Errorf("%w: a length is cut off", ErrBadField)
		}
		n, b, known = int(binary.BigEndian.Uint32(b)), b[4:], true
	}
	if !known || n > len(b) {
		return 0, nil, nil, fmt.Errorf("%w: type %q is cut off or unknown", ErrBadField, kind)
	}
	return kind, b[:n], b[n:], nil
}
