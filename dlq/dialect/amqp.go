package dialect

import (
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/rabbit"
)

// FromAMQP is a delivery of RabbitMQ as Read takes it. queue is where it was read
// from: a delivery does not say. A field table has no order, so headers stand by
// name.
func FromAMQP(queue string, d amqp.Delivery) *Message {
	m := &Message{Broker: RabbitMQ, Value: d.Body, Properties: propertiesOf(d)}
	m.From = Place{Queue: queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, TimestampMS: -1}
	if m.Value == nil {
		m.Value = []byte{} // AMQP knows no null body
	}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		m.Headers = append(m.Headers, Header{Name: name, Typed: readable(d.Headers[name])})
	}
	return m
}

// propertiesOf are the basic properties that are set.
func propertiesOf(d amqp.Delivery) map[string]any {
	set := map[string]any{}
	for name, text := range map[string]string{
		"content_type": d.ContentType, "content_encoding": d.ContentEncoding, "correlation_id": d.CorrelationId,
		"reply_to": d.ReplyTo, "expiration": d.Expiration, "message_id": d.MessageId,
		"type": d.Type, "user_id": d.UserId, "app_id": d.AppId,
	} {
		if text != "" {
			set[name] = text
		}
	}
	if d.DeliveryMode != 0 {
		set["delivery_mode"] = int64(d.DeliveryMode)
	}
	if d.Priority != 0 {
		set["priority"] = int64(d.Priority)
	}
	if !d.Timestamp.IsZero() {
		set["timestamp"] = d.Timestamp
	}
	return set
}

// readable is a field's value in the types of Header.Typed: writers differ in the
// width of their numbers, readers do not care.
func readable(value any) any {
	switch v := value.(type) {
	case amqp.Table:
		table := make(map[string]any, len(v))
		for name, item := range v {
			table[name] = readable(item)
		}
		return table
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = readable(item)
		}
		return list
	case amqp.Decimal:
		return number(rabbit.DecimalText(v))
	case float32:
		return float64(v)
	case time.Time:
		return v.UTC()
	}
	if n, ok := wide(value); ok {
		return n
	}
	return value
}

// wide is any whole number of AMQP 0-9-1.
func wide(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int8:
		return int64(v), true
	case byte:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}
