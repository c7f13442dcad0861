package consumer

import (
	"errors"
	"strings"
	"testing"
)

func TestExtractEventID(t *testing.T) {
	t.Parallel()
	both := EventIDSource{Header: "event-id", JSON: "$.meta.ids[1]"}
	cases := []struct {
		name   string
		source EventIDSource
		ev     Event
		want   string // "" : an error
		reason string
	}{
		{"header first", both, Event{Headers: []Header{{"event-id", []byte("h")}}, Value: []byte(`{"meta":{"ids":["a","b"]}}`)}, "h", ""},
		{"last header of the name", both, Event{Headers: []Header{{"event-id", []byte("a")}, {"event-id", []byte("b")}}}, "b", ""},
		{"null header, path", both, Event{Headers: []Header{{"event-id", nil}}, Value: []byte(`{"meta":{"ids":["a","b"]}}`)}, "b", ""},
		{"number stays text", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id": 12345678901234567890}`)}, "12345678901234567890", ""},
		{"Chinese", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id":"支付-10001"}`)}, "支付-10001", ""},
		{"255 bytes", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id":"` + strings.Repeat("x", 255) + `"}`)}, strings.Repeat("x", 255), ""},
		{"nothing there", both, Event{Value: []byte(`{"meta":{}}`)}, "", "nothing is there"},
		{"no JSON", both, Event{Value: []byte(`{not json`)}, "", "not valid JSON"},
		{"null value", both, Event{}, "", "value is null"},
		{"object", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id":{}}`)}, "", "neither text nor a number"},
		{"null", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id":null}`)}, "", "neither text nor a number"},
		{"empty", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id":""}`)}, "", "empty"},
		{"256 bytes", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id":"` + strings.Repeat("x", 256) + `"}`)}, "", "256 bytes"},
		{"invalid UTF-8", EventIDSource{Header: "h"}, Event{Headers: []Header{{"h", []byte{0xff, 'a'}}}}, "", "UTF-8"},
		{"control character", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id":"a\u0000b"}`)}, "", "control"},
		{"space at an end", EventIDSource{JSON: "id"}, Event{Value: []byte(`{"id":"a "}`)}, "", "space"},
		{"its own position", EventIDSource{JSON: "id"}, Event{Topic: "t-1", Partition: 3, Offset: 42, Value: []byte(`{"id":"t-1-3-42"}`)}, "", "topic, partition and offset"},
		{"its own position, other marks", EventIDSource{JSON: "id"}, Event{Topic: "t", Partition: 3, Offset: 42, Value: []byte(`{"id":"t[3]@42"}`)}, "", "topic, partition and offset"},
		{"another number behind the topic", EventIDSource{JSON: "id"}, Event{Topic: "t", Partition: 3, Offset: 42, Value: []byte(`{"id":"t-3-43"}`)}, "t-3-43", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			id, err := c.source.Extract(c.ev)
			if id != c.want {
				t.Fatalf("id %q, want %q (%v)", id, c.want, err)
			}
			if c.want != "" {
				return
			}
			if OutcomeOf(err) != OutcomePermanent || !errors.Is(err, ErrNoEventID) {
				t.Errorf("error %v is not a permanent ErrNoEventID", err)
			}
			for _, part := range []string{c.reason, c.source.Header, c.source.JSON} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
		})
	}
}

func TestValidateEventIDSource(t *testing.T) {
	t.Parallel()
	good := []EventIDSource{{Header: "event-id"}, {JSON: "$.eventId"}, {JSON: "eventId"}, {JSON: "$.data.ids[0].value"},
		{Header: "x-request-id", JSON: "$.order_no"}, {JSON: "$.topicOwnerKey"}, {Header: "ce_id"}, {JSON: "$.订单号"}}
	for _, s := range good {
		if err := ValidateEventIDSource(s); err != nil {
			t.Errorf("%s refused: %v", s, err)
		}
	}
	bad := []EventIDSource{{}, {Header: "kafka_offset"}, {Header: "kafka_original-offset"}, {Header: "kafka_dlt-original-offset"},
		{Header: "kafka_receivedTopic"}, {Header: "kafka_receivedPartitionId"}, {JSON: "$.offset"}, {JSON: "$.meta.recordOffset"}, {JSON: "$.source.PARTITION"},
		{Header: "{topic}-{partition}-{offset}"}, {Header: "${offset}"}, {JSON: "$.a|@reverse"}, {JSON: "$..id"}, {JSON: "a.#.b"}, {JSON: "$"},
		{JSON: "$.offsets[0]"}, {Header: "a\nb"}}
	for _, s := range bad {
		if ValidateEventIDSource(s) == nil {
			t.Errorf("%+v is taken", s)
		}
	}
}
