package web

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// settingsTabs are the parts of the settings, in their order.
var settingsTabs = []struct{ name, href string }{
	{"profile", "/profile"}, {"sources", "/sources"}, {"retention", "/settings/retention"}, {"evidence", "/settings/evidence"}, {"alerts", "/settings/alerts"},
}

func settingsBar(here locale.Locale, current string) []ui.Tab {
	var tabs []ui.Tab
	for _, t := range settingsTabs {
		tabs = append(tabs, ui.Tab{Label: here.Text("settings.tab." + t.name), Href: t.href, Current: t.name == current})
	}
	return tabs
}

func (s *Server) settingsFrame(c echo.Context, title string) views.Frame {
	here := localeOf(c)
	return s.pageFrame(c, "settings", title, views.Crumb{Label: here.Text("settings.title"), Href: "/settings"}, views.Crumb{Label: title})
}

// settingsPage leads to the first part that is about more than oneself.
func (s *Server) settingsPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/settings/evidence")
}
