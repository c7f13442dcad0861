package amqpform

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ErrBadEnvelope is returned for stored properties that cannot be read.
var ErrBadEnvelope = errors.New("amqpform: stored properties are damaged")

// envelopeVersion begins every stored envelope.
const envelopeVersion = 1

// Envelope writes exchange, routing key and basic properties of a delivery. What
// the client does not tell apart, an empty property and none, is the same here.
func Envelope(d amqp.Delivery) []byte {
	out := []byte{envelopeVersion}
	for _, s := range texts(&d) {
		out = binary.AppendUvarint(out, uint64(len(*s)))
		out = append(out, *s...)
	}
	out = append(out, d.DeliveryMode, d.Priority)
	if d.Timestamp.IsZero() {
		return append(out, 0)
	}
	return binary.BigEndian.AppendUint64(append(out, 1), uint64(d.Timestamp.Unix()))
}

// texts are the textual parts in the order in which they are stored.
func texts(d *amqp.Delivery) []*string {
	return []*string{&d.Exchange, &d.RoutingKey, &d.ContentType, &d.ContentEncoding, &d.CorrelationId,
		&d.ReplyTo, &d.Expiration, &d.MessageId, &d.Type, &d.UserId, &d.AppId}
}

// ReadEnvelope is a delivery with what Envelope wrote. Errors: ErrBadEnvelope.
func ReadEnvelope(b []byte) (d amqp.Delivery, err error) {
	if len(b) == 0 || b[0] != envelopeVersion {
		return d, fmt.Errorf("%w: version", ErrBadEnvelope)
	}
	b = b[1:]
	for _, s := range texts(&d) {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > uint64(len(b)-used) {
			return d, fmt.Errorf("%w: a text is cut off", ErrBadEnvelope)
		}
		*s, b = string(b[used:used+int(n)]), b[used+int(n):]
	}
	switch {
	case len(b) == 3 && b[2] == 0:
	case len(b) == 11 && b[2] == 1:
		d.Timestamp = time.Unix(int64(binary.BigEndian.Uint64(b[3:])), 0).UTC()
	default:
		return d, fmt.Errorf("%w: numbers", ErrBadEnvelope)
	}
	d.DeliveryMode, d.Priority = b[0], b[1]
	return d, nil
}

// Delivery puts a message together again from its stored parts. Errors:
// ErrBadEnvelope, ErrBadField.
func Delivery(envelope []byte, fields []Field, body []byte) (amqp.Delivery, error) {
	d, err := ReadEnvelope(envelope)
	if err != nil {
		return d, err
	}
	d.Body, d.Headers = body, make(amqp.Table, len(fields))
	for _, f := range fields {
		if d.Headers[f.Name], err = f.Decode(); err != nil {
			return d, fmt.Errorf("header %q: %w", f.Name, err)
		}
	}
	return d, nil
}

// Property is one basic property as a reader sees it.
type Property struct{ Name, Value string }

// Properties are those that are set, in the order of the specification.
func Properties(d amqp.Delivery) []Property {
	var set []Property
	add := func(name, value string) {
		if value != "" {
			set = append(set, Property{name, value})
		}
	}
	add("content_type", d.ContentType)
	add("content_encoding", d.ContentEncoding)
	if d.DeliveryMode != 0 {
		add("delivery_mode", fmt.Sprint(d.DeliveryMode))
	}
	if d.Priority != 0 {
		add("priority", fmt.Sprint(d.Priority))
	}
	add("correlation_id", d.CorrelationId)
	add("reply_to", d.ReplyTo)
	add("expiration", d.Expiration)
	add("message_id", d.MessageId)
	if !d.Timestamp.IsZero() {
		add("timestamp", d.Timestamp.UTC().Format(time.RFC3339))
	}
	add("type", d.Type)
	add("user_id", d.UserId)
	add("app_id", d.AppId)
	return set
}
