package web

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

// sendErrorPage tells an error to a person. Its texts are those of the problem's
// key: <key>.title and <key>.detail.
func (s *Server) sendErrorPage(c echo.Context, err error, p problem) error {
	here := locale.From(c.Request().Context())
	v := views.Problem{
		Frame: s.bareFrame(c, here.Text(p.Key+".title")), Status: p.Status,
		Headline: here.Text(p.Key + ".title"), Detail: here.Text(p.Key+".detail", "field", fieldOf(err)),
		Unchanged: p.Status < http.StatusInternalServerError || c.Request().Method == http.MethodGet,
		Back:      "/", BackLabel: here.Text("problem.back"),
	}
	if actor, ok := c.Get(actorKey).(access.Actor); ok {
		v.User = &views.User{Name: actor.User, Role: string(actor.Role)}
		if p.Status < http.StatusInternalServerError {
			v.Nav = s.nav.counts(c.Request().Context(), s)
		} else if s.Alerts != nil { // not counted: what they are read from may be what failed
			v.Nav.Alerts = new(int)
		}
	}
	if p.Status == http.StatusBadRequest || p.Status == http.StatusUnprocessableEntity {
		v.Quote = detailOf(err, p)
	}
	if p.Status >= http.StatusInternalServerError {
		v.RequestID = requestID(c)
		if c.Request().Method == http.MethodGet {
			v.Retry = backTo(c.Request().URL.RequestURI())
		}
	}
	return render(c, p.Status, views.ProblemPage(v))
}
