package web

import (
	"oncemore/dlq"
	"oncemore/dlq/amqpform"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

// amqpJSON is what a message of RabbitMQ has besides body and headers: where the
// dead letter was delivered from, and the basic properties that are set.
type amqpJSON struct {
	Exchange   string            `json:"exchange"` // "": the default one
	RoutingKey string            `json:"routing_key"`
	Properties map[string]string `json:"properties"`
}

// amqpOf is nil for Kafka, and for properties that cannot be read. Their values are
// masked as those of headers are.
func amqpOf(body dlq.Body, reader access.Actor, eventID *string) *amqpJSON {
	d, err := amqpform.ReadEnvelope(body.AMQP)
	if err != nil {
		return nil
	}
	j := &amqpJSON{Exchange: d.Exchange, RoutingKey: d.RoutingKey, Properties: map[string]string{}}
	for _, p := range amqpform.Properties(d) {
		value := []byte(p.Value)
		if !reader.May(access.ReadPayload) {
			value, _ = MaskBytes(value, plainProperties(deref(eventID), p)...)
		}
		j.Properties[p.Name] = string(value)
	}
	return j
}

// plainProperties are the values that nobody has to mask: they say how, not what.
func plainProperties(eventID string, p amqpform.Property) []string {
	switch p.Name {
	case "content_type", "content_encoding", "delivery_mode", "priority", "timestamp", "type", "app_id", "expiration":
		return []string{eventID, p.Value}
	}
	return []string{eventID}
}

// typedValue adds what RabbitMQ says of a header: its type, and the value in terms
// of JSON. A reader who may not see payloads gets of arrays and tables, and of what
// is masked, the type alone.
func (h *headerJSON) typedValue(from dlq.Header, mayRead bool) {
	if from.Type == 0 {
		return
	}
	name := amqpform.TypeName(from.Type)
	h.Type = &name
	if !mayRead && (from.Type == amqpform.Array || from.Type == amqpform.Table) {
		h.ValueB64, h.Text, h.Masked = encoded([]byte(masked)), readable([]byte(masked)), true
	}
	if !h.Masked {
		h.Value = from.Field().JSON()
	}
}

// propertyRows shows the properties above the headers. A replay carries them but
// those by which the broker would refuse or drop the message.
func propertyRows(here locale.Locale, body dlq.Body, masked bool, eventID string) []views.HeaderRow {
	d, err := amqpform.ReadEnvelope(body.AMQP)
	if err != nil {
		return nil
	}
	var rows []views.HeaderRow
	for _, p := range amqpform.Properties(d) {
		row := views.HeaderRow{Name: p.Name, Type: here.Text("headers.type_property"), Kept: p.Name != "expiration" && p.Name != "user_id"}
		value, hidden := []byte(p.Value), false
		if masked {
			value, hidden = MaskBytes(value, plainProperties(eventID, p)...)
		}
		row.Value = cutText(here, string(value), shownHeader)
		if hidden {
			row.Type = here.Text("headers.type_masked")
		}
		rows = append(rows, row)
	}
	return rows
}
