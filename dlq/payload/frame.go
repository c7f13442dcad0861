package payload

import (
	"encoding/binary"
	"errors"
	"math"
)

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
