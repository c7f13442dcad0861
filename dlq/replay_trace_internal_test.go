package dlq

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A chunk's span links to the traces of its messages, which keep their headers.
func TestReplayLinksToTheTracesOfItsMessages(t *testing.T) {
	t.Parallel()
	const one, two = "00-0000000000000000000000000000000a-000000000000000b-01", "00-0000000000000000000000000000000c-000000000000000d-01"
	items := []*sendItem{
		{message: &message{record: &kgo.Record{Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte(one)}}}}, result: &sendResult{}},
		{message: &message{rabbit: &rabbitMessage{publishing: amqp.Publishing{Headers: amqp.Table{"traceparent": two}}}}, result: &sendResult{err: errors.New("refused")}},
		{message: &message{record: &kgo.Record{}}, result: &sendResult{}},
	}
	recorder := tracetest.NewSpanRecorder()
	_, end := traceSending(t.Context(), sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)), 7, items)
	end()
	span := recorder.Ended()[0]
	if len(span.Links()) != 2 || span.Links()[0].SpanContext.TraceID().String() != one[3:35] || span.Links()[1].SpanContext.TraceID().String() != two[3:35] {
		t.Errorf("links %+v", span.Links())
	}
	want := map[attribute.Key]string{"oncemore.replay": "7", "messaging.batch.message_count": "3", "oncemore.confirmed": "2"}
	for _, kv := range span.Attributes() {
		if v, ok := want[kv.Key]; ok && kv.Value.String() != v {
			t.Errorf("%s is %s, want %s", kv.Key, kv.Value.String(), v)
		}
	}
	if got := string(items[0].message.record.Headers[0].Value); got != one || len(items[2].message.record.Headers) != 0 {
		t.Errorf("headers were changed: %s", got)
	}
}
