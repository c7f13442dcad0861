package dialect_test

import (
	"strings"
	"testing"

	"oncemore/dlq/dialect"
)

func header(pairs ...string) []dialect.Header {
	var hs []dialect.Header
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, dialect.Header{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return hs
}

func TestEventID(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	cases := []struct {
		title   string
		headers []dialect.Header
		body    string
		conf    dialect.Configured
		id, alt string
	}{
		{"a header of the list", header("event-id", "e-1"), "", dialect.Configured{}, "e-1", ""},
		{"best first", header("message-id", "m", "ce_id", "c"), "", dialect.Configured{}, "c", ""},
		{"the configured header wins", header("ce_id", "c", "order-event", "o"), "", dialect.Configured{EventIDHeader: "order-event"}, "o", ""},
		{"the configured path wins over the list", header("ce_id", "c"), `{"order":{"ref":["x","y"]}}`, dialect.Configured{EventIDJSON: "$.order.ref[1]"}, "y", ""},
		{"the configured header before the path", header("h", "1"), `{"eventId":"2"}`, dialect.Configured{EventIDHeader: "h", EventIDJSON: "$.eventId"}, "1", ""},
		{"a configured place that is empty falls through", header("eventId", "e"), "", dialect.Configured{EventIDHeader: "nope", EventIDJSON: "$.nope"}, "e", ""},
		{"exact names before other cases", header("EVENT-ID", "upper", "messageId", "exact"), "", dialect.Configured{}, "exact", ""},
		{"another case", header("Event-Id", "e-2"), "", dialect.Configured{}, "e-2", ""},
		{"ID and id are two", header("id", "debezium", "ID", "eventuate"), "", dialect.Configured{}, "eventuate", ""},
		{"headers before the body", header("Event-Id", "h"), `{"eventId":"b"}`, dialect.Configured{}, "h", ""},
		{"the body", nil, ` {"a":1,"eventId":"b-1"}`, dialect.Configured{}, "b-1", ""},
		{"a number keeps its digits", nil, `{"eventId":12345678901234567890}`, dialect.Configured{}, "12345678901234567890", ""},
		{"a nested body", nil, `{"metadata":{"eventId":"n"}}`, dialect.Configured{}, "n", ""},
		{"CloudEvents structured", nil, `{"id":"s","specversion":"1.0","source":"/x","type":"t"}`, dialect.Configured{}, "s", ""},
		{"a bare id in the body is no event id", nil, `{"id":"s"}`, dialect.Configured{}, "", ""},
		{"no object", nil, `["eventId"]`, dialect.Configured{}, "", ""},
		{"broken JSON", nil, `{"eventId":"x"`, dialect.Configured{}, "", ""},
		{"an escaped key", nil, `{"event\u0049d":"x"}`, dialect.Configured{}, "x", ""},
		{"true is no id", nil, `{"eventId":true}`, dialect.Configured{}, "", ""},
		{"an object is no id", nil, `{"eventId":{"a":1}}`, dialect.Configured{}, "", ""},
		{"a list is no id", nil, `{"eventId":["a"]}`, dialect.Configured{}, "", ""},
		{"null is no id", nil, `{"eventId":null,"event_id":"e"}`, dialect.Configured{}, "e", ""},
		{"one JSON string", header("id", `"0d3f"`), "", dialect.Configured{}, "0d3f", `"0d3f"`},
		{"spaces around", header("event-id", "  e-3 "), "", dialect.Configured{}, "e-3", "  e-3 "},
		{"two JSON strings stay", header("id", `"a""b"`), "", dialect.Configured{}, `"a""b"`, ""},
		{"an empty JSON string stays", header("id", `""`), "", dialect.Configured{}, `""`, ""},
		{"sixteen bytes", header("event-id", "\x5f\x0c\x7a\x1e\x8e\x0b\x4a\x53\x9d\x39\x0c\x8d\x5b\x7d\x2f\x10"), "", dialect.Configured{}, "5f0c7a1e-8e0b-4a53-9d39-0c8d5b7d2f10", ""},
		{"sixteen letters", header("event-id", "abcdefghijklmnop"), "", dialect.Configured{}, "abcdefghijklmnop", ""},
		{"too long", header("ce_id", strings.Repeat("x", 256), "eventId", "next"), "", dialect.Configured{}, "next", ""},
		{"just long enough", header("ce_id", strings.Repeat("x", 255)), "", dialect.Configured{}, strings.Repeat("x", 255), ""},
		{"empty", header("ce_id", "", "eventId", "next"), "", dialect.Configured{}, "next", ""},
		{"only spaces", header("ce_id", "  ", "eventId", "next"), "", dialect.Configured{}, "next", ""},
		{"not UTF-8", header("ce_id", "\xff\xfe", "eventId", "next"), "", dialect.Configured{}, "next", ""},
		{"control characters", header("ce_id", "a\x00b", "eventId", "next"), "", dialect.Configured{}, "next", ""},
		{"the last sound one of repeats", header("event-id", "one", "event-id", "two", "event-id", ""), "", dialect.Configured{}, "two", ""},
		{"a correlation id is none", header("correlation_id", "c", "kafka_correlationId", "d", "traceparent", "t"), "", dialect.Configured{}, "", ""},
		{"other brokers' places", header("NServiceBus.MessageId", "x"), "", dialect.Configured{}, "", ""},
	}
	for _, c := range cases {
		r := set.Read(&dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: "t.DLT"}, Key: []byte("the key"), Value: []byte(c.body), Headers: c.headers}, c.conf)
		if got := orEmpty(r.EventID); got != c.id {
			t.Errorf("%s: id %q, want %q", c.title, got, c.id)
		}
		if got := orEmpty(r.EventIDAlt); got != c.alt {
			t.Errorf("%s: other form %q, want %q", c.title, got, c.alt)
		}
	}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestPositionsAreNoEventIDs(t *testing.T) {
	t.Parallel()
	set := builtin(t)
	origin := header("kafka_dlt-original-topic", "orders", "kafka_dlt-original-partition", "\x00\x00\x00\x00", "kafka_dlt-original-offset", "\x00\x00\x00\x00\x00\x00\x00\x11")
	position := []string{
		"orders-0-17", "orders:0:17", "orders/0/17", "orders@0@17", "orders-0@17", "orders[0]@17", "orders.0.17", "orders_0_17",
		"shop:orders:0:17", "orders-3-99", "orders-retry-0-1-5", "orders.DLT-2-8", "orders-dlt:2:8",
	}
	business := []string{
		"payment-success-10001", "orders-2026-17", "orders-2026-000123", "orders-00-17", "orders-17", "invoice-0-17", "reorders-0-17",
		"5f0c7a1e-8e0b-4a53-9d39-0c8d5b7d2f10", "orders-0-17-x", "0-17", "ordersretry-0-17", "orders-0-99999999999999999999",
	}
	for _, topic := range []string{"orders.DLT", "orders-dlt"} {
		read := func(id string) *dialect.Reading {
			return set.Read(&dialect.Message{Broker: dialect.Kafka, From: dialect.Place{Topic: topic, Partition: 2, Offset: 8},
				Headers: append(header("event-id", id), origin...), Value: []byte(`{"eventId":"other"}`)}, dialect.Configured{})
		}
		for _, id := range position {
			if strings.Contains(id, "-dlt") != (topic == "orders-dlt") && (strings.Contains(id, "DLT") || strings.Contains(id, "-dlt")) {
				continue // the name of the other topic
			}
			if r := read(id); r.EventID != nil || orEmpty(r.PositionID) != id {
				t.Errorf("%s: event id %q, position %q", id, orEmpty(r.EventID), orEmpty(r.PositionID))
			}
		}
		for _, id := range business {
			if r := read(id); orEmpty(r.EventID) != id || r.PositionID != nil {
				t.Errorf("%s: event id %q, position %q", id, orEmpty(r.EventID), orEmpty(r.PositionID))
			}
		}
	}
}
