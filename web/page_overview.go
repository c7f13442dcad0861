package web

import (
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"oncemore/views"
)

func (s *Server) overviewPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	here := localeOf(c)
	overview, err := s.Overview.Overview(c.Request().Context())
	if err != nil {
		return fmt.Errorf("read overview: %w", err)
	}
	v := overviewView(here, overview, actorOf(c))
	v.Frame = s.pageFrame(c, "overview", here.Text("overview.title"), views.Crumb{Label: here.Text("overview.title")})
	return render(c, http.StatusOK, views.OverviewPage(v))
}
