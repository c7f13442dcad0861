package dialect

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// removeMember takes a member out of a JSON document and leaves every other byte
// as it is. It reports whether the member was there, and whether doc is JSON.
func removeMember(doc []byte, p path) (out []byte, removed, ok bool) {
	if !validJSON(doc) {
		return nil, false, false
	}
	out = doc
	for {
		dec := jsontext.NewDecoder(bytes.NewReader(out), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		from, to, found := findMember(dec, p)
		if !found {
			return out, removed, true
		}
		if from < 0 { // the first of its object: the comma behind it goes, too
			from = -from
			if rest := bytes.TrimLeft(out[to:], " \t\r\n"); len(rest) > 0 && rest[0] == ',' {
				to = len(out) - len(rest) + 1
			}
		}
		out, removed = append(append(make([]byte, 0, len(out)), out[:from]...), out[to:]...), true
	}
}

// findMember gives the bytes of the first member at the path, with the comma
// before it; a negative from marks the first member, which has none.
func findMember(dec *jsontext.Decoder, p path) (from, to int, found bool) {
	if dec.PeekKind() != '{' || p[0].kind != byKey {
		_ = dec.SkipValue()
		return 0, 0, false
	}
	_, _ = dec.ReadToken()
	for first := true; dec.PeekKind() == '"'; first = false {
		begin := int(dec.InputOffset())
		name, err := dec.ReadToken()
		if err != nil {
			return 0, 0, false
		}
		switch match := name.String() == p[0].key; {
		case match && len(p) == 1:
			if dec.SkipValue() != nil {
				return 0, 0, false
			}
			if first {
				begin = -begin
			}
			return begin, int(dec.InputOffset()), true
		case match:
			if from, to, found = findMember(dec, p[1:]); found {
				return from, to, true
			}
		default:
			if dec.SkipValue() != nil {
				return 0, 0, false
			}
		}
	}
	_, _ = dec.ReadToken()
	return 0, 0, false
}
