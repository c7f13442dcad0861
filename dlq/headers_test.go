package dlq

import (
	"bytes"
	"errors"
	"testing"

	"oncemore/dlq/dialect"
)

func TestHeadersRoundTrip(t *testing.T) {
	t.Parallel()
	for _, headers := range [][]Header{
		nil,
		{{Name: "a", Value: nil}},
		{{Name: "", Value: []byte{}}},
		{{Name: "a", Value: []byte("1")}, {Name: "b", Value: nil}, {Name: "a", Value: []byte{}}, {Name: "a", Value: []byte{0}}, {Name: "\xff\x00", Value: bytes.Repeat([]byte{7}, 300_000)}},
	} {
		encoded := EncodeHeaders(headers)
		if encoded == nil {
			t.Error("encoded to nil")
		}
		decoded, err := DecodeHeaders(encoded)
		if err != nil {
			t.Fatal(err)
		}
		sameHeaders(t, decoded, headers)
	}
}

func sameHeaders(t *testing.T, got, want []Header) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d headers, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Name != want[i].Name || !bytes.Equal(got[i].Value, want[i].Value) || (got[i].Value == nil) != (want[i].Value == nil) {
			t.Errorf("header %d is %.40q, want %.40q", i, got[i], want[i])
		}
	}
}

func FuzzDecodeHeaders(f *testing.F) {
	f.Add(EncodeHeaders([]Header{{Name: "a", Value: []byte("1")}, {Name: "b", Value: nil}, {Name: "", Value: []byte{}}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Add([]byte{1, 'a'})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		headers, err := DecodeHeaders(encoded)
		if err != nil {
			if !errors.Is(err, ErrBadHeaders) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeHeaders(EncodeHeaders(headers))
		if err != nil {
			t.Fatal(err)
		}
		sameHeaders(t, again, headers)
	})
}

func TestDamagedHeadersAreAnError(t *testing.T) {
	t.Parallel()
	whole := EncodeHeaders([]Header{{Name: "name", Value: []byte("value")}})
	for n := 1; n < len(whole); n++ {
		if _, err := DecodeHeaders(whole[:n]); !errors.Is(err, ErrBadHeaders) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}

func TestStripHeaders(t *testing.T) {
	t.Parallel()
	set := loadDialects(t)
	left, err := StripHeaders(set, "spring-kafka-dlpr", []Header{{Name: "a", Value: nil}, {Name: "kafka_dlt-x", Value: []byte("y")}, {Name: HeaderReplay, Value: []byte("1")}, {Name: "a", Value: []byte{}}})
	if err != nil {
		t.Fatal(err)
	}
	sameHeaders(t, left, []Header{{Name: "a", Value: nil}, {Name: "a", Value: []byte{}}})
	id := Header{Name: "event-id", Value: []byte("e-1")}
	for name, c := range map[string]struct{ headers, want []Header }{
		"carried":           {[]Header{id, {Name: "kafka_dlt-x", Value: nil}}, []Header{id}},
		"added":             {[]Header{{Name: "kafka_dlt-x", Value: nil}, {Name: headerAdded, Value: []byte("event-id")}, id}, nil},
		"carried and added": {[]Header{id, {Name: headerAdded, Value: []byte("event-id")}, id}, []Header{id}},
		"marked only":       {[]Header{id, {Name: headerAdded, Value: []byte("event-id")}}, []Header{id}},
		"another is last":   {[]Header{{Name: headerAdded, Value: []byte("event-id")}, id, {Name: "a", Value: nil}}, []Header{id, {Name: "a", Value: nil}}},
	} {
		left, err := StripHeaders(set, "spring-kafka-dlpr", c.headers)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(name)
		sameHeaders(t, left, c.want)
	}
	if _, err := StripHeaders(set, "gone", nil); !errors.Is(err, dialect.ErrUnknown) {
		t.Errorf("got %v", err)
	}
}
