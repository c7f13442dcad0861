package web

import (
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/views/locale"
)

// Prefs are how somebody wants to see the console, kept in cookies so that they
// hold on the log-in page too.
type Prefs struct {
	Language locale.Tag
	Theme    string // auto | light | dark
}

const prefsAge = 365 * 24 * time.Hour

var themes = []string{"auto", "light", "dark"} // the first is the default

// prefsOf reads the cookies; without one the browser's languages decide.
func prefsOf(c echo.Context) Prefs {
	p := Prefs{Language: locale.Accept(c.Request().Header.Get("Accept-Language")), Theme: themes[0]}
	if cookie, err := c.Cookie("lang"); err == nil {
		if tag, ok := locale.Parse(cookie.Value); ok {
			p.Language = tag
		}
	}
	if cookie, err := c.Cookie("theme"); err == nil && slices.Contains(themes, cookie.Value) {
		p.Theme = cookie.Value
	}
	return p
}

// localised puts the reader's language into the context. Programs choose by
// Accept-Language alone: their cookies are nobody's preference.
func (s *Server) localised(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		tag := prefsOf(c).Language
		if isAPI(c) {
			tag = locale.Accept(c.Request().Header.Get("Accept-Language"))
		}
		here := locale.Locale{Tag: tag, Zone: zoneOf(c), Now: s.Clock()}
		c.SetRequest(c.Request().WithContext(locale.With(c.Request().Context(), here)))
		return next(c)
	}
}

// setPrefs keeps the language or theme that the form names and goes back to
// where the person was.
func (s *Server) setPrefs(c echo.Context) error {
	if language := c.FormValue("lang"); language != "" {
		tag, ok := locale.Parse(language)
		if !ok {
			return notAChoice("lang")
		}
		s.keep(c, "lang", string(tag))
	}
	if theme := c.FormValue("theme"); theme != "" {
		if !slices.Contains(themes, theme) {
			return notAChoice("theme")
		}
		s.keep(c, "theme", theme)
	}
	return c.Redirect(http.StatusSeeOther, backTo(c.FormValue("return")))
}

func (s *Server) keep(c echo.Context, name, value string) {
	c.SetCookie(&http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(prefsAge.Seconds()),
		HttpOnly: true, Secure: s.Secure, SameSite: http.SameSiteLaxMode})
}

func notAChoice(field string) error {
	return &fieldError{Field: field, Text: "is not one of the choices", Status: http.StatusUnprocessableEntity}
}
