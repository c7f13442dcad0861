package dlq

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"oncemore/consumer"
)

// traceSending begins the span of a chunk that is sent. It links to the traces that
// the messages belong to: a replay carries its message's own traceparent untouched, so
// that the consumer's span is a child of the producer's, and not of the replay's.
func traceSending(ctx context.Context, from trace.TracerProvider, replay int64, items []*sendItem) (context.Context, func()) {
	if from == nil {
		from = otel.GetTracerProvider()
	}
	ctx, span := from.Tracer("oncemore/dlq").Start(ctx, "send replay", trace.WithSpanKind(trace.SpanKindProducer))
	if !span.IsRecording() {
		return ctx, func() { span.End() }
	}
	span.SetAttributes(attribute.String("messaging.operation.name", "send"), attribute.String("messaging.operation.type", "send"),
		attribute.Int64("oncemore.replay", replay), attribute.Int("messaging.batch.message_count", len(items)))
	for _, it := range items {
		if link, ok := consumer.LinkTo(it.message.carried()); ok {
			span.AddLink(link)
		}
	}
	return ctx, func() {
		confirmed := 0
		for _, it := range items {
			if it.result != nil && it.result.err == nil {
				confirmed++
			}
		}
		span.SetAttributes(attribute.Int("oncemore.confirmed", confirmed))
		span.End()
	}
}

// carried are the headers that a trace is read from.
func (m *message) carried() []consumer.Header {
	var headers []consumer.Header
	switch {
	case m.record != nil:
		for _, h := range m.record.Headers {
			headers = append(headers, consumer.Header{Name: h.Key, Value: h.Value})
		}
	case m.rabbit != nil:
		switch v := m.rabbit.publishing.Headers["traceparent"].(type) {
		case string:
			headers = append(headers, consumer.Header{Name: "traceparent", Value: []byte(v)})
		case []byte:
			headers = append(headers, consumer.Header{Name: "traceparent", Value: v})
		}
	}
	return headers
}
