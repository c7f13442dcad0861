package dlq

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// cursorVersion changes when the layout of a cursor does.
const cursorVersion = 1

// The directions of a cursor.
const (
	older byte = iota + 1 // what comes after the place in the list
	newer                 // what comes before it
)

// cursor is a place in a list. It belongs to one filter: used with another it is
// refused, because the place would mean nothing there.
type cursor struct {
	direction byte
	sort      int64 // sort value of the last row; 0 in lists by id alone
	id        uuid.UUID
}

var errBadCursor = &ErrBadFilter{Field: "cursor", Reason: "is not one that this list gave"}

// encode makes the opaque text of a cursor for a filter.
func (c cursor) encode(filter any) string {
	b := []byte{cursorVersion, c.direction}
	b = append(b, filterHash(filter)...)
	b = binary.BigEndian.AppendUint64(b, uint64(c.sort))
	b = append(b, c.id[:]...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeCursor reads what encode made for the same filter. Anything else is
// *ErrBadFilter.
func decodeCursor(text string, filter any) (cursor, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(text) != 46 || len(b) != 34 || // the decoder skips line breaks
		b[0] != cursorVersion || (b[1] != older && b[1] != newer) {
		return cursor{}, errBadCursor
	}
	if string(b[2:10]) != string(filterHash(filter)) {
		return cursor{}, &ErrBadFilter{Field: "cursor", Reason: "belongs to a list with other filters"}
	}
	return cursor{
		direction: b[1],
		sort:      int64(binary.BigEndian.Uint64(b[10:18])),
		id:        uuid.UUID(b[18:34]),
	}, nil
}

func filterHash(filter any) []byte {
	b, err := json.Marshal(filter)
	if err != nil {
		panic(fmt.Sprintf("dlq: filter %T: %v", filter, err)) // plain structs only
	}
	sum := sha256.Sum256(b)
	return sum[:8]
}

// rows is the page's size after defaults. Errors: *ErrBadFilter.
func (p Page) rows() (int, error) {
	switch {
	case p.Limit == 0:
		return 50, nil
	case p.Limit < 1 || p.Limit > 200:
		return 0, &ErrBadFilter{Field: "limit", Reason: "must be 1 to 200"}
	}
	return p.Limit, nil
}

// filterText checks that a filter's value can be asked for at all: PostgreSQL takes
// neither zero bytes nor invalid UTF-8 in text.
func filterText(field, value string) error {
	if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
		return &ErrBadFilter{Field: field, Reason: "must be UTF-8 text without zero bytes"}
	}
	return nil
}
