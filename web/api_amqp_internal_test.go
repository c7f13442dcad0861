package web

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/dlq"
	"oncemore/dlq/amqpform"
	"oncemore/internal/access"
	"oncemore/views/locale"
)

// What RabbitMQ says beside headers is shown, and masked for those who may not
// read payloads: how a message is sent stays, what it is about does not.
func TestPropertiesOfALetter(t *testing.T) {
	t.Parallel()
	body := dlq.Body{AMQP: amqpform.Envelope(amqp.Delivery{Exchange: "orders", RoutingKey: "paid", ContentType: "application/json", MessageId: "e-1",
		CorrelationId: "anna@example.org", Expiration: "60000", UserId: "shop", Timestamp: time.Unix(1_796_000_000, 0)})}
	id := "e-1"
	open := amqpOf(body, access.Actor{Role: access.Admin}, &id)
	if open == nil || open.Exchange != "orders" || open.RoutingKey != "paid" || open.Properties["correlation_id"] != "anna@example.org" || open.Properties["timestamp"] != "2026-11-30T00:53:20Z" {
		t.Errorf("full: %+v", open)
	}
	hidden := amqpOf(body, access.Actor{Role: access.Viewer}, &id)
	if hidden.Properties["correlation_id"] == "anna@example.org" || hidden.Properties["message_id"] != "e-1" || hidden.Properties["content_type"] != "application/json" {
		t.Errorf("masked: %+v", hidden)
	}
	if amqpOf(dlq.Body{}, access.Actor{}, nil) != nil {
		t.Error("a letter of Kafka has properties")
	}
	kept := map[string]bool{}
	for _, row := range propertyRows(locale.Locale{Tag: locale.English}, body, false, "e-1") {
		kept[row.Name] = row.Kept
	}
	if !kept["message_id"] || !kept["correlation_id"] || kept["expiration"] || kept["user_id"] || len(kept) != 6 {
		t.Errorf("rows %v", kept)
	}
}

// Arrays and tables are masked whole: their bytes are no text to take words from.
func TestTypedHeadersAreMasked(t *testing.T) {
	t.Parallel()
	fields, err := amqpform.Fields(amqp.Table{"k": amqp.Table{"a": "b"}, "n": int64(7)})
	if err != nil {
		t.Fatal(err)
	}
	var headers []dlq.Header
	for _, f := range fields {
		headers = append(headers, dlq.Header{Name: f.Name, Type: f.Type, Value: f.Value})
	}
	for _, h := range headersOf(headers, access.Actor{Role: access.Viewer}, nil) {
		if h.Type == nil || h.Name == "k" && (h.Value != nil || !h.Masked || *h.Type != "table") {
			t.Errorf("masked: %+v", h)
		}
	}
	shown := headersOf(headers, access.Actor{Role: access.Admin}, nil)
	if table, ok := shown[0].Value.(map[string]any); !ok || table["a"] != "b" || *shown[1].Type != "int64" {
		t.Errorf("full: %+v", shown)
	}
}
