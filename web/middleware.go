package web

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"oncemore/internal/access"
)

const (
	bodyLimit      = 1 << 20 // of any request: ten thousand letter ids fit
	requestTimeout = 30 * time.Second
	planTimeout    = 5 * time.Minute // planning judges up to half a million letters
)

func (s *Server) newEcho() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(discard{})
	e.HTTPErrorHandler = s.fail
	e.IPExtractor = s.clientAddress()
	e.Use(
		s.requestID,
		s.accessLog,
		s.recovered,
		s.securityHeaders,
		s.limitBody,
		s.sameOrigin,
		middleware.GzipWithConfig(middleware.GzipConfig{Skipper: noGzip, MinLength: 1024, Level: gzip.BestSpeed}),
		s.localised,
		s.deadline,
		s.gate,
	)
	return e
}

// clientAddress believes X-Forwarded-For only of the configured proxies.
func (s *Server) clientAddress() echo.IPExtractor {
	if len(s.TrustedProxies) == 0 {
		return echo.ExtractIPDirect()
	}
	trust := []echo.TrustOption{echo.TrustLoopback(false), echo.TrustLinkLocal(false), echo.TrustPrivateNet(false)}
	for _, p := range s.TrustedProxies {
		trust = append(trust, echo.TrustIPRange(ipNet(p)))
	}
	return echo.ExtractIPFromXFFHeader(trust...)
}

const requestIDKey = "request_id"

// requestID is our own: one from outside could be anything, and repeat.
func (s *Server) requestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := hex.EncodeToString(randomBytes(8))
		c.Set(requestIDKey, id)
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		return next(c)
	}
}

func requestID(c echo.Context) string {
	id, _ := c.Get(requestIDKey).(string)
	return id
}

// accessLog writes one line per request: the route and not the address, whose
// query may hold what somebody searched for.
func (s *Server) accessLog(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		if err := next(c); err != nil {
			c.Error(err)
		}
		took := time.Since(began)
		status := c.Response().Status
		s.requests.observe(c, status, took)
		attrs := []slog.Attr{
			slog.String("request_id", requestID(c)), slog.String("method", c.Request().Method), slog.String("route", c.Path()),
			slog.Int("status", status), slog.Int64("bytes", c.Response().Size), slog.Duration("took", took), slog.String("from", c.RealIP()),
		}
		if actor, ok := c.Get(actorKey).(access.Actor); ok {
			attrs = append(attrs, slog.String("user", actor.User), slog.String("via", actor.Via))
		}
		s.Logger.LogAttrs(c.Request().Context(), slog.LevelDebug, "request", attrs...)
		return nil
	}
}

// recovered turns a panic into an error of the request, with its stack for the log.
func (s *Server) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			switch r := recover(); r {
			case nil:
			case http.ErrAbortHandler:
				panic(r)
			default:
				err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		return next(c)
	}
}

const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (s *Server) securityHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		if s.Secure {
			h.Set("Strict-Transport-Security", "max-age=31536000; includeSubDomains")
		}
		return next(c)
	}
}

func (s *Server) limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		limit := int64(bodyLimit)
		switch {
		case editsLetter(r.URL.Path):
			limit = editLimit
		case attachesFile(r.URL.Path):
			limit = fileLimit
		}
		if r.ContentLength > limit {
			return errTooLarge
		}
		r.Body = http.MaxBytesReader(c.Response(), r.Body, limit)
		return next(c)
	}
}

// sameOrigin refuses requests that another site made a browser send. A bearer
// token cannot be sent that way, so its requests may come from anywhere.
func (s *Server) sameOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if _, ok := bearer(r.Header.Get(echo.HeaderAuthorization)); ok && isAPI(c) {
			return next(c)
		}
		if err := s.crossOrigin.Check(r); err != nil {
			return fmt.Errorf("%w: %w", errCrossOrigin, err)
		}
		return next(c)
	}
}

// deadline bounds everything but streams. An error is answered outside of it, so
// that there is time to say that time ran out.
func (s *Server) deadline(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if isStream(c) || isExport(c) {
			return next(c)
		}
		outside := c.Request()
		timeout := requestTimeout
		if outside.Method == http.MethodPost && strings.HasSuffix(c.Path(), "/replays") {
			timeout = planTimeout
		}
		// Not every connection has deadlines; those of net/http do.
		_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(timeout + requestTimeout))
		ctx, cancel := context.WithTimeout(outside.Context(), timeout)
		defer func() {
			cancel()
			c.SetRequest(outside)
		}()
		c.SetRequest(outside.WithContext(ctx))
		return next(c)
	}
}

func noGzip(c echo.Context) bool {
	return isStream(c) || strings.HasPrefix(c.Request().URL.Path, "/static/") // those are compressed once, ahead
}

// discard is where echo's own logger writes: errors reach ours.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func (s *Server) errorLog() *log.Logger { return slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn) }
