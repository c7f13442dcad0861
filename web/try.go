package web

import "github.com/labstack/echo/v4"

// Try is what the demo's Try it page works on.
type Try interface{}

// registerTry registers the Try it page.
func (s *Server) registerTry(g *echo.Group) {}
