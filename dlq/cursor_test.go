package dlq

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

func TestCursorComesBackAsItWas(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := cursor{
			direction: rapid.SampledFrom([]byte{older, newer}).Draw(t, "direction"),
			sort:      rapid.Int64().Draw(t, "sort"),
			id:        uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")),
		}
		f := LetterFilter{Group: rapid.String().Draw(t, "group"), State: State(rapid.IntRange(0, 4).Draw(t, "state"))}
		got, err := decodeCursor(c.encode(f), f)
		if err != nil || got != c {
			t.Fatalf("%+v became %+v, %v", c, got, err)
		}
		other := f
		other.Cluster += "x"
		var bad *ErrBadFilter
		if _, err := decodeCursor(c.encode(f), other); !errors.As(err, &bad) {
			t.Fatalf("a cursor of another filter: %v", err)
		}
	})
}

func FuzzCursorRefusesGarbage(f *testing.F) {
	f.Add("")
	f.Add("\x00zz")
	f.Add("AQH1osvMC9qSpA0000\r000000000000000000000000000A")
	f.Add(cursor{direction: older, id: uuid.Max}.encode(LetterFilter{}))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := decodeCursor(text, LetterFilter{})
		var bad *ErrBadFilter
		switch {
		case err != nil && !errors.As(err, &bad):
			t.Errorf("%q: %v is no *ErrBadFilter", text, err)
		case err == nil && c.encode(LetterFilter{}) != text:
			t.Errorf("%q is another spelling of %+v", text, c)
		}
	})
}
