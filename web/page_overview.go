package web

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
)

func (s *Server) overviewPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	if s.Setup != nil && s.Setup.Needed() && actorOf(c).May(access.Configure) {
		return c.Redirect(http.StatusSeeOther, "/setup")
	}
	here := localeOf(c)
	overview, err := s.Overview.Overview(c.Request().Context())
	if err != nil {
		return fmt.Errorf("read overview: %w", err)
	}
	if err := s.readReplays(c.Request().Context(), &overview); err != nil {
		return err
	}
	finance, err := s.finance(c.Request().Context(), actorOf(c))
	if err != nil {
		return err
	}
	v := overviewView(here, overview, finance, actorOf(c))
	v.Alerts = deref(s.openAlerts(c.Request().Context()))
	v.Frame = s.pageFrame(c, "overview", here.Text("overview.title"), views.Crumb{Label: here.Text("overview.title")})
	return render(c, http.StatusOK, views.OverviewPage(v))
}

// recentReplays is how many replays the first page lists.
const recentReplays = 6

// readReplays takes the replays with all their numbers, as their list shows them.
func (s *Server) readReplays(ctx context.Context, o *dlq.Overview) error {
	recent, err := s.Replays.List(ctx, dlq.ReplayFilter{}, dlq.Page{Limit: recentReplays})
	if err != nil {
		return fmt.Errorf("list recent replays: %w", err)
	}
	o.Replays = slices.DeleteFunc(recent.Items, func(r dlq.Replay) bool { return r.CreatedAt.Before(o.At.Add(-ages["24h"])) })
	waiting, err := s.Replays.List(ctx, dlq.ReplayFilter{State: dlq.AwaitingApproval}, dlq.Page{Limit: 20})
	if err != nil {
		return fmt.Errorf("list replays that wait: %w", err)
	}
	o.Waiting = waiting.Items
	return nil
}
