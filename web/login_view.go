package web

import (
	"github.com/labstack/echo/v4"

	"oncemore/views"
	"oncemore/views/locale"
)

// bareFrame is what surrounds a page without navigation.
func (s *Server) bareFrame(c echo.Context, title string) views.Frame {
	return views.Frame{
		Title: title, Path: backTo(c.Request().URL.RequestURI()),
		Theme: prefsOf(c).Theme, Environment: s.Environment, Demo: s.Try != nil,
	}
}

func (s *Server) renderLogin(c echo.Context, status int, form loginForm) error {
	ctx := c.Request().Context()
	here := locale.From(ctx)
	v := views.Login{Frame: s.bareFrame(c, here.Text("login.title")), Name: form.User, Return: form.Return}
	switch {
	case !form.LockedUntil.IsZero():
		v.Error = here.Text("login.locked", "until", here.Clock(form.LockedUntil))
	case form.Wrong:
		v.Error = here.Text("login.wrong")
	}
	return render(c, status, views.LoginPage(v))
}
