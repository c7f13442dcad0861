package payload

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	"github.com/google/uuid"
)

// headerFrame splits what a header says of the schema in place of a frame: a zero
// byte and an id, or a one and a GUID of 16 bytes. What follows, the place of a
// Protobuf message, belongs before the value.
func headerFrame(header []byte) (id string, place []byte, ok bool) {
	switch {
	case len(header) >= frameSize && header[0] == 0:
		return strconv.Itoa(int(binary.BigEndian.Uint32(header[1:]))), header[frameSize:], true
	case len(header) >= 1+len(uuid.UUID{}) && header[0] == 1:
		guid, rest := uuid.UUID(header[1:1+len(uuid.UUID{})]), header[1+len(uuid.UUID{}):]
		return guid.String(), rest, true
	}
	return "", nil, false
}

// foreignFrame names the frame of a registry that is not asked: Apicurio's, a zero
// and an id of eight bytes, whose first four are zero as no id of Confluent's is;
// and Glue's, a three, how it is compressed, and a schema version's GUID.
func foreignFrame(value []byte) *Why {
	const apicurio, glue = 1 + 8, 2 + 16
	switch {
	case len(value) > apicurio && value[0] == 0 && binary.BigEndian.Uint32(value[1:]) == 0:
		return why("payload.why.apicurio", "schema", strconv.FormatUint(binary.BigEndian.Uint64(value[1:]), 10))
	case len(value) > glue && value[0] == 3 && (value[1] == 0 || value[1] == 5):
		return why("payload.why.glue", "schema", uuid.UUID(value[2:glue]).String())
	}
	return nil
}

// frameSize is the magic byte zero and the schema's id.
const frameSize = 5

// frame splits a value of a schema registry: a zero byte, the schema's id in four
// bytes, big endian, and the rest.
func frame(value []byte) (id int, rest []byte, ok bool) {
	if len(value) <= frameSize || value[0] != 0 {
		return 0, nil, false
	}
	n := binary.BigEndian.Uint32(value[1:frameSize])
	if n > math.MaxInt32 {
		return 0, nil, false
	}
	return int(n), value[frameSize:], true
}

func framed(id int, rest []byte) []byte {
	out := append(make([]byte, 0, frameSize+len(rest)), 0)
	return append(binary.BigEndian.AppendUint32(out, uint32(id)), rest...)
}

var errIndexes = errors.New("the message's place in the schema is damaged")

// mostIndexes bounds how deep messages of a schema stand in each other.
const mostIndexes = 32

// indexes reads which message of a Protobuf schema follows: a count and that many
// places, as signed varints; a count of zero stands for the first message.
func indexes(b []byte) (place []int, rest []byte, err error) {
	count, used := binary.Varint(b)
	if used <= 0 || count < 0 || count > mostIndexes {
		return nil, nil, errIndexes
	}
	if b = b[used:]; count == 0 {
		return []int{0}, b, nil
	}
	for range count {
		i, used := binary.Varint(b)
		if used <= 0 || i < 0 || i > math.MaxInt32 {
			return nil, nil, errIndexes
		}
		place, b = append(place, int(i)), b[used:]
	}
	return place, b, nil
}
