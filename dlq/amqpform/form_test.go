package amqpform

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// every has a value of each type, deep and wide.
func every() amqp.Table {
	return amqp.Table{
		"bool": true, "int8": int8(-7), "uint8": byte(200), "int16": int16(-300), "uint16": uint16(65535), "int32": int32(math.MinInt32),
		"uint32": uint32(math.MaxUint32), "int64": int64(math.MaxInt64), "float": float32(1.5), "double": math.Pi,
		"decimal": amqp.Decimal{Scale: 2, Value: -12345}, "string": "caf\u00e9 \x00\xff", "empty": "", "bytes": []byte{0, 1, 255}, "none": []byte{},
		"time": time.Unix(1_796_000_000, 0).UTC(), "void": nil, "": "no name",
		"array": []any{int32(1), "a", nil, amqp.Table{"k": []any{}}}, "table": amqp.Table{"inner": amqp.Table{"x": int64(1)}, "empty": amqp.Table{}},
	}
}

func TestFieldsComeBack(t *testing.T) {
	t.Parallel()
	fields, err := Fields(every())
	if err != nil {
		t.Fatal(err)
	}
	d, err := Delivery(Envelope(amqp.Delivery{}), fields, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(d.Headers, every()) {
		t.Errorf("came back as\n%#v", d.Headers)
	}
	again, err := Fields(d.Headers)
	if err != nil || !reflect.DeepEqual(again, fields) {
		t.Errorf("a second round differs: %v", err)
	}
}

func TestEnvelopeComesBack(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]amqp.Delivery{
		"nothing": {},
		"everything": {Exchange: "orders", RoutingKey: "a.b", ContentType: "application/json", ContentEncoding: "gzip", CorrelationId: "c",
			ReplyTo: "r", Expiration: "60000", MessageId: "m", Type: "t", UserId: "u", AppId: "a", DeliveryMode: 2, Priority: 9,
			Timestamp: time.Unix(1_796_000_000, 0).UTC()},
		"the epoch": {Timestamp: time.Unix(0, 0).UTC()},
	} {
		got, err := ReadEnvelope(Envelope(d))
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestDamagedFormsAreErrors(t *testing.T) {
	t.Parallel()
	whole := Envelope(amqp.Delivery{Exchange: "orders", Timestamp: time.Unix(1, 0)})
	for n := range whole {
		if _, err := ReadEnvelope(whole[:n]); !errors.Is(err, ErrBadEnvelope) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	fields, err := Fields(amqp.Table{"t": every()})
	if err != nil {
		t.Fatal(err)
	}
	f := fields[0]
	failed := 0
	for n := range f.Value {
		if _, err := (Field{Type: Table, Value: f.Value[:n]}).Decode(); err != nil {
			failed++
		}
	}
	if failed < len(f.Value)/2 {
		t.Errorf("only %d of %d cuts were noticed", failed, len(f.Value))
	}
	if _, err := Fields(amqp.Table{"m": map[string]any{}}); !errors.Is(err, ErrBadField) {
		t.Errorf("a map that the client refuses: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	fields, _ := Fields(every())
	for _, x := range fields {
		f.Add(x.Type, x.Value)
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		x := Field{Name: "x", Type: kind, Value: b}
		value, err := x.Decode()
		_, _ = x.Text(), x.JSON()
		if err != nil {
			return
		}
		again, err := Fields(amqp.Table{"x": value})
		if err != nil {
			t.Fatalf("%#v does not encode: %v", value, err)
		}
		if kind != Table && kind != Array && kind != Bool && !bytes.Equal(again[0].Value, b) {
			t.Fatalf("%q became %q", b, again[0].Value)
		}
	})
}

func TestTextShowsWhatIsThere(t *testing.T) {
	t.Parallel()
	fields, err := Fields(every())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"int64": "9223372036854775807", "decimal": "-123.45", "void": "", "bytes": "AAH/", "bool": "true",
		"array": `[1,"a",null,{"k":[]}]`, "time": "2026-11-30T00:53:20Z", "float": "1.5"}
	for _, f := range fields {
		if text, ok := want[f.Name]; ok && f.Text() != text {
			t.Errorf("%s (%s) is shown as %q, want %q", f.Name, TypeName(f.Type), f.Text(), text)
		}
		if TypeName(f.Type) == "" {
			t.Errorf("type %q has no name", f.Type)
		}
	}
	if nan := (Field{Type: Double, Value: []byte{0x7f, 0xf8, 0, 0, 0, 0, 0, 1}}); nan.JSON() != "NaN" {
		t.Errorf("not a number is %v", nan.JSON())
	}
}

func TestHeaderFrameCountsEveryByte(t *testing.T) {
	t.Parallel()
	small, err := HeaderFrame(amqp.Publishing{})
	if err != nil || small != frameOverhead {
		t.Errorf("a bare message: %d, %v", small, err)
	}
	n, err := HeaderFrame(amqp.Publishing{MessageId: "m-1", DeliveryMode: 2, Headers: amqp.Table{"k": strings.Repeat("x", 100)}})
	if want := frameOverhead + 4 + 1 + 4 + 1 + 1 + 1 + 4 + 100; err != nil || n != want {
		t.Errorf("%d bytes, want %d, %v", n, want, err)
	}
}
