package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"
)

// How a stream behaves. It ends after a while and the browser comes back, so
// that a session that ended, or a role that was taken, does not stream on.
const (
	streamPoll      = time.Second
	streamHeartbeat = 15 * time.Second
	streamLifetime  = 10 * time.Minute
	streamLimit     = 500
)

// frame is what a page shows at one moment. Version changes when it does; done
// is its last.
type frame func(ctx context.Context) (version string, fragment templ.Component, done bool, err error)

// streams bounds the open streams and ends them at shutdown.
type streams struct {
	slots chan struct{}
	ended chan struct{}
	end   func()
}

func newStreams() streams {
	ended := make(chan struct{})
	return streams{slots: make(chan struct{}, streamLimit), ended: ended, end: sync.OnceFunc(func() { close(ended) })}
}

// stream sends the fragment as event "update" whenever its version changes, asked
// for once a second, and event "done" at the end. An error ends the stream; the
// browser comes back by itself.
func (s *Server) stream(c echo.Context, next frame) error {
	select {
	case s.streams.slots <- struct{}{}:
		defer func() { <-s.streams.slots }()
	default:
		return errBusy
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), streamLifetime)
	defer cancel()
	version, fragment, done, err := next(ctx) // before the first byte, so that an error is an error page
	if err != nil {
		return err
	}
	out := newEventWriter(c)
	if err := out.begin(); err != nil {
		return nil // the reader went away
	}
	poll, heartbeat := time.NewTicker(streamPoll), time.NewTicker(streamHeartbeat)
	defer poll.Stop()
	defer heartbeat.Stop()
	for sent := ""; ; {
		if version != sent {
			if err := out.fragment(ctx, version, fragment); err != nil {
				return streamEnd(ctx, err)
			}
			sent = version
		}
		if done {
			return streamEnd(ctx, out.event("done", version, "done"))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.streams.ended:
			return nil
		case <-heartbeat.C:
			if err := out.comment(); err != nil {
				return nil
			}
		case <-poll.C:
			if version, fragment, done, err = next(ctx); err != nil {
				return streamEnd(ctx, err)
			}
		}
	}
}

// streamEnd keeps the errors that are not just a reader who left.
func streamEnd(ctx context.Context, err error) error {
	if _, gone := errors.AsType[goneError](err); gone || err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("stream: %w", err)
}

// isStream reports whether the route is one of the streams.
func isStream(c echo.Context) bool { return strings.HasSuffix(c.Path(), "/events") }

// goneError is a write to a reader who left.
type goneError struct{ error }

type eventWriter struct {
	w       *echo.Response
	control *http.ResponseController
}

func newEventWriter(c echo.Context) eventWriter {
	return eventWriter{w: c.Response(), control: http.NewResponseController(c.Response())}
}

func (e eventWriter) begin() error {
	h := e.w.Header()
	h.Set(echo.HeaderContentType, "text/event-stream; charset=utf-8")
	h.Set(echo.HeaderCacheControl, "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must not wait for more
	e.w.WriteHeader(http.StatusOK)
	return e.write("retry: 2000\n\n")
}

func (e eventWriter) fragment(ctx context.Context, version string, fragment templ.Component) error {
	var b bytes.Buffer
	if err := fragment.Render(ctx, &b); err != nil {
		return fmt.Errorf("render fragment: %w", err)
	}
	return e.event("update", version, b.String())
}

// event writes one event; a line break in data begins another data line.
func (e eventWriter) event(name, id, data string) error {
	data = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)
	id = strings.NewReplacer("\n", "", "\r", "", "\x00", "").Replace(id)
	return e.write("event: " + name + "\nid: " + id + "\ndata: " + strings.ReplaceAll(data, "\n", "\ndata: ") + "\n\n")
}

func (e eventWriter) comment() error { return e.write(": still here\n\n") }

func (e eventWriter) write(text string) error {
	// A server without deadlines, as in tests, has none to move.
	_ = e.control.SetWriteDeadline(time.Now().Add(streamHeartbeat))
	if _, err := e.w.Write([]byte(text)); err != nil {
		return goneError{err}
	}
	if err := e.control.Flush(); err != nil {
		return goneError{err}
	}
	return nil
}
