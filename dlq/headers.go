package dlq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"oncemore/dlq/dialect"
)

// The headers that a replay sets on every message it sends. They are stripped
// before each sending and set again.
const (
	HeaderReplay = dialect.HeaderReplay // replay id, decimal
	HeaderItem   = dialect.HeaderItem   // item number, decimal
)

// ErrBadHeaders is returned for stored headers that cannot be decoded.
var ErrBadHeaders = errors.New("dlq: stored headers are damaged")

// EncodeHeaders writes headers in the form of dead_letter_body.headers: for each
// header, in order, the name's length as uvarint, the name, then 0 for a null
// value or the value's length plus one as uvarint, and the value. Nothing is
// lost: order, repeats, null and any bytes come back from DecodeHeaders. The
// result is never nil. Typed headers are in another form, see encodeTyped.
func EncodeHeaders(headers []Header) []byte {
	if slices.ContainsFunc(headers, Header.typed) {
		return encodeTyped(headers)
	}
	size := 0
	for _, h := range headers {
		size += len(h.Name) + len(h.Value) + 2*binary.MaxVarintLen32
	}
	out := make([]byte, 0, size)
	for _, h := range headers {
		out = binary.AppendUvarint(out, uint64(len(h.Name)))
		out = append(out, h.Name...)
		if h.Value == nil {
			out = append(out, 0)
			continue
		}
		out = binary.AppendUvarint(out, uint64(len(h.Value))+1)
		out = append(out, h.Value...)
	}
	return out
}

// DecodeHeaders reads what EncodeHeaders wrote. Values are slices of encoded.
// Errors: ErrBadHeaders.
func DecodeHeaders(encoded []byte) ([]Header, error) {
	if typed, ok := bytes.CutPrefix(encoded, typedMark); ok {
		return decodeTyped(typed)
	}
	var out []Header
	for rest := encoded; len(rest) > 0; {
		name, after, ok := cutCounted(rest, 0)
		if !ok {
			return nil, fmt.Errorf("%w: header %d", ErrBadHeaders, len(out))
		}
		h := Header{Name: string(name)}
		if len(after) > 0 && after[0] == 0 {
			out, rest = append(out, h), after[1:]
			continue
		}
		if h.Value, rest, ok = cutCounted(after, 1); !ok {
			return nil, fmt.Errorf("%w: value of header %d", ErrBadHeaders, len(out))
		}
		out = append(out, h)
	}
	return out, nil
}

// cutCounted takes as many bytes as the uvarint in front, less bias, says.
func cutCounted(b []byte, bias uint64) (value, rest []byte, ok bool) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n < bias || n-bias > uint64(len(b)-used) {
		return nil, nil, false
	}
	end := used + int(n-bias)
	return b[used:end:end], b[end:], true
}

// headerAdded names the header that a consumer of ours added to a dead letter,
// as its last: the event id of a message that carries it elsewhere.
const headerAdded = "kafka_dlt-added-header"

// KeptHeaders says of each header whether a replay of a letter of this dialect
// keeps it. Errors: dialect.ErrUnknown.
func KeptHeaders(set *dialect.Set, dialectID string, headers []Header) ([]bool, error) {
	strips, err := set.Strips(dialectID)
	if err != nil {
		return nil, err
	}
	kept := make([]bool, len(headers))
	added, addedTyped := "", addedByRabbit(headers)
	for i, h := range headers {
		if h.Name == headerAdded {
			added = string(h.Value)
		}
		last := i == len(headers)-1
		kept[i] = !strips(h.Name, h.Value) && !(last && added != "" && h.Name == added)
		if h.typed() {
			kept[i] = kept[i] && !brokersOwn(h.Name) && !(addedTyped != "" && h.Name == addedTyped)
		}
	}
	return kept, nil
}

// StripHeaders returns the headers that a replay of a letter of this dialect
// keeps, in order and byte for byte. Errors: dialect.ErrUnknown.
func StripHeaders(set *dialect.Set, dialectID string, headers []Header) ([]Header, error) {
	keeps, err := KeptHeaders(set, dialectID, headers)
	if err != nil {
		return nil, err
	}
	kept := make([]Header, 0, len(headers))
	for i, h := range headers {
		if keeps[i] {
			kept = append(kept, h)
		}
	}
	return kept, nil
}
