package rabbit

import (
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// frameOverhead is what a content header has besides its properties: the frame's
// own 8 bytes, class, weight, body size and flags.
const frameOverhead = 8 + 2 + 2 + 8 + 2

// headerSize is what the properties of a message take up on the wire. They must
// fit into one frame, else the broker closes the connection.
func headerSize(m amqp.Publishing) int {
	n := frameOverhead + 1 + 1 + 8 // delivery mode, priority, timestamp
	for _, s := range []string{m.ContentType, m.ContentEncoding, m.CorrelationId, m.ReplyTo, m.Expiration, m.MessageId, m.Type, m.UserId, m.AppId} {
		n += 1 + len(s)
	}
	return n + tableSize(m.Headers)
}

func tableSize(t amqp.Table) int {
	n := 4
	for name, value := range t {
		n += 1 + len(name) + fieldSize(value)
	}
	return n
}

// fieldSize includes the byte of the type.
func fieldSize(value any) int {
	switch v := value.(type) {
	case nil:
		return 1
	case bool, byte, int8:
		return 2
	case int16, uint16:
		return 3
	case amqp.Decimal:
		return 6
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case amqp.Table:
		return 1 + tableSize(v)
	case []any:
		n := 5
		for _, item := range v {
			n += fieldSize(item)
		}
		return n
	case int, int32, uint32, float32:
		return 5
	}
	return 9 // int64, float64, time.Time
}

const ellipsis = "..." // as Spring ends a text that it shortened

// shorten cuts text to at most n bytes, between characters; "" if n leaves nothing to say.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	if n <= len(ellipsis) {
		return ""
	}
	cut := n - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + ellipsis
}

// valid makes text fit for a header that other tools take for UTF-8.
func valid(text string) string { return strings.ToValidUTF8(text, "�") }
