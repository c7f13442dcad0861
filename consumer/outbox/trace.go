package outbox

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"oncemore/consumer"
)

// sending begins the span of one attempt to publish a row, as a child of what the
// row's traceparent names; done ends it. A row without one is not traced. The header
// is sent as it is: consumers go on from where the event arose, not from the relay.
func sending(ctx context.Context, provider trace.TracerProvider, r Row, done func(error)) (context.Context, func(error)) {
	if _, traced := consumer.LinkTo(r.Headers); !traced {
		return ctx, done
	}
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	ctx, span := provider.Tracer("oncemore/consumer/outbox").Start(consumer.Remote(ctx, r.Headers), "send "+r.Target, trace.WithSpanKind(trace.SpanKindProducer))
	if !span.IsRecording() {
		return ctx, done
	}
	span.SetAttributes(attribute.String("messaging.operation.name", "send"), attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", r.Target), attribute.String("oncemore.event_id", r.EventID),
		attribute.Int("oncemore.attempt", r.Attempts+1), attribute.Int64("oncemore.outbox_age_ms", r.Age.Milliseconds()))
	return ctx, func(err error) {
		if err != nil {
			span.SetAttributes(attribute.String("error.type", consumer.ErrorClass(err)))
			span.SetStatus(codes.Error, err.Error())
			span.RecordError(err)
		}
		span.End()
		done(err)
	}
}
