package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// traced is a bench whose spans are recorded.
func traced(h Handler[*memoryTx]) (*bench, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	b := setup(h)
	b.cfg.Traces = sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
	return b, recorder
}

func parentOf(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, n) }

// withParents gives delivery n the traceparent of span n.
func withParents(all []Delivery) []Delivery {
	for i := range all {
		all[i].Headers = []Header{{Name: "traceparent", Value: []byte(parentOf(i + 1))}}
	}
	return all
}

func (b *bench) run(t *testing.T, all []Delivery) {
	t.Helper()
	if err := b.worker(t).Process(t.Context(), nil, all); err != nil {
		t.Fatal(err)
	}
}

func value(span sdk.ReadOnlySpan, key string) string {
	for _, kv := range span.Attributes() {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

func parents(spans []sdk.ReadOnlySpan) (all []string) {
	for _, s := range spans {
		all = append(all, fmt.Sprintf("00-%s-%s-01", s.Parent().TraceID(), s.Parent().SpanID()))
	}
	return all
}

func TestDeliveryContinuesItsTrace(t *testing.T) {
	t.Parallel()
	var inside trace.SpanContext
	b, recorder := traced(func(ctx context.Context, tx *memoryTx, ev Event) error {
		inside = trace.SpanContextFromContext(ctx)
		return apply(ctx, tx, ev)
	})
	one := withParents(deliveries("a"))
	b.run(t, one)
	b.run(t, one)
	spans := recorder.Ended()
	if len(spans) != 2 {
		t.Fatalf("%d spans for two deliveries", len(spans))
	}
	for i, want := range []string{"consumed", "duplicate"} {
		s := spans[i]
		if s.Name() != "process t" || s.SpanKind() != trace.SpanKindConsumer || parents(spans)[i] != parentOf(1) || value(s, "oncemore.result") != want ||
			value(s, "oncemore.event_id") != "a" || value(s, "messaging.destination.name") != "t" || value(s, "messaging.consumer.group.name") != "g" {
			t.Errorf("span %s of %s, parent %s: %v", s.Name(), s.SpanKind(), parents(spans)[i], s.Attributes())
		}
	}
	if inside.SpanID() != spans[0].SpanContext().SpanID() {
		t.Error("the handler's context carries another span")
	}
}

func TestBatchLinksToItsMessages(t *testing.T) {
	t.Parallel()
	b, recorder := traced(apply)
	b.run(t, withParents(deliveries("a", "b", "c")))
	spans := recorder.Ended()
	if len(spans) != 4 || !slices.Equal(parents(spans[:3]), []string{parentOf(1), parentOf(2), parentOf(3)}) {
		t.Fatalf("%d spans, parents %v", len(spans), parents(spans))
	}
	batch := spans[3]
	if batch.Parent().IsValid() || value(batch, "messaging.batch.message_count") != "3" || len(batch.Links()) != 3 {
		t.Errorf("batch: parent %v, links %v, %v", batch.Parent(), batch.Links(), batch.Attributes())
	}
	for i, s := range spans[:3] {
		if links := s.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != batch.SpanContext().SpanID() {
			t.Errorf("delivery %d does not link to its transaction: %v", i, links)
		}
	}
}

func TestBatchHandlerHasOneSpan(t *testing.T) {
	t.Parallel()
	b, recorder := traced(nil)
	b.cfg.BatchHandler = func(ctx context.Context, tx *memoryTx, events []Event) error {
		for _, ev := range events {
			_ = apply(ctx, tx, ev)
		}
		return nil
	}
	b.run(t, withParents(deliveries("a", "b")))
	if spans := recorder.Ended(); len(spans) != 1 || len(spans[0].Links()) != 2 {
		t.Errorf("%d spans", len(spans))
	}
}

// Failed attempts, the pause and the dead letter are all in the producer's trace,
// and the letter keeps the headers as they came.
func TestFailureIsInTheTrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, recorder := traced(func(context.Context, *memoryTx, Event) error { return errors.New("boom") })
		b.cfg.Retry.Attempts = 1
		b.run(t, withParents(deliveries("a")))
		spans := recorder.Ended()
		if len(spans) != 3 {
			t.Fatalf("%d spans for two attempts and a dead letter", len(spans))
		}
		for i, s := range spans {
			if s.Parent().TraceID() != spans[0].SpanContext().TraceID() || parents(spans)[i] != parentOf(1) {
				t.Errorf("span %d is outside of the producer's trace", i)
			}
		}
		for i, s := range spans[:2] {
			if s.Status().Code != codes.Error || value(s, "error.type") != "*errors.errorString" || value(s, "oncemore.attempt") != fmt.Sprint(i+1) || len(s.Events()) != 1 {
				t.Errorf("attempt %d: %v, %v", i+1, s.Status(), s.Attributes())
			}
		}
		if s := spans[2]; s.Name() != "send dead letter" || s.SpanKind() != trace.SpanKindProducer || s.Status().Code == codes.Error {
			t.Errorf("the letter's span: %s, %s, %v", s.Name(), s.SpanKind(), s.Status())
		}
		if got := b.port.letters[0].Headers; len(got) != 1 || string(got[0].Value) != parentOf(1) {
			t.Errorf("the letter's headers: %v", got)
		}
	})
}

func TestPanicHasItsStackInTheTrace(t *testing.T) {
	t.Parallel()
	b, recorder := traced(func(context.Context, *memoryTx, Event) error { panic("index out of luck") })
	b.cfg.Retry.Attempts = -1
	b.run(t, deliveries("a"))
	events := recorder.Ended()[0].Events()
	has := func(kv attribute.KeyValue) bool {
		return kv.Key == "exception.stacktrace" && strings.Contains(kv.Value.AsString(), "trace_test.go")
	}
	if len(events) != 1 || !slices.ContainsFunc(events[0].Attributes, has) {
		t.Errorf("events %v", events)
	}
}

// Without an SDK nothing is recorded, and the producer's trace goes on.
func TestTraceIsPassedOnWithoutSDK(t *testing.T) {
	t.Parallel()
	var out []Header
	b := setup(func(ctx context.Context, tx *memoryTx, ev Event) error {
		out = Traced(ctx, []Header{{Name: "a", Value: []byte("1")}})
		return apply(ctx, tx, ev)
	})
	b.run(t, withParents(deliveries("a")))
	if len(out) != 2 || out[1].Name != "traceparent" || string(out[1].Value) != parentOf(1) {
		t.Errorf("headers %v", out)
	}
}

func TestTracedLeavesWhatIsThere(t *testing.T) {
	t.Parallel()
	own := []Header{{Name: "traceparent", Value: []byte(parentOf(7))}}
	ctx := Remote(t.Context(), []Header{{Name: "traceparent", Value: []byte(parentOf(1))}, {Name: "tracestate", Value: []byte("k=v")}})
	if got := Traced(ctx, own); len(got) != 1 || string(got[0].Value) != parentOf(7) {
		t.Errorf("headers of their own were changed: %v", got)
	}
	if got := Traced(t.Context(), nil); got != nil {
		t.Errorf("no trace, yet headers %v", got)
	}
	backing := make([]Header, 1, 4)
	if got := Traced(ctx, backing); len(got) != 3 || string(got[2].Value) != "k=v" || backing[:2][1].Name != "" {
		t.Errorf("headers %v, and what was given %v", got, backing[:2])
	}
	for _, bad := range []string{"", "00-1", strings.Repeat("x", 55)} {
		if _, ok := LinkTo([]Header{{Name: "traceparent", Value: []byte(bad)}}); ok {
			t.Errorf("a link to %q", bad)
		}
	}
	if link, ok := LinkTo(own); !ok || !link.SpanContext.IsRemote() {
		t.Error("no link to a trace that is named")
	}
}
