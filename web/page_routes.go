package web

import "github.com/labstack/echo/v4"

// registerPages registers the pages, all behind a log-in.
func (s *Server) registerPages(g *echo.Group) {}
