package web_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"
)

func text(s string) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	})
}

func readyUnless(err *error) func(context.Context) error {
	return func(context.Context) error { return *err }
}

// serve runs the server on a listener of its own, as the console does, and
// returns how to stop it and what Serve returned.
func (s *site) serve(t *testing.T) (stop func(), stopped <-chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.http.URL = "http://" + ln.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(ctx, ln) }()
	return cancel, done
}

// frames is a page that changes from version to version.
type frames struct {
	version atomic.Int32
	last    int32
	failing atomic.Bool
}

func (f *frames) next(context.Context) (string, templ.Component, bool, error) {
	v := f.version.Load()
	if f.failing.Load() {
		return "", nil, false, errors.New("secret failure")
	}
	return string(rune('a' + v)), text("<p>\nversion " + string(rune('a'+v)) + "\n</p>"), v >= f.last, nil
}

// open starts reading a stream; the lines come as they are written.
func (s *site) open(t *testing.T, path string) (*http.Response, *bufio.Scanner) {
	t.Helper()
	req := s.request(t, http.MethodGet, path, "")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp, bufio.NewScanner(resp.Body)
}

// until reads lines up to one that begins with prefix and returns it.
func until(t *testing.T, lines *bufio.Scanner, prefix string) string {
	t.Helper()
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), prefix) {
			return lines.Text()
		}
	}
	t.Fatalf("the stream ended before %q: %v", prefix, lines.Err())
	return ""
}

func TestStreamSendsChangesAndEnds(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	f := &frames{last: 2}
	s.server.Handle(http.MethodGet, "/test/events", func(c echo.Context) error { return s.server.Stream(c, f.next) })
	resp, lines := s.open(t, "/test/events")
	if ct := resp.Header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") || resp.Header.Get("Content-Encoding") != "" {
		t.Fatalf("a stream of type %q, encoding %q", ct, resp.Header.Get("Content-Encoding"))
	}
	until(t, lines, "event: update")
	for _, want := range []string{"id: a", "data: <p>", "data: version a", "data: </p>"} {
		if lines.Scan(); lines.Text() != want {
			t.Fatalf("line %q, want %q", lines.Text(), want)
		}
	}
	f.version.Store(1)
	if got := until(t, lines, "data: version"); got != "data: version b" {
		t.Errorf("after the change: %q", got)
	}
	f.version.Store(2)
	until(t, lines, "data: version c")
	until(t, lines, "event: done")
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event:") {
			t.Errorf("after the end: %q", lines.Text())
		}
	}
}

// An error before the first byte is an error page; a later one ends the stream
// and stays in the log.
func TestStreamErrors(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	f := &frames{last: 9}
	s.server.Handle(http.MethodGet, "/test/events", func(c echo.Context) error { return s.server.Stream(c, f.next) })
	_, lines := s.open(t, "/test/events")
	until(t, lines, "event: update")
	f.failing.Store(true)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "secret") || strings.Contains(lines.Text(), "<html") {
			t.Errorf("the stream tells %q", lines.Text())
		}
	}
	if r := s.get(t, http.DefaultClient, "/test/events"); r.status != http.StatusInternalServerError || strings.Contains(r.body, "secret") {
		t.Errorf("an error at the start: %d %s", r.status, r.body)
	}
	if !strings.Contains(s.log.String(), "secret failure") {
		t.Error("the log does not hold the cause")
	}
}

// Stopping the console must not wait for people who look at a page.
func TestStreamsEndAtShutdown(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	f := &frames{last: 9}
	s.server.Handle(http.MethodGet, "/test/events", func(c echo.Context) error { return s.server.Stream(c, f.next) })
	stop, stopped := s.serve(t)
	_, lines := s.open(t, "/test/events")
	until(t, lines, "event: update")
	began := time.Now()
	stop()
	if err := <-stopped; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %v", took)
	}
}
