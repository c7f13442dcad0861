package effect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// maxTimeout bounds one call: a transaction is open meanwhile.
const maxTimeout = 10 * time.Second

// KeyForm says what the Idempotency-Key header is made of.
type KeyForm string

// The forms. KeyEvent serves one effect per service; two effects that call the
// same service need KeyEffect, or the second call is taken for the first.
const (
	KeyEvent  KeyForm = "event"  // <eventId>
	KeyEffect KeyForm = "effect" // <eventId>:<group>:<effect>
)

// HTTPConfig declares an HTTP effect. Values in Path, Headers and Body that
// begin with a colon are fields, named as in NewSQL; two colons stand for one.
type HTTPConfig struct {
	Name    string            // of the effect, for KeyEffect; "" is "http"
	Method  string            // POST, PUT, PATCH or DELETE; "" is POST
	Base    string            // absolute http or https URL; nothing outside of it is called
	Path    string            // below Base, such as /points/:orderId?source=:topic
	Headers map[string]string // values are text or one field, such as ":event_id"
	// Body is a JSON tree as YAML gives it: maps, lists, strings, numbers, true,
	// false, nil. Nil sends the payload itself, byte for byte.
	Body      any
	Key       KeyForm       // "" is KeyEvent
	Accept202 bool          // 202 counts as done; else it is retried
	Timeout   time.Duration // of one call, at most and by default 10 s
}

// HTTPOptions are for tests and for wiring. The zero value is the default.
type HTTPOptions struct {
	Logger *slog.Logger     // nil: slog.Default()
	Now    func() time.Time // nil: time.Now
}

// HTTP is an effect outside of the database. The call is made before the
// transaction commits: a lost commit repeats it with the same key.
type HTTP struct {
	name    string
	method  string
	target  target
	headers []headerField
	body    node // nil: the payload
	key     KeyForm
	done202 bool
	client  *http.Client
	breaker *breaker
	now     func() time.Time
}

// NewHTTP checks the declaration and makes the effect with a connection pool of
// its own.
func NewHTTP(c HTTPConfig, o HTTPOptions) (*HTTP, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	to, err := parseTarget(c.Base, c.Path)
	if err != nil {
		return nil, err
	}
	headers, err := parseHeaders(c.Headers)
	if err != nil {
		return nil, err
	}
	body, err := parseBody(c.Body)
	if err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &HTTP{
		name: c.Name, method: c.Method, target: to, headers: headers, body: body, key: c.Key, done202: c.Accept202,
		client: newClient(c.Timeout), breaker: newBreaker(cmp.Or(o.Logger, slog.Default()), to.base.String(), o.Now), now: o.Now,
	}, nil
}

func (c HTTPConfig) withDefaults() HTTPConfig {
	c.Name = cmp.Or(c.Name, "http")
	c.Method = cmp.Or(c.Method, http.MethodPost)
	c.Key = cmp.Or(c.Key, KeyEvent)
	c.Timeout = cmp.Or(c.Timeout, maxTimeout)
	return c
}

func (c HTTPConfig) validate() error {
	switch {
	case c.Method != http.MethodPost && c.Method != http.MethodPut && c.Method != http.MethodPatch && c.Method != http.MethodDelete:
		return fmt.Errorf("http effect: method %s is none of POST, PUT, PATCH and DELETE", c.Method)
	case c.Timeout < 0 || c.Timeout > maxTimeout:
		return fmt.Errorf("http effect: timeout %s is not between 0 and %s: a transaction is open meanwhile", c.Timeout, maxTimeout)
	case c.Key != KeyEvent && c.Key != KeyEffect:
		return fmt.Errorf("http effect: idempotency key %q is neither %q nor %q", c.Key, KeyEvent, KeyEffect)
	}
	return nil
}

// newClient follows no redirect: what a POST means at another address nobody
// has declared.
func newClient(timeout time.Duration) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	transport.MaxResponseHeaderBytes = 64 << 10
	transport.DialContext = (&net.Dialer{Timeout: min(timeout, 3*time.Second), KeepAlive: 30 * time.Second}).DialContext
	return &http.Client{
		Transport:     transport,
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// BatchSize is 1: a call that was made must not be rolled back, and so repeated,
// for the failure of another event.
func (h *HTTP) BatchSize() int { return 1 }

// Close drops the idle connections.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// Handler makes one call per event. The outcomes:
//
//   - 2xx is done; 202 only where the config says so.
//   - 408, 409, 425, 429, 5xx, 3xx, a cut connection and a time-out retry;
//     Retry-After is honoured, up to 15 min.
//   - 401, 403 and 404 retry as well, but the fifth in a row opens the breaker:
//     then the effect is unavailable, so that the consumer waits instead of
//     making dead letters of a topic, until a call gets through again.
//   - Other 4xx are permanent, as is a field that is missing.
func (h *HTTP) Handler() consumer.Handler[pgstore.Tx] {
	return func(ctx context.Context, _ pgstore.Tx, ev consumer.Event) error { return h.call(ctx, ev) }
}

func (h *HTTP) call(ctx context.Context, ev consumer.Event) error {
	req, err := h.request(ctx, ev)
	if err != nil {
		return consumer.Permanent(err)
	}
	if err := h.breaker.allow(); err != nil {
		return consumer.Unavailable(err)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		h.breaker.unknown()
		return callError(ctx, err)
	}
	defer drain(resp.Body)
	return h.judge(resp)
}

func (h *HTTP) request(ctx context.Context, ev consumer.Event) (*http.Request, error) {
	f := &fields{ev: ev}
	to, err := h.target.render(f)
	if err != nil {
		return nil, err
	}
	body := ev.Value
	if h.body != nil {
		if body, err = h.body.appendJSON(nil, f); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, h.method, to, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("http effect: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "oncemore")
	for _, trace := range consumer.Traced(ctx, nil) { // the service goes on with the event's trace
		req.Header.Set(trace.Name, string(trace.Value))
	}
	for _, header := range h.headers {
		if err := header.set(req.Header, f); err != nil {
			return nil, err
		}
	}
	req.Header.Set("Idempotency-Key", h.idempotencyKey(ev))
	return req, nil
}

func (h *HTTP) idempotencyKey(ev consumer.Event) string {
	if h.key == KeyEffect {
		return ev.ID + ":" + ev.Group + ":" + h.name
	}
	return ev.ID
}

// callError names a call that got no answer. A stopping consumer cancels ctx:
// that is nobody's failure and comes back as it is.
func callError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("http effect: %w", ctx.Err())
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return &CallError{Kind: "timeout", err: err}
	}
	return &CallError{Kind: "connection", err: err}
}

// CallError is a call without an answer: it may have taken effect.
type CallError struct {
	Kind string // timeout | connection
	err  error
}

// Error is the transport's message, which names method and URL.
func (e *CallError) Error() string { return e.err.Error() }

// Unwrap returns the transport's error.
func (e *CallError) Unwrap() error { return e.err }

// Class names the error in a dead letter: http.timeout or http.connection.
func (e *CallError) Class() string { return "http." + e.Kind }

// maxDrain bounds what is read of a response so that its connection can be used again.
const maxDrain = 64 << 10

func drain(body io.ReadCloser) {
	io.CopyN(io.Discard, body, maxDrain) //nolint:errcheck // only for reuse
	body.Close()
}
