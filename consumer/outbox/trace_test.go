package outbox

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"oncemore/consumer"
	"oncemore/internal/testkit"
)

// caught is a transaction that keeps what is written.
type caught struct{ args []any }

func (c *caught) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	c.args = args
	return pgconn.CommandTag{}, nil
}

// What is traced where the event arises goes on where it is consumed; headers that
// the caller gave stay as they are.
func TestAddKeepsTheTrace(t *testing.T) {
	t.Parallel()
	const here, own = "00-0000000000000000000000000000000a-000000000000000b-01", "00-0000000000000000000000000000000c-000000000000000d-01"
	ctx := consumer.Remote(t.Context(), []consumer.Header{{Name: "traceparent", Value: []byte(here)}})
	for _, c := range []struct {
		ctx     context.Context
		headers []consumer.Header
		want    string
	}{
		{ctx, nil, "traceparent=" + here},
		{ctx, []consumer.Header{{Name: "a", Value: []byte("1")}}, "a=1 traceparent=" + here},
		{ctx, []consumer.Header{{Name: "traceparent", Value: []byte(own)}}, "traceparent=" + own},
		{t.Context(), []consumer.Header{{Name: "a", Value: []byte("1")}}, "a=1"},
	} {
		tx := &caught{}
		if err := Add(c.ctx, tx, Message{EventID: "e-1", Target: "t", Headers: c.headers}); err != nil {
			t.Fatal(err)
		}
		headers, err := decodeHeaders(tx.args[7].(string))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range headers {
			got = append(got, h.Name+"="+string(h.Value))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("headers %v, want %s", got, c.want)
		}
	}
}

// Each attempt of a relay is a span in the trace of the event, whose header is sent
// as it is; a row that belongs to no trace has none.
func TestRelayIsInTheTrace(t *testing.T) {
	eachFlavour(t, func(t *testing.T, b bundle) {
		const here = "00-0000000000000000000000000000000a-000000000000000b-01"
		refused := false
		to := &broker{answer: func(r Row) error {
			if r.EventID == "e-1" && !refused {
				refused = true
				return errors.New("too large")
			}
			return nil
		}}
		recorder := tracetest.NewSpanRecorder()
		o := fast()
		o.Traces = sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder))
		traced := message("e-1", "a")
		traced.Headers = []consumer.Header{{Name: "traceparent", Value: []byte(here)}}
		b.add(traced, message("e-2", "b"))
		b.start(to, o)
		testkit.Eventually(t, patience, func() bool { return b.inState(Sent) == 2 }, "both are sent")
		spans := recorder.Ended()
		if len(spans) != 2 || spans[0].Status().Code != codes.Error || spans[1].Status().Code == codes.Error {
			t.Fatalf("%d spans, want a refusal and a success", len(spans))
		}
		for _, s := range spans {
			if s.Name() != "send orders" || s.SpanKind() != trace.SpanKindProducer || s.Parent().TraceID().String() != here[3:35] {
				t.Errorf("span %s, %s, in trace %s", s.Name(), s.SpanKind(), s.Parent().TraceID())
			}
		}
		to.mu.Lock()
		defer to.mu.Unlock()
		for _, r := range to.got {
			if r.EventID == "e-1" && (len(r.Headers) != 1 || string(r.Headers[0].Value) != here) {
				t.Errorf("headers %v", r.Headers)
			}
		}
	})
}
