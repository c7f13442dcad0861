// Package web serves the console: its pages, the JSON API, log-in and metrics.
// It turns requests into calls of the domain packages and their answers into
// HTML or JSON; what a role may do is decided there, not here.
package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"
	"github.com/labstack/echo/v4"

	"oncemore/static"
)

// Server is the console's HTTP side.
type Server struct {
	Deps
	echo     *echo.Echo
	sessions *scs.SessionManager
	accounts *Accounts
	tokens   *Tokens
	logins   *logins
	ready    *readiness
	streams  streams
	nav      navCounts
	requests requestMetrics
	open     map[string]bool // routes that need no account

	crossOrigin *http.CrossOriginProtection
}

// New builds the server and its routes. Close ends its streams.
func New(d Deps) *Server {
	s := &Server{
		Deps: d, accounts: NewAccounts(d.Pool), tokens: NewTokens(d.Pool, d.Clock), logins: newLogins(d.Pool, d.Clock),
		ready: &readiness{}, streams: newStreams(), requests: newRequestMetrics(d.Registry),
		open:        map[string]bool{},
		crossOrigin: http.NewCrossOriginProtection(),
	}
	d.Registry.MustRegister(collector{s})
	s.sessions = s.newSessions()
	s.echo = s.newEcho()
	s.routes()
	return s
}

// Handler is the whole site.
func (s *Server) Handler() http.Handler { return s.echo }

// Close ends the open streams.
func (s *Server) Close() { s.streams.end() }

// Time-outs of a connection. That for writing holds until the request's own is
// set: by deadline, and by each event of a stream.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	shutdownTimeout   = 10 * time.Second
)

// Serve answers requests on ln until ctx ends, then lets running requests finish
// for at most ten seconds.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          s.errorLog(),
	}
	srv.RegisterOnShutdown(s.streams.end)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := srv.Shutdown(stopping); err != nil {
		return errors.Join(fmt.Errorf("stop serving: %w", err), srv.Close())
	}
	return nil
}

// routes registers everything. Who may come in is decided by gate, which lets
// nobody in who is not expected.
func (s *Server) routes() {
	s.registerOpen()
	s.registerAPI(s.echo.Group("/api/v1"))
	pages := s.echo.Group("")
	s.registerPages(pages)
	if s.Try != nil {
		s.registerTry(pages)
	}
}

// registerOpen is what needs no account.
func (s *Server) registerOpen() {
	files := echo.WrapHandler(static.Handler())
	for _, r := range []*echo.Route{
		s.echo.GET("/healthz", s.healthz),
		s.echo.HEAD("/healthz", s.healthz),
		s.echo.GET("/readyz", s.readyz),
		s.echo.HEAD("/readyz", s.readyz),
		s.echo.GET("/metrics", s.metrics()),
		s.echo.GET(static.Prefix+"*", files),
		s.echo.HEAD(static.Prefix+"*", files),
		s.echo.POST("/preferences", s.setPrefs),
		s.echo.GET("/login", s.loginPage, s.session),
		s.echo.POST("/login", s.login, s.session),
		s.echo.POST("/logout", s.logout, s.session),
	} {
		s.open[r.Path] = true
	}
}
