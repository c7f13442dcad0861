package effect_test

import (
	"net/http"
	"testing"

	"oncemore/consumer"
	"oncemore/consumer/effect"
)

// The service that is called goes on with the event's trace.
func TestCallCarriesTheTrace(t *testing.T) {
	t.Parallel()
	const here = "00-0000000000000000000000000000000a-000000000000000b-01"
	s := newService(t, http.StatusOK)
	e := newHTTP(t, effect.HTTPConfig{Base: s.URL}, nil)
	ev := consumer.Event{ID: "payment-success-10001", Value: []byte(`{}`), Headers: []consumer.Header{{Name: "traceparent", Value: []byte(here)}}}
	for ctx, want := range map[bool]string{true: here, false: ""} {
		with := t.Context()
		if ctx {
			with = consumer.Remote(with, ev.Headers)
		}
		if err := call(with, e, ev); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		if got := s.header.Get("traceparent"); got != want {
			t.Errorf("the call carries %q, want %q", got, want)
		}
		s.mu.Unlock()
	}
}
