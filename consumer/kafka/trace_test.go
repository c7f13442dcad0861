package kafka

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// What a pipe writes goes on with the trace of what it read, unless the handler
// gave another; a record that is sent twice names it one time.
func TestPipePassesTheTraceOn(t *testing.T) {
	t.Parallel()
	const in, own = "00-0000000000000000000000000000000a-000000000000000b-01", "00-0000000000000000000000000000000c-000000000000000d-01"
	first := &kgo.Record{Topic: "out", Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}}}
	second := &kgo.Record{Topic: "out", Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte(own)}}}
	run := pipeRun{Pipe: &Pipe{cfg: PipeConfig{Handler: func(context.Context, consumer.Event) ([]*kgo.Record, error) {
		return []*kgo.Record{first, second}, nil
	}}}}
	ev := consumer.Event{Headers: []consumer.Header{{Name: "traceparent", Value: []byte(in)}}}
	for range 2 {
		if _, err := run.call(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	if len(first.Headers) != 2 || string(first.Headers[1].Value) != in {
		t.Errorf("the first record has %v", first.Headers)
	}
	if len(second.Headers) != 1 || string(second.Headers[0].Value) != own {
		t.Errorf("the second record has %v", second.Headers)
	}
}
