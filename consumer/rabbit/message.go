package rabbit

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
)

// Message returns the delivery of an event with all its properties and typed
// headers, so far as the event came from RabbitMQ. It cannot be acknowledged, and
// must not be modified.
func Message(ev consumer.Event) (amqp.Delivery, bool) {
	d, ok := ev.Native.(amqp.Delivery)
	return d, ok
}

// eventOf is the delivery as an event without id.
func eventOf(group, queue string, d amqp.Delivery) consumer.Event {
	body := d.Body
	if body == nil {
		body = []byte{} // AMQP knows no null body
	}
	d.Acknowledger, d.DeliveryTag = nil, 0 // acknowledging is the runtime's alone
	return consumer.Event{
		Group: group, Topic: queue, Queue: queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey,
		MessageID: d.MessageId, Redelivered: d.Redelivered, Native: d,
		Value: body, Headers: headersOf(d.Headers), Time: d.Timestamp,
	}
}

// headersOf shows typed headers as bytes, sorted by name: text and bytes as they
// are, void as null, numbers and booleans as text, times in RFC 3339, tables and
// arrays as JSON. Message has them typed.
func headersOf(t amqp.Table) []consumer.Header {
	headers := make([]consumer.Header, 0, len(t))
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if !isCounter(name) {
			headers = append(headers, consumer.Header{Name: name, Value: headerBytes(t[name])})
		}
	}
	return headers
}

func headerBytes(value any) []byte {
	switch v := value.(type) {
	case nil:
		return nil
	case []byte:
		return v
	case string:
		return []byte(v)
	case amqp.Table, []any:
		b, err := json.Marshal(jsonOf(v))
		if err != nil {
			return fmt.Append(nil, v) // NaN and infinities have no JSON
		}
		return b
	}
	return fmt.Append(nil, jsonOf(value))
}

// jsonOf is a header's value in terms of JSON.
func jsonOf(value any) any {
	switch v := value.(type) {
	case amqp.Table:
		m := make(map[string]any, len(v))
		for name, item := range v {
			m[name] = jsonOf(item)
		}
		return m
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = jsonOf(item)
		}
		return items
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp.Decimal:
		return json.Number(DecimalText(v))
	case []byte:
		return hex.EncodeToString(v)
	}
	return value
}

// DecimalText is a decimal of AMQP in digits, such as -0.05.
func DecimalText(d amqp.Decimal) string {
	digits := strconv.FormatInt(int64(d.Value), 10)
	if d.Scale == 0 {
		return digits
	}
	sign := ""
	if rest, negative := strings.CutPrefix(digits, "-"); negative {
		sign, digits = "-", rest
	}
	if missing := int(d.Scale) + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) - int(d.Scale)
	return sign + digits[:point] + "." + digits[point:]
}

// isCounter reports whether a header is a count that the broker keeps of
// deliveries; published again it would be taken for attempts of the copy.
func isCounter(name string) bool { return name == "x-delivery-count" || name == "x-acquired-count" }

// isDeath reports whether a header is the broker's history of dead-lettering.
func isDeath(name string) bool {
	return name == "x-death" || strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// routes reports whether a header is read by the broker as further routing keys:
// published again, the copy would reach queues that the original has reached.
func routes(name string) bool { return name == "CC" || name == "BCC" }

// publishing is a delivery to be published again: body, properties and typed
// headers as they came. Left out are user_id, which the broker accepts only from
// the user of that name (the client does not show cluster_id at all), the
// expiration and the broker's counters. It is persistent, since what was
// confirmed must outlive the broker.
func publishing(d amqp.Delivery) amqp.Publishing {
	headers := make(amqp.Table, len(d.Headers)+12)
	for name, value := range d.Headers {
		if !isCounter(name) {
			headers[name] = value
		}
	}
	return amqp.Publishing{
		Headers: headers, Body: d.Body, DeliveryMode: amqp.Persistent,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
	}
}
