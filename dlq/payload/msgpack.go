package payload

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// decodeMsgPack reads MessagePack, where the message says that it is that or the
// bytes cannot be text and are exactly one map or array.
func (o *Opened) decodeMsgPack(contentType string) {
	said := strings.Contains(strings.ToLower(contentType), "msgpack")
	if !said && (!startsContainer(o.Inflated) || utf8.Valid(o.Inflated)) || len(o.Inflated) == 0 {
		return
	}
	w := &msgWriter{}
	rest, err := w.value(o.Inflated, 0)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes are left over", len(rest))
	}
	switch {
	case err == nil:
		o.Document, o.format = w.out, MsgPack
		o.Steps = append(o.Steps, Step{Kind: MsgPack, Size: len(w.out)})
	case said:
		o.problem(why("payload.why.msgpack", "error", oneLine(err)))
	}
}

func startsContainer(b []byte) bool {
	if len(b) < 2 {
		return false
	}
	c := b[0]
	return c >= 0x80 && c <= 0x9f || c >= 0xdc && c <= 0xdf
}

// msgWriter writes values as JSON: keys keep their order and repeats, numbers all
// digits; bytes and extensions are objects that say so.
type msgWriter struct{ out []byte }

// deepestMsg bounds nesting.
const deepestMsg = 200

var errDeep = errors.New("it is nested too deep")

func (w *msgWriter) value(b []byte, depth int) (rest []byte, err error) {
	switch {
	case depth > deepestMsg:
		return nil, errDeep
	case len(w.out) > MaxInflated:
		return nil, errTooLarge
	}
	switch msgp.NextType(b) {
	case msgp.NilType:
		w.out = append(w.out, "null"...)
		return msgp.ReadNilBytes(b)
	case msgp.BoolType:
		v, rest, err := msgp.ReadBoolBytes(b)
		w.out = strconv.AppendBool(w.out, v)
		return rest, err
	case msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		w.out = strconv.AppendInt(w.out, v, 10)
		return rest, err
	case msgp.UintType:
		v, rest, err := msgp.ReadUint64Bytes(b)
		w.out = strconv.AppendUint(w.out, v, 10)
		return rest, err
	case msgp.Float32Type:
		v, rest, err := msgp.ReadFloat32Bytes(b)
		w.float(float64(v), 32)
		return rest, err
	case msgp.Float64Type:
		v, rest, err := msgp.ReadFloat64Bytes(b)
		w.float(v, 64)
		return rest, err
	case msgp.StrType:
		v, rest, err := msgp.ReadStringZC(b)
		w.text(string(v))
		return rest, err
	case msgp.BinType:
		v, rest, err := msgp.ReadBytesZC(b)
		w.tagged("$binary", base64.StdEncoding.EncodeToString(v))
		return rest, err
	case msgp.ArrayType:
		return w.array(b, depth)
	case msgp.MapType:
		return w.object(b, depth)
	}
	return w.extension(b)
}

func (w *msgWriter) float(f float64, bits int) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		w.text(strconv.FormatFloat(f, 'g', -1, bits))
		return
	}
	w.out = strconv.AppendFloat(w.out, f, 'g', -1, bits)
}

func (w *msgWriter) text(s string) { w.out = appendText(w.out, s) }

func (w *msgWriter) tagged(tag, text string) {
	w.out = append(w.out, `{"`+tag+`":`...)
	w.text(text)
	w.out = append(w.out, '}')
}

func (w *msgWriter) array(b []byte, depth int) (rest []byte, err error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	w.out = append(w.out, '[')
	for i := uint32(0); i < n && err == nil; i++ {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		rest, err = w.value(rest, depth+1)
	}
	w.out = append(w.out, ']')
	return rest, err
}

func (w *msgWriter) object(b []byte, depth int) (rest []byte, err error) {
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	w.out = append(w.out, '{')
	for i := uint32(0); i < n && err == nil; i++ {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if rest, err = w.key(rest, depth+1); err != nil {
			break
		}
		w.out = append(w.out, ':')
		rest, err = w.value(rest, depth+1)
	}
	w.out = append(w.out, '}')
	return rest, err
}

// key writes a key that is no text as the text of its JSON. Keys in keys double
// with every level, since each quotes the one below.
func (w *msgWriter) key(b []byte, depth int) (rest []byte, err error) {
	begin := len(w.out)
	if rest, err = w.value(b, depth); err != nil {
		return nil, err
	}
	if len(w.out) > MaxInflated {
		return nil, errTooLarge
	}
	if written := string(w.out[begin:]); written[0] != '"' {
		w.out = w.out[:begin]
		w.text(written)
	}
	return rest, nil
}

func (w *msgWriter) extension(b []byte) ([]byte, error) {
	var ext msgp.RawExtension
	rest, err := msgp.ReadExtensionBytes(b, &ext)
	var other msgp.ExtensionTypeError
	if errors.As(err, &other) { // it wants to be told the type first
		ext.Type = other.Got
		rest, err = msgp.ReadExtensionBytes(b, &ext)
	}
	if err != nil {
		return nil, err
	}
	if at, after, err := msgp.ReadTimeBytes(b); err == nil && ext.Type == msgp.MsgTimeExtension {
		w.tagged("$time", at.UTC().Format(time.RFC3339Nano))
		return after, nil
	}
	w.out = append(w.out, `{"$ext":`...)
	w.out = strconv.AppendInt(w.out, int64(ext.Type), 10)
	w.out = append(w.out, `,"data":`...)
	w.text(base64.StdEncoding.EncodeToString(ext.Data))
	w.out = append(w.out, '}')
	return rest, nil
}
