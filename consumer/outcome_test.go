package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	cases := []struct {
		name string
		err  error
		want Outcome
	}{
		{"plain", cause, OutcomeRetry},
		{"permanent", Permanent(cause), OutcomePermanent},
		{"wrapped permanent", fmt.Errorf("points: %w", Permanent(cause)), OutcomePermanent},
		{"discard", Discard(cause), OutcomeDiscard},
		{"unavailable", Unavailable(cause), OutcomeUnavailable},
		{"retry after", RetryAfter(cause, time.Second), OutcomeRetry},
		{"outermost counts", Contention(fmt.Errorf("handler: %w", Permanent(cause))), OutcomeContention},
		{"joined", errors.Join(errors.New("other"), Permanent(cause)), OutcomePermanent},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := OutcomeOf(c.err); got != c.want {
				t.Errorf("outcome %d, want %d", got, c.want)
			}
			if !errors.Is(c.err, cause) {
				t.Error("the cause is lost")
			}
		})
	}
	if Permanent(nil) != nil || RetryAfter(nil, time.Second) != nil {
		t.Error("a marked nil is an error")
	}
}

type classed struct{}

func (classed) Error() string { return "x" }
func (classed) Class() string { return "gateway.Timeout" }

func TestErrorClass(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		err  error
		want string
	}{
		"type of the root":   {fmt.Errorf("a: %w", Permanent(fmt.Errorf("b: %w", context.DeadlineExceeded))), "context.deadlineExceededError"},
		"its own class":      {fmt.Errorf("a: %w", classed{}), "gateway.Timeout"},
		"first of several":   {errors.Join(io.ErrUnexpectedEOF, classed{}), "gateway.Timeout"},
		"joined, unclassed":  {errors.Join(context.DeadlineExceeded, io.EOF), "context.deadlineExceededError"},
		"panic with a value": {&PanicError{Value: 7}, "panic"},
	}
	for name, c := range cases {
		if got := ErrorClass(c.err); got != c.want {
			t.Errorf("%s: class %q, want %q", name, got, c.want)
		}
	}
}

func TestErrorTraceTellsChainWithoutMarks(t *testing.T) {
	t.Parallel()
	trace := ErrorTrace(Permanent(fmt.Errorf("add points: %w", io.ErrUnexpectedEOF)))
	want := "*fmt.wrapError: add points: unexpected EOF\ncaused by *errors.errorString: unexpected EOF\n"
	if trace != want {
		t.Errorf("trace\n%s\nwant\n%s", trace, want)
	}
	trace = ErrorTrace(fmt.Errorf("x: %w", &PanicError{Value: "boom", Stack: []byte("goroutine 7")}))
	if !strings.Contains(trace, "boom") || !strings.Contains(trace, "goroutine 7") {
		t.Errorf("trace of a panic lacks its stack: %s", trace)
	}
}

func TestRetryPauses(t *testing.T) {
	t.Parallel()
	p := RetryPolicy{Jitter: -1}.withDefaults()
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if got := p.pause(i + 1); got != want*time.Second {
			t.Errorf("pause %d is %s, want %s", i+1, got, want*time.Second)
		}
	}
	p = RetryPolicy{Jitter: 0.5}.withDefaults()
	for range 200 {
		if got := p.pause(2); got < time.Second || got > 2*time.Second {
			t.Fatalf("pause of 2 s with half jitter is %s", got)
		}
	}
	for _, bad := range []RetryPolicy{{Initial: -1}, {Max: -1}, {Multiplier: 0.5}, {Jitter: 2}} {
		if bad.Validate() == nil {
			t.Errorf("policy %+v is taken", bad)
		}
	}
}
