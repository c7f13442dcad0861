package web

import (
	"context"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"
)

// Routes are all routes of the server.
func (s *Server) Routes() []*echo.Route { return s.echo.Routes() }

// Handle adds a route, open to all, that no real page needs, such as one that panics.
func (s *Server) Handle(method, path string, h echo.HandlerFunc) {
	s.echo.Add(method, path, h)
	s.open[path] = true
}

// Stream is stream, for a test's own route.
func (s *Server) Stream(c echo.Context, next func(context.Context) (string, templ.Component, bool, error)) error {
	return s.stream(c, next)
}

// ProblemKeys are the catalog keys of all problems.
func ProblemKeys() []string {
	keys := []string{internal.Key, echoKey(405)}
	for _, p := range problems {
		keys = append(keys, p.Key)
	}
	return keys
}
