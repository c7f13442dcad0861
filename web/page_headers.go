package web

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"

	"oncemore/dlq"
	"oncemore/dlq/amqpform"
	"oncemore/dlq/dialect"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
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

// headerViews are the ways to read a header's bytes.
var headerViews = map[string]func(here locale.Locale, value []byte) (text, kind string, ok bool){
	"text": headerAsText, "number": headerAsNumber, "time": headerAsTime, "hex": headerAsHex,
}

// headerTabs are in the order in which they are offered; "" is what suits.
var headerTabs = []struct{ view, key string }{
	{"", "headers.as.auto"}, {"text", "headers.as.text"}, {"number", "headers.as.number"}, {"time", "headers.as.time"}, {"hex", "headers.as.hex"},
}

// headersView shows the headers in broker order, and which of them a replay
// keeps. Of a dialect that is not loaded nothing is known to be kept.
func (s *Server) headersView(here locale.Locale, at letterAddress, l dlq.LetterDetail, body dlq.Body, masked string) views.Headers {
	kept, err := dlq.KeptHeaders(s.dialects(), l.Dialect, body.Headers)
	if err != nil {
		kept = make([]bool, len(body.Headers))
	}
	v := views.Headers{Masked: masked, Rows: propertyRows(here, body, masked != "", deref(l.EventID))}
	for i, h := range body.Headers {
		row := headerRow(here, at.header, h, masked != "", deref(l.EventID))
		row.Kept = kept[i]
		v.Rows = append(v.Rows, row)
	}
	if len(v.Rows) == 0 {
		return v
	}
	for _, tab := range headerTabs {
		to := at
		to.header = tab.view
		v.Views = append(v.Views, ui.Tab{Label: here.Text(tab.key), Href: to.with(at.target, at.view), Current: tab.view == at.header})
	}
	return v
}

func headerRow(here locale.Locale, view string, h dlq.Header, hide bool, eventID string) views.HeaderRow {
	row := views.HeaderRow{Name: strings.ToValidUTF8(h.Name, "\uFFFD")}
	value := h.Value
	if h.Type != 0 { // of RabbitMQ, which says what it is
		value = []byte(h.Text())
	}
	hidden := false
	if hide {
		value, hidden = MaskBytes(value, eventID)
	}
	row.Value, row.Type = headerAs(here, view, h, value)
	if hidden {
		row.Type = here.Text("headers.type_masked")
	}
	return row
}

// headerAs reads the value as asked where it can be, else as suits it.
func headerAs(here locale.Locale, view string, h dlq.Header, value []byte) (text, kind string) {
	if h.Type == amqpform.Void {
		return "", here.Text("headers.type_null")
	}
	if read, asked := headerViews[view]; asked && value != nil && (h.Type == 0 || view == "hex" || view == "time") {
		if text, kind, ok := read(here, value); ok {
			return text, kind
		}
	}
	if h.Type != 0 {
		text, _ = headerText(here, value)
		return text, amqpform.TypeName(h.Type)
	}
	return headerText(here, value)
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
	case len(value) == 4 || len(value) == 8:
		text, kind, _ = headerAsNumber(here, value)
		return text, kind
	}
	text, kind, _ = headerAsHex(here, value)
	return text, kind
}

// headerAsText spells out what is no text.
func headerAsText(here locale.Locale, value []byte) (string, string, bool) {
	if readable(value) != nil {
		return cutText(here, string(value), shownHeader), here.Text("headers.type_text"), true
	}
	var b strings.Builder
	for _, t := range visible("", cutBytes(value, shownHeader)) {
		b.WriteString(t.Text)
	}
	return b.String(), here.Text("headers.type_text"), true
}

// headerNumber is digits, or a big-endian number of up to eight bytes that are no
// other text.
func headerNumber(value []byte) (n int64, kind string, ok bool) {
	if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
		return n, "", true
	}
	switch {
	case readable(value) != nil:
		return 0, "", false
	case len(value) == 4:
		return int64(int32(binary.BigEndian.Uint32(value))), "int32", true
	case len(value) == 8:
		return int64(binary.BigEndian.Uint64(value)), "int64", true
	case len(value) == 0 || len(value) > 8:
		return 0, "", false
	}
	n = int64(int8(value[0])) // Java's BigInteger: as few bytes as it needs
	for _, c := range value[1:] {
		n = n<<8 | int64(c)
	}
	return n, "int" + strconv.Itoa(8*len(value)), true
}

func headerAsNumber(here locale.Locale, value []byte) (text, kind string, ok bool) {
	n, kind, ok := headerNumber(value)
	if kind == "" {
		kind = here.Text("headers.type_text")
	}
	return locale.Plain(n), kind, ok
}

// headerAsTime takes milliseconds, seconds and .NET's ticks, by what lies between
// the years 2001 and 2100.
func headerAsTime(here locale.Locale, value []byte) (text, kind string, ok bool) {
	n, _, ok := headerNumber(value)
	if !ok {
		at, err := time.Parse(time.RFC3339Nano, string(value))
		return here.Exact(at), here.Text("headers.type_time"), err == nil
	}
	const first, last, ticks = 978_307_200, 4_102_444_800, 62_135_596_800
	var at time.Time
	switch {
	case n >= first && n < last:
		at = time.Unix(n, 0)
	case n >= first*1000 && n < last*1000:
		at = time.UnixMilli(n)
	case n >= (first+ticks)*1e7 && n < (last+ticks)*1e7:
		at = time.Unix(n/1e7-ticks, n%1e7*100)
	default:
		return "", "", false
	}
	return here.Exact(at), here.Text("headers.type_time"), true
}

func headerAsHex(here locale.Locale, value []byte) (text, kind string, ok bool) {
	text = hex.EncodeToString(cutBytes(value, 64))
	if len(value) > 64 {
		text += "…"
	}
	return text, here.Text("headers.type_bytes", "size", here.Bytes(len(value))), true
}
