package consumer

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Spans follow OpenTelemetry's semantic conventions for messaging. A delivery has
// a span of kind consumer, "process <topic>", whose parent is the span that the
// message's header traceparent names: the handler's context carries it. Several
// deliveries of one transaction have a span for the transaction besides, which
// links to what each message came from; a BatchHandler has only that one.
//
// Headers of a message are never changed: dead letters, retries and replays keep
// the traceparent that the producer gave. Only the API of OpenTelemetry is used:
// without an SDK nothing is recorded, and the producer's trace is passed on.
const scope = "oncemore/consumer"

// w3c reads and writes traceparent and tracestate, whatever the process's global
// propagator is: messages outlive processes.
var w3c = propagation.TraceContext{}

// carrier is a message's headers, to be read.
type carrier []Header

func (c carrier) Get(name string) string {
	v, _ := Event{Headers: c}.Header(name)
	return string(v)
}

func (c carrier) Set(string, string) {}
func (c carrier) Keys() []string     { return nil }

// Remote returns ctx with the trace that the headers name, for spans that belong
// to it. It is ctx itself where they name none.
func Remote(ctx context.Context, headers []Header) context.Context {
	if _, ok := (Event{Headers: headers}).Header("traceparent"); !ok {
		return ctx
	}
	return w3c.Extract(ctx, carrier(headers))
}

// LinkTo is a link to the trace that the headers name, and whether they name one.
func LinkTo(headers []Header) (trace.Link, bool) {
	sc := trace.SpanContextFromContext(Remote(context.Background(), headers))
	return trace.Link{SpanContext: sc}, sc.IsValid()
}

// Traced returns the headers with the trace of ctx added, unless they name one
// already or ctx has none. The headers given are not modified.
func Traced(ctx context.Context, headers []Header) []Header {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return headers
	}
	if _, ok := (Event{Headers: headers}).Header("traceparent"); ok {
		return headers
	}
	fields := propagation.MapCarrier{}
	w3c.Inject(ctx, fields)
	headers = headers[:len(headers):len(headers)]
	for _, name := range w3c.Fields() {
		if value := fields[name]; value != "" {
			headers = append(headers, Header{Name: name, Value: []byte(value)})
		}
	}
	return headers
}

// tracing makes a worker's spans.
type tracing struct {
	tracer trace.Tracer
	group  string
	system string // messaging.system: kafka, rabbitmq

	topic, name string // of the last span: a worker has few topics
}

// Options of spans, made once: a delivery has to be cheap where nobody traces.
var (
	consuming = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	batching  = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithNewRoot()}
	producing = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer)}
)

func (t *tracing) process(topic string) string {
	if t.topic != topic || t.name == "" {
		t.topic, t.name = topic, "process "+topic
	}
	return t.name
}

func newTracing(group string, system string, provider trace.TracerProvider) tracing {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return tracing{tracer: provider.Tracer(scope), group: group, system: system}
}

// transaction is the span of a chunk: that of its delivery if it has only one.
func (t *tracing) transaction(ctx context.Context, chunk []Delivery) (context.Context, trace.Span) {
	if len(chunk) == 1 {
		return t.delivery(ctx, chunk[0].Event)
	}
	ctx, span := t.tracer.Start(ctx, t.process(chunk[0].Topic), batching...)
	if span.IsRecording() {
		span.SetAttributes(t.common(chunk[0].Event)...)
		span.SetAttributes(attribute.Int("messaging.batch.message_count", len(chunk)))
		for _, d := range chunk {
			if link, ok := LinkTo(d.Headers); ok {
				span.AddLink(link)
			}
		}
	}
	return ctx, span
}

// delivery is the span of one delivery, a child of what its message came from.
func (t *tracing) delivery(ctx context.Context, ev Event) (context.Context, trace.Span) {
	batch := trace.SpanContextFromContext(ctx)
	ctx = Remote(ctx, ev.Headers)
	apart := batch.IsValid() && !trace.SpanContextFromContext(ctx).Equal(batch)
	ctx, span := t.tracer.Start(ctx, t.process(ev.Topic), consuming...)
	if span.IsRecording() {
		span.SetAttributes(t.common(ev)...)
		span.SetAttributes(t.message(ev)...)
		if apart {
			span.AddLink(trace.Link{SpanContext: batch})
		}
	}
	return ctx, span
}

// publishing is the span of a dead letter or a retry, beside the delivery's own.
func (t *tracing) publishing(ctx context.Context, l Letter, why string) (context.Context, trace.Span) {
	ctx, span := t.tracer.Start(Remote(ctx, l.Headers), "send "+why, producing...)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("messaging.system", t.system), attribute.String("messaging.operation.name", "send"),
			attribute.String("messaging.operation.type", "send"), attribute.String("oncemore.event_id", l.ID),
			attribute.String("messaging.consumer.group.name", t.group), attribute.String("error.type", ErrorClass(l.Err)))
	}
	return ctx, span
}

func (t *tracing) common(ev Event) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", t.system),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", ev.Topic),
		attribute.String("messaging.consumer.group.name", t.group),
	}
}

func (t *tracing) message(ev Event) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("oncemore.event_id", ev.ID), attribute.Int("oncemore.attempt", ev.Attempt)}
	if ev.Queue != "" {
		return append(all, attribute.String("messaging.rabbitmq.destination.routing_key", ev.RoutingKey))
	}
	return append(all, attribute.Int64("messaging.kafka.offset", ev.Offset), attribute.Int("messaging.destination.partition.id", int(ev.Partition)))
}

// What became of a delivery, in the attribute oncemore.result of its span.
const (
	resultConsumed  = "consumed"
	resultDuplicate = "duplicate"
)

// ended ends a span with what it led to. Contention and outages are errors of
// their spans, though nobody's fault: they are why it took so long.
func ended(span trace.Span, result string, err error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	if err == nil {
		span.SetAttributes(attribute.String("oncemore.result", result))
		return
	}
	span.SetAttributes(attribute.String("error.type", ErrorClass(err)))
	span.SetStatus(codes.Error, err.Error())
	var panicked *PanicError
	if errors.As(err, &panicked) {
		span.RecordError(err, trace.WithAttributes(attribute.String("exception.stacktrace", string(panicked.Stack))))
		return
	}
	span.RecordError(err)
}
