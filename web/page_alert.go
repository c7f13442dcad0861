package web

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/internal/alert"
	"oncemore/views"
	"oncemore/views/locale"
)

// How many alerts the page lists.
const (
	lastingAlerts = 500
	endedAlerts   = 100
)

func (s *Server) alertListPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	return s.showAlerts(c, refused{})
}

func (s *Server) showAlerts(c echo.Context, was refused) error {
	ctx, here, actor := c.Request().Context(), localeOf(c), actorOf(c)
	v := views.AlertList{
		Frame: s.pageFrame(c, "alerts", here.Text("alerts.title"), views.Crumb{Label: here.Text("nav.system")}, views.Crumb{Label: here.Text("alerts.title")}),
		May:   actor.May(access.AckAlert), WhoMay: here.Text("may.acknowledge", "roles", rolesOf(here, access.AckAlert)), Error: was.Text,
	}
	lasting, err := s.Alerts.Lasting(ctx, lastingAlerts)
	if err != nil {
		return err
	}
	over, err := s.Alerts.Over(ctx, endedAlerts)
	if err != nil {
		return err
	}
	looks, err := s.Alerts.Looks(ctx)
	if err != nil {
		return err
	}
	v.Lasting, v.Over = s.alertRows(here, lasting), s.alertRows(here, over)
	v.Worst, v.Summary, v.Trouble = alertSummary(here, lasting, looks, len(s.Alerts.Rules()))
	return render(c, was.status(), views.AlertListPage(v))
}

func (s *Server) alertRows(here locale.Locale, alerts []alert.Alert) []views.AlertRow {
	rows := make([]views.AlertRow, len(alerts))
	for i, a := range alerts {
		rows[i] = views.AlertRow{
			ID: a.ID, Severity: a.Severity.String(), Rule: here.Text("alert." + a.Rule + ".name"), Text: s.Alerts.Text(string(here.Tag), a), Href: a.Href,
			Since: a.FirstAt, Ended: a.ResolvedAt, AckedBy: a.AckedBy, AckedAt: a.AckedAt, AckReason: a.AckReason,
		}
	}
	return rows
}

// alertSummary says that all is quiet only where every rule has looked.
func alertSummary(here locale.Locale, lasting []alert.Alert, looks map[string]alert.Look, rules int) (worst, summary, trouble string) {
	fresh, least := 0, alert.Severity(0)
	for _, a := range lasting {
		if a.AckedBy == "" {
			fresh++
			if least == 0 || a.Severity < least {
				least = a.Severity
			}
		}
	}
	blind := 0
	for _, l := range looks {
		if l.Error != "" {
			blind++
		}
	}
	if blind > 0 {
		trouble = here.Text("alerts.blind", "n", blind)
	}
	switch {
	case fresh > 0:
		return least.String(), here.Text("alerts.open", "n", fresh), trouble
	case len(looks) < rules:
		return "", here.Text("alerts.not_looked"), here.Text("alerts.not_looked_yet")
	case blind > 0:
		return "", here.Text("alerts.none_seen"), trouble
	}
	return "", here.Text("alerts.quiet"), ""
}

func (s *Server) alertAcknowledge(c echo.Context) error {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil {
		return alert.ErrNoAlert
	}
	return s.acknowledge(c, id)
}

// alertsAcknowledge acknowledges what the page showed, and nothing that came since.
func (s *Server) alertsAcknowledge(c echo.Context) error {
	form, err := c.FormParams()
	if err != nil {
		return invalid("id", "cannot be read")
	}
	var ids []int64
	for _, text := range form["id"] {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return invalid("id", "is no number")
		}
		ids = append(ids, id)
	}
	return s.acknowledge(c, ids...)
}

func (s *Server) acknowledge(c echo.Context, ids ...int64) error {
	reason, err := reasonOf(c)
	if err != nil {
		return err
	}
	err = s.Alerts.Acknowledge(c.Request().Context(), actorBecause(c, reason), ids...)
	if errors.Is(err, alert.ErrNoAlert) {
		return s.showAlerts(c, refused{Status: http.StatusConflict, Text: localeOf(c).Text("alerts.gone")})
	}
	if err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/alerts")
}

// openAlerts counts for the navigation and the first page. Nil: not known.
func (s *Server) openAlerts(ctx context.Context) *int {
	if s.Alerts == nil {
		return nil
	}
	counts, err := s.Alerts.Count(ctx)
	if err != nil {
		return nil
	}
	return ptr(int(counts.Unacknowledged()))
}
