package effect_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/effect"
	"oncemore/consumer/mysqlstore"
)

// call makes one call without a store: the HTTP effect does not look at the transaction.
func call(ctx context.Context, e *effect.HTTP, ev consumer.Event) error {
	return e.Handler()(ctx, nil, ev)
}

func newHTTP(t *testing.T, c effect.HTTPConfig, now func() time.Time) *effect.HTTP {
	t.Helper()
	e, err := effect.NewHTTP(c, effect.HTTPOptions{Logger: slog.New(slog.DiscardHandler), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// clock is a hand that tests turn.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// service answers what it is told and keeps the last request.
type service struct {
	*httptest.Server
	status atomic.Int64
	calls  atomic.Int64

	mu     sync.Mutex
	header http.Header
	url    string
	body   string
}

func newService(t *testing.T, status int) *service {
	t.Helper()
	s := &service{}
	s.status.Store(int64(status))
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *service) serve(w http.ResponseWriter, r *http.Request) {
	s.calls.Add(1)
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.header, s.url, s.body = r.Header.Clone(), r.URL.String(), string(body)
	s.mu.Unlock()
	w.Header().Set("Location", "/elsewhere")
	w.WriteHeader(int(s.status.Load()))
	io.WriteString(w, "told so\n") //nolint:errcheck // a test's answer
}

func TestHTTPStatuses(t *testing.T) {
	t.Parallel()
	done, retried, permanent := consumer.Outcome(-1), consumer.OutcomeRetry, consumer.OutcomePermanent
	cases := map[int]consumer.Outcome{
		200: done, 201: done, 204: done, 202: retried,
		301: retried, 302: retried, 307: retried, 308: retried,
		400: permanent, 401: retried, 402: permanent, 403: retried, 404: retried, 405: permanent, 408: retried, 409: retried, 410: permanent,
		413: permanent, 415: permanent, 422: permanent, 425: retried, 429: retried, 451: permanent,
		500: retried, 501: retried, 502: retried, 503: retried, 504: retried,
	}
	for status, want := range cases {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			s := newService(t, status)
			err := call(t.Context(), newHTTP(t, effect.HTTPConfig{Base: s.URL}, nil), paid("evt-1", `{}`))
			if s.calls.Load() != 1 {
				t.Errorf("%d calls, want 1: no redirect may be followed", s.calls.Load())
			}
			if want == done {
				if err != nil {
					t.Errorf("%d: %v", status, err)
				}
				return
			}
			var answer *effect.StatusError
			if !errors.As(err, &answer) || answer.Status != status || consumer.OutcomeOf(err) != want {
				t.Fatalf("%d: %v with outcome %d, want %d", status, err, consumer.OutcomeOf(err), want)
			}
			if class := consumer.ErrorClass(err); class != "http."+strings.Fields(err.Error())[2] {
				t.Errorf("class %q of %v", class, err)
			}
			if status != 204 && answer.Excerpt != "told so" {
				t.Errorf("excerpt %q", answer.Excerpt)
			}
		})
	}
}

func TestHTTP202WhenConfigured(t *testing.T) {
	t.Parallel()
	s := newService(t, http.StatusAccepted)
	if err := call(t.Context(), newHTTP(t, effect.HTTPConfig{Base: s.URL, Accept202: true}, nil), paid("evt-1", `{}`)); err != nil {
		t.Error(err)
	}
}

func TestHTTPRequest(t *testing.T) {
	t.Parallel()
	s := newService(t, http.StatusOK)
	e := newHTTP(t, effect.HTTPConfig{
		Name: "credit", Method: http.MethodPut, Base: s.URL + "/v1/", Path: "/points/:order.id::add?by=:who&x=1", Key: effect.KeyEffect,
		Headers: map[string]string{"x-event": ":event_id", "X-Plain": "::colon", "Authorization": "Bearer t"},
		Body: map[string]any{
			"order": ":order", "amount": ":amount", "text": "::literal", "none": nil, "flag": true,
			"list": []any{":who", 7, 0.5, json.Number("1.10")}, "nested": map[string]any{"event": ":event_id"},
		},
	}, nil)
	ev := paid("evt-中", `{"order":{"id":"a/../b c"},"amount":12345678901234567890.10,"who":"x&y=\"1\""}`)
	if err := call(t.Context(), e, ev); err != nil {
		t.Fatal(err)
	}
	if want := "/v1/points/a%2F..%2Fb%20c:add?by=x%26y%3D%221%22&x=1"; s.url != want {
		t.Errorf("url %s, want %s", s.url, want)
	}
	want := `{"amount":12345678901234567890.10,"flag":true,"list":["x&y=\"1\"",7,0.5,1.10],"nested":{"event":"evt-中"},` +
		`"none":null,"order":{"id":"a/../b c"},"text":":literal"}`
	if s.body != want {
		t.Errorf("body\n%s, want\n%s", s.body, want)
	}
	for name, want := range map[string]string{
		"X-Event": "evt-中", "X-Plain": ":colon", "Authorization": "Bearer t", "Content-Type": "application/json",
		"Idempotency-Key": "evt-中:points-consumer-group:credit",
	} {
		if got := s.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestHTTPSendsThePayloadUntouched(t *testing.T) {
	t.Parallel()
	s := newService(t, http.StatusOK)
	payload := "{\"a\":\t1.0, \"raw\":\"\xff\"}"
	if err := call(t.Context(), newHTTP(t, effect.HTTPConfig{Base: s.URL}, nil), paid("evt-1", payload)); err != nil {
		t.Fatal(err)
	}
	if s.body != payload || s.header.Get("Idempotency-Key") != "evt-1" {
		t.Errorf("body %q, key %q", s.body, s.header.Get("Idempotency-Key"))
	}
}

func TestHTTPRefusesFields(t *testing.T) {
	t.Parallel()
	s := newService(t, http.StatusOK)
	cases := []struct{ name, path, header, payload string }{
		{"missing in the path", "/:id", "x", `{}`},
		{"null in the path", "/:id", "x", `{"id":null}`},
		{"empty segment", "/:id", "x", `{"id":""}`},
		{"climbs out", "/:id", "x", `{"id":".."}`},
		{"stays in place", "/:id", "x", `{"id":"."}`},
		{"line break in a header", "/", ":id", `{"id":"a\r\nX: b"}`},
		{"no JSON", "/:id", "x", `id=1`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newHTTP(t, effect.HTTPConfig{Base: s.URL, Path: c.path, Headers: map[string]string{"X-Id": c.header}}, nil)
			err := call(t.Context(), e, paid("evt-1", c.payload))
			var field *effect.FieldError
			if !errors.As(err, &field) || consumer.OutcomeOf(err) != consumer.OutcomePermanent {
				t.Errorf("%v, want a permanent FieldError", err)
			}
		})
	}
	t.Cleanup(func() {
		if s.calls.Load() != 0 {
			t.Errorf("%d calls were made", s.calls.Load())
		}
	})
}

func TestNewHTTPRefuses(t *testing.T) {
	t.Parallel()
	ok := "http://points.internal:8080"
	cases := map[string]effect.HTTPConfig{
		"no base":             {},
		"relative base":       {Base: "points.internal/x"},
		"other scheme":        {Base: "file:///etc/passwd"},
		"password":            {Base: "http://u:p@points.internal"},
		"query in the base":   {Base: ok + "?a=1"},
		"path climbs out":     {Base: ok + "/v1", Path: "/../admin"},
		"path without slash":  {Base: ok, Path: "x"},
		"path is a host":      {Base: ok, Path: "@evil.example/"},
		"fragment":            {Base: ok, Path: "/a#b"},
		"bad escape":          {Base: ok, Path: "/%zz"},
		"colon without field": {Base: ok, Path: "/a:/b"},
		"get":                 {Base: ok, Method: "GET"},
		"slow":                {Base: ok, Timeout: 11 * time.Second},
		"key":                 {Base: ok, Key: "random"},
		"own key header":      {Base: ok, Headers: map[string]string{"idempotency-key": "x"}},
		"header name":         {Base: ok, Headers: map[string]string{"a b": "x"}},
		"header value":        {Base: ok, Headers: map[string]string{"A": "x\ny"}},
		"half a field":        {Base: ok, Headers: map[string]string{"A": ":"}},
		"body with a time":    {Base: ok, Body: map[string]any{"a": time.Now()}},
		"field with a space":  {Base: ok, Body: map[string]any{"a": ":a b"}},
	}
	for name, c := range cases {
		if _, err := effect.NewHTTP(c, effect.HTTPOptions{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestHTTPRetryAfter(t *testing.T) {
	t.Parallel()
	c := newClock()
	cases := map[string]time.Duration{
		"7": 7 * time.Second, "0": 0, "": 0, "soon": 0, "-1": 0, "99999": 15 * time.Minute,
		c.now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		c.now.Add(-time.Hour).Format(http.TimeFormat):       0,
	}
	for value, want := range cases {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", value)
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		err := call(t.Context(), newHTTP(t, effect.HTTPConfig{Base: server.URL}, c.Now), paid("evt-1", `{}`))
		server.Close()
		var answer *effect.StatusError
		if !errors.As(err, &answer) || answer.RetryAfter != want || consumer.OutcomeOf(err) != consumer.OutcomeRetry {
			t.Errorf("Retry-After %q: %+v, want a retry after %s", value, answer, want)
		}
	}
}

func TestHTTPWithoutAnswer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		handler http.HandlerFunc
		class   string
	}{
		"cut before the answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "http.connection"},
		"slow": {func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) //nolint:errcheck // only so that the server sees the client leave
			<-r.Context().Done()
		}, "http.timeout"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(c.handler)
			t.Cleanup(server.Close)
			e := newHTTP(t, effect.HTTPConfig{Base: server.URL, Timeout: 200 * time.Millisecond}, nil)
			err := call(t.Context(), e, paid("evt-1", `{}`))
			if consumer.ErrorClass(err) != c.class || consumer.OutcomeOf(err) != consumer.OutcomeRetry {
				t.Errorf("%v of class %s, want a retry of class %s", err, consumer.ErrorClass(err), c.class)
			}
		})
	}
}

func TestHTTPNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	err = call(t.Context(), newHTTP(t, effect.HTTPConfig{Base: "http://" + addr}, nil), paid("evt-1", `{}`))
	if consumer.ErrorClass(err) != "http.connection" {
		t.Errorf("%v, want http.connection", err)
	}
}

func TestHTTPStopsWithItsContext(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		io.Copy(io.Discard, r.Body) //nolint:errcheck // only so that the server sees the client leave
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	err := call(ctx, newHTTP(t, effect.HTTPConfig{Base: server.URL}, nil), paid("evt-1", `{}`))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's end", err)
	}
}

// An endless answer is neither kept nor waited for, and its excerpt is short text.
func TestHTTPBoundsTheAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		line := bytes.Repeat([]byte("\x00\xff中\n"), 1000)
		for r.Context().Err() == nil {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	err := call(t.Context(), newHTTP(t, effect.HTTPConfig{Base: server.URL}, nil), paid("evt-1", `{}`))
	var answer *effect.StatusError
	if !errors.As(err, &answer) {
		t.Fatal(err)
	}
	if n := len(answer.Excerpt); n > 300 || n < 200 || strings.ContainsAny(answer.Excerpt, "\x00\n") || strings.ToValidUTF8(answer.Excerpt, "") != answer.Excerpt {
		t.Errorf("excerpt of %d bytes: %q", n, answer.Excerpt)
	}
}

func TestHTTPBreaker(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			testBreaker(t, status)
		})
	}
}

func testBreaker(t *testing.T, refusal int) {
	s, c := newService(t, refusal), newClock()
	e := newHTTP(t, effect.HTTPConfig{Base: s.URL}, c.Now)
	next := func() error { return call(context.Background(), e, paid("evt-1", `{}`)) }
	expect := func(what string, err error, outcome consumer.Outcome, calls int64) {
		t.Helper()
		if consumer.OutcomeOf(err) != outcome || err == nil || s.calls.Load() != calls {
			t.Fatalf("%s: %v with outcome %d after %d calls, want outcome %d after %d", what, err, consumer.OutcomeOf(err), s.calls.Load(), outcome, calls)
		}
	}
	for i := range 4 {
		expect("closed", next(), consumer.OutcomeRetry, int64(i+1))
	}
	expect("fifth in a row", next(), consumer.OutcomeUnavailable, 5)
	expect("open", next(), consumer.OutcomeUnavailable, 5)
	c.Add(4 * time.Second)
	expect("still open", next(), consumer.OutcomeUnavailable, 5)
	c.Add(time.Second)
	expect("probe refused", next(), consumer.OutcomeUnavailable, 6)
	c.Add(9 * time.Second)
	expect("pause has doubled", next(), consumer.OutcomeUnavailable, 6)
	c.Add(time.Second)
	s.status.Store(http.StatusServiceUnavailable)
	expect("probe meets an overloaded service", next(), consumer.OutcomeRetry, 7)
	expect("still open after it", next(), consumer.OutcomeUnavailable, 7)
	for range 10 {
		c.Add(time.Minute) // the longest pause
		next()             //nolint:errcheck // only the number of calls counts
	}
	if s.calls.Load() != 17 {
		t.Fatalf("%d calls, want one probe a minute", s.calls.Load())
	}
	s.status.Store(http.StatusOK)
	c.Add(time.Minute)
	if err := next(); err != nil {
		t.Fatalf("probe: %v", err)
	}
	s.status.Store(int64(refusal))
	for i := range 4 {
		expect("counts from one again", next(), consumer.OutcomeRetry, int64(19+i))
	}
}

// A permanent refusal of one event, or a success, ends the row.
func TestHTTPBreakerCountsOnlyARow(t *testing.T) {
	t.Parallel()
	for _, between := range []int{http.StatusOK, http.StatusUnprocessableEntity} {
		s := newService(t, http.StatusNotFound)
		e := newHTTP(t, effect.HTTPConfig{Base: s.URL}, nil)
		for i := range 12 {
			s.status.Store(http.StatusNotFound)
			if i%4 == 3 {
				s.status.Store(int64(between))
			}
			if err := call(t.Context(), e, paid("evt-1", `{}`)); consumer.OutcomeOf(err) == consumer.OutcomeUnavailable {
				t.Fatalf("call %d: %v", i, err)
			}
		}
	}
}

// While a probe is under way nobody else calls.
func TestHTTPBreakerProbesAlone(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) > 5 {
			<-release
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	c := newClock()
	e := newHTTP(t, effect.HTTPConfig{Base: server.URL}, c.Now)
	for range 5 {
		call(t.Context(), e, paid("evt-1", `{}`)) //nolint:errcheck // opens the breaker
	}
	c.Add(time.Minute)
	results := make(chan error, 20)
	for range 20 {
		go func() { results <- call(context.Background(), e, paid("evt-1", `{}`)) }()
	}
	for range 19 {
		if err := <-results; consumer.OutcomeOf(err) != consumer.OutcomeUnavailable {
			t.Errorf("beside the probe: %v", err)
		}
	}
	close(release)
	if err := <-results; err != nil {
		t.Errorf("probe: %v", err)
	}
	if calls.Load() != 6 {
		t.Errorf("%d calls, want 6", calls.Load())
	}
}

// The call is made before the commit: a commit that is lost repeats it with the same key.
func TestHTTPWithStore(t *testing.T) {
	t.Parallel()
	b, s := setup(t), newService(t, http.StatusServiceUnavailable)
	e := newHTTP(t, effect.HTTPConfig{Base: s.URL}, nil)
	if err := b.deliver(t.Context(), e, paid("evt-1", `{}`)); err == nil {
		t.Fatal("503 is no success")
	}
	if got := b.query(t, "select count(*)::text from mq_consume_record"); got != "0" {
		t.Errorf("%s records after a failed call", got)
	}
	s.status.Store(http.StatusOK)
	for range 2 {
		if err := b.deliver(t.Context(), e, paid("evt-1", `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.query(t, "select count(*)::text from mq_consume_record"); got != "1" || s.calls.Load() != 2 {
		t.Errorf("%s records, %d calls, want 1 and 2", got, s.calls.Load())
	}
}

// The call is the same whatever store the consumer has, and BatchSize with it.
func TestHTTPOnAnyStore(t *testing.T) {
	t.Parallel()
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if calls++; r.Header.Get("Idempotency-Key") != "evt-1" {
			t.Errorf("key %q", r.Header.Get("Idempotency-Key"))
		}
	}))
	t.Cleanup(server.Close)
	e := effect.On[mysqlstore.Tx](newHTTP(t, effect.HTTPConfig{Base: server.URL, Path: "/points"}, nil))
	if err := e.Handler()(t.Context(), nil, paid("evt-1", `{}`)); err != nil || calls != 1 || e.BatchSize() != 1 {
		t.Errorf("%d calls, batches of %d: %v", calls, e.BatchSize(), err)
	}
}
