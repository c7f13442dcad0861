package web

import "github.com/labstack/echo/v4"

// registerAPI registers /api/v1, behind a token or a session.
func (s *Server) registerAPI(g *echo.Group) {
}
