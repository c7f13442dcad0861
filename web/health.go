package web

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"oncemore/migrations"
)

// healthz says that the process answers, no more.
func (s *Server) healthz(c echo.Context) error { return c.String(http.StatusOK, "ok\n") }

// readiness remembers that the migrations were current: they do not go back.
type readiness struct{ migrated atomic.Bool }

// readyz says whether requests can be served: the database answers, its tables
// are there, and the parts that Deps.Ready asks have started.
func (s *Server) readyz(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), 5*time.Second)
	defer cancel()
	if why := s.notReady(ctx); why != "" {
		return c.String(http.StatusServiceUnavailable, why+"\n")
	}
	return c.String(http.StatusOK, "ready\n")
}

// notReady is why not, in words that may be shown to anyone.
func (s *Server) notReady(ctx context.Context) string {
	if err := s.Pool.Ping(ctx); err != nil {
		s.Logger.Warn("not ready: database", "error", err)
		return "the database does not answer"
	}
	if !s.ready.migrated.Load() {
		pending, err := migrations.Pending(ctx, s.Pool)
		if err != nil {
			s.Logger.Warn("not ready: migrations", "error", err)
			return "the migrations could not be read"
		}
		if pending > 0 {
			return fmt.Sprintf("%d migrations are pending: run console migrate", pending)
		}
		s.ready.migrated.Store(true)
	}
	if s.Ready == nil {
		return ""
	}
	if err := s.Ready(ctx); err != nil {
		s.Logger.Warn("not ready", "error", err)
		return "not started yet"
	}
	return ""
}

func (s *Server) metrics() echo.HandlerFunc {
	return echo.WrapHandler(promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{
		Timeout: 10 * time.Second, DisableCompression: true, ErrorHandling: promhttp.ContinueOnError,
		ErrorLog: s.errorLog(),
	}))
}

// requestMetrics counts requests by route, which has few values, and not by path.
type requestMetrics struct{ seconds *prometheus.HistogramVec }

func newRequestMetrics(reg prometheus.Registerer) requestMetrics {
	m := requestMetrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "oncemore_http_request_seconds",
		Help:    "Time to answer a request, by method, route and status. Streams count when they end.",
		Buckets: []float64{.005, .02, .05, .1, .25, .5, 1, 2.5, 10, 30},
	}, []string{"method", "route", "status"})}
	reg.MustRegister(m.seconds)
	return m
}

func (m requestMetrics) observe(c echo.Context, status int, took time.Duration) {
	route := c.Path()
	if route == "" {
		route = "none"
	}
	m.seconds.WithLabelValues(knownMethod(c.Request().Method), route, fmt.Sprint(status)).Observe(took.Seconds())
}

// knownMethod keeps invented methods from becoming labels.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return "other"
}
