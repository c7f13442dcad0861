package amqpform

import (
	amqp "github.com/rabbitmq/amqp091-go"
)

// frameOverhead is what a content header's frame has besides its properties:
// the frame's own 8 bytes, class, weight, body size and flags.
const frameOverhead = 8 + 2 + 2 + 8 + 2

// HeaderFrame is how many bytes the frame with a message's properties and headers
// takes. It has to fit into the connection's frame_max, else the broker closes
// the connection. Errors: ErrBadField.
func HeaderFrame(m amqp.Publishing) (int, error) {
	n := frameOverhead
	for _, s := range []string{m.ContentType, m.ContentEncoding, m.CorrelationId, m.ReplyTo, m.Expiration, m.MessageId, m.Type, m.UserId, m.AppId} {
		if s != "" {
			n += 1 + len(s)
		}
	}
	if m.DeliveryMode != 0 {
		n++
	}
	if m.Priority != 0 {
		n++
	}
	if !m.Timestamp.IsZero() {
		n += 8
	}
	if len(m.Headers) == 0 {
		return n, nil
	}
	table, err := encodeTable(m.Headers, 0)
	return n + 4 + len(table), err
}
