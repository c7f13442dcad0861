package brokertest

import (
	"context"
	"fmt"
	"slices"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// tracesGoOn follows a message from its producer's span through the handler, its
// retry and its dead letter, whose traceparent is still the producer's.
func tracesGoOn(s *shop) {
	const producer = "00-0000000000000000000000000000000a-000000000000000b-01"
	recorder := tracetest.NewSpanRecorder()
	seen := make(chan trace.SpanContext, 10)
	cfg := s.config(func(ctx context.Context, _ pgstore.Tx, _ consumer.Event) error {
		seen <- trace.SpanContextFromContext(ctx)
		return errBoom
	})
	cfg.Traces = sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	cfg.Retry.Attempts = 1
	m := order(1).on(0)
	m.Headers = []consumer.Header{header("traceparent", []byte(producer))}
	s.publish(m)
	s.run(cfg)
	s.settled()
	names := map[string]int{}
	for _, span := range recorder.Ended() {
		names[span.Name()]++
		if parent := span.Parent(); fmt.Sprintf("00-%s-%s-01", parent.TraceID(), parent.SpanID()) != producer {
			s.Errorf("span %s has parent %s of trace %s", span.Name(), parent.SpanID(), parent.TraceID())
		}
	}
	if names["process "+s.topic] != 2 || names["send dead letter"] != 1 {
		s.Errorf("spans %v, want two attempts and a dead letter", names)
	}
	for range 2 {
		if got := <-seen; got.TraceID().String() != producer[3:35] || got.SpanID().String() == producer[36:52] {
			s.Errorf("the handler works in span %s of trace %s", got.SpanID(), got.TraceID())
		}
	}
	letters := s.letters()
	if len(letters) != 1 || !slices.ContainsFunc(letters[0].Headers, func(h consumer.Header) bool {
		return h.Name == "traceparent" && string(h.Value) == producer
	}) {
		s.Errorf("letters %+v", letters)
	}
}
