package web

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"sync"

	"oncemore/dlq"
	"oncemore/dlq/dialect"
	"oncemore/views"
	"oncemore/views/locale"
)

// shownHeader is how much of a header's value the table shows.
const shownHeader = 200

// dialects are the configured ones, else those of the binary.
func (s *Server) dialects() *dialect.Set {
	if s.Dialects != nil {
		return s.Dialects
	}
	return builtIn()
}

var builtIn = sync.OnceValue(func() *dialect.Set {
	set, err := dialect.Load()
	if err != nil {
		panic("web: embedded dialects: " + err.Error()) // a test of their package reads them
	}
	return set
})

// headersView shows the headers in broker order, and which of them a replay
// keeps. Of a dialect that is not loaded nothing is known to be kept.
func (s *Server) headersView(here locale.Locale, l dlq.LetterDetail, body dlq.Body, masked string) views.Headers {
	kept, err := dlq.KeptHeaders(s.dialects(), l.Dialect, body.Headers)
	if err != nil {
		kept = make([]bool, len(body.Headers))
	}
	v := views.Headers{Masked: masked, Rows: propertyRows(here, body, masked != "", deref(l.EventID))}
	for i, h := range body.Headers {
		row := views.HeaderRow{Name: strings.ToValidUTF8(h.Name, "\uFFFD"), Kept: kept[i]}
		value, hidden := h.Value, false
		if masked != "" {
			value, hidden = MaskBytes(h.Value, deref(l.EventID))
		}
		row.Value, row.Type = headerText(here, value)
		if hidden {
			row.Type = here.Text("headers.type_masked")
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// headerText reads a value the way brokers' clients write them: text, else a
// big-endian number of four or eight bytes, else bytes.
func headerText(here locale.Locale, value []byte) (text, kind string) {
	switch {
	case value == nil:
		return "", here.Text("headers.type_null")
	case len(value) == 0:
		return "", here.Text("headers.type_empty")
	case readable(value) != nil:
		return cutText(here, string(value), shownHeader), here.Text("headers.type_text")
	case len(value) == 4:
		return locale.Plain(int64(int32(binary.BigEndian.Uint32(value)))), "int32"
	case len(value) == 8:
		return locale.Plain(int64(binary.BigEndian.Uint64(value))), "int64"
	}
	return hex.EncodeToString(cutBytes(value, 32)), here.Text("headers.type_bytes", "size", here.Bytes(len(value)))
}
