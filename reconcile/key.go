package reconcile

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"
)

// kind is how a key's column is compared. Columns of different types on the
// two sides meet in one kind.
type kind int

const (
	kindText  kind = iota // UTF-8, by bytes
	kindInt               // 64 bits, signed or unsigned
	kindUUID              // as uuid, binary(16) or text of any case
	kindBytes             // by bytes, shown in hex
)

// A key is encoded so that bytes.Compare orders as both engines are asked to:
// component by component, a shorter text before its continuation, and no two
// different keys alike. Text and bytes: 0x00 becomes 0x00 0xff, the end is 0x00
// 0x00. Integers: nine bytes, the first tells negative from positive. UUIDs: 16.
// A key with a NULL component is no key: its rows are counted apart.

func appendBytes(key, b []byte) []byte {
	for _, c := range b {
		key = append(key, c)
		if c == 0 {
			key = append(key, 0xff)
		}
	}
	return append(key, 0, 0)
}

func appendInt(key []byte, v int64) []byte {
	sign := byte(1)
	if v < 0 {
		sign = 0
	}
	return binary.BigEndian.AppendUint64(append(key, sign), uint64(v))
}

func appendUint(key []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(key, 1), v)
}

// appendDigits takes an integer as text.
func appendDigits(key, digits []byte) ([]byte, error) {
	if v, err := strconv.ParseInt(string(digits), 10, 64); err == nil {
		return appendInt(key, v), nil
	}
	v, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("key %q is not an integer of 64 bits", digits)
	}
	return appendUint(key, v), nil
}

// errOtherKey is a key that was encoded from columns of other types.
var errOtherKey = errors.New("reconcile: the key is of another type")

// decodeKey gives a key's components as text: integers in decimal, UUIDs in
// their usual form, bytes in hex.
func decodeKey(kinds []kind, key []byte) ([]string, error) {
	parts := make([]string, 0, len(kinds))
	for _, k := range kinds {
		part, rest, err := decodePart(k, key)
		if err != nil {
			return nil, err
		}
		parts, key = append(parts, part), rest
	}
	if len(key) > 0 {
		return nil, errOtherKey
	}
	return parts, nil
}

func decodePart(k kind, key []byte) (part string, rest []byte, err error) {
	switch k {
	case kindInt:
		if len(key) < 9 || key[0] > 1 {
			return "", nil, errOtherKey
		}
		v := binary.BigEndian.Uint64(key[1:9])
		if key[0] == 0 {
			return strconv.FormatInt(int64(v), 10), key[9:], nil
		}
		return strconv.FormatUint(v, 10), key[9:], nil
	case kindUUID:
		if len(key) < 16 {
			return "", nil, errOtherKey
		}
		return uuid.UUID(key[:16]).String(), key[16:], nil
	}
	b, rest, err := unescape(key)
	if k == kindBytes {
		return hex.EncodeToString(b), rest, err
	}
	return string(b), rest, err
}

func unescape(key []byte) (b, rest []byte, err error) {
	for i := 0; i+1 < len(key); i++ {
		switch {
		case key[i] != 0:
			b = append(b, key[i])
		case key[i+1] == 0:
			return b, key[i+2:], nil
		default:
			b = append(b, 0)
			i++
		}
	}
	return nil, nil, errOtherKey
}

// encodeKey is the way back, for a key that a person or a stored break names.
func encodeKey(kinds []kind, parts []string) ([]byte, error) {
	if len(parts) != len(kinds) {
		return nil, fmt.Errorf("key has %d parts, not %d", len(parts), len(kinds))
	}
	var key []byte
	var err error
	for i, part := range parts {
		if key, err = appendPart(key, kinds[i], part); err != nil {
			return nil, err
		}
	}
	return key, nil
}

func appendPart(key []byte, k kind, part string) ([]byte, error) {
	switch k {
	case kindInt:
		return appendDigits(key, []byte(part))
	case kindUUID:
		id, err := uuid.Parse(part)
		if err != nil {
			return nil, fmt.Errorf("key %q is not a UUID: %w", part, err)
		}
		return append(key, id[:]...), nil
	case kindBytes:
		b, err := hex.DecodeString(part)
		if err != nil {
			return nil, fmt.Errorf("key %q is not in hex: %w", part, err)
		}
		return appendBytes(key, b), nil
	}
	return appendBytes(key, []byte(part)), nil
}
