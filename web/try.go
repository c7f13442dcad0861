package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"sync"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

// Try is what the demo's Try it page works on.
type Try interface {
	// Show is the page's figures and accounts; frame and role are the server's.
	Show(ctx context.Context) (views.Try, error)
	// Do carries out one button. event is what was sent, "" where nothing was.
	// Errors: access.ErrForbidden, ErrNoSuchButton.
	Do(ctx context.Context, actor access.Actor, button string) (event string, err error)
}

// ErrNoSuchButton is returned by Try for a button that the page does not have.
var ErrNoSuchButton = errors.New("web: the page has no such button")

// tryResults are the sentences after a press, by button, and where to look.
var tryResults = map[string]struct{ key, href string }{
	"twice":   {"try.result.twice", ""},
	"break":   {"try.result.break", "/faults"},
	"repair":  {"try.result.repair", "/faults"},
	"legacy":  {"try.result.legacy", ""},
	"expire":  {"try.result.expired", "/letters?state=open&consumer_group=points-consumer-group"},
	"hold":    {"try.result.hold", "/replays"},
	"release": {"try.result.release", "/replays"},
	"over":    {"try.result.over", "/faults"},
}

// tryPages are the handlers of the Try it page.
type tryPages struct {
	server *Server
	pressed
}

// registerTry registers the Try it page.
func (s *Server) registerTry(g *echo.Group) {
	h := &tryPages{server: s}
	g.GET("/try", h.show)
	g.POST("/try", h.press)
}

func (h *tryPages) show(c echo.Context) error {
	ctx := c.Request().Context()
	v, err := h.server.Try.Show(ctx)
	if err != nil {
		return err
	}
	here := locale.From(ctx)
	v.Frame = h.server.pageFrame(c, "try", here.Text("try.title"), views.Crumb{Label: here.Text("try.title")})
	v.May = actorOf(c).May(access.ControlTry)
	v.Nonce = hexHash(string(randomBytes(16)))
	v.Said, v.SaidHref = trySaid(here, c.QueryParam("done"), c.QueryParam("event"))
	return render(c, http.StatusOK, views.TryPage(v))
}

// eventName keeps what a link may put into our sentences to ids of the shop.
var eventName = regexp.MustCompile(`^[a-z-]{1,40}[0-9]{1,12}$`)

func trySaid(here locale.Locale, button, event string) (sentence, href string) {
	result, ok := tryResults[button]
	if !ok {
		return "", ""
	}
	if !eventName.MatchString(event) {
		event = ""
	}
	return here.Text(result.key, "event", event), result.href
}

// press does what the button says, once per form: a double click is one press.
func (h *tryPages) press(c echo.Context) error {
	button := c.FormValue("do")
	if _, known := tryResults[button]; !known {
		return &fieldError{Field: "do", Text: "the page has no such button"}
	}
	to := url.Values{"done": {button}}
	if h.first(c.FormValue("nonce")) {
		event, err := h.server.Try.Do(c.Request().Context(), actorOf(c), button)
		if err != nil {
			return err
		}
		if event != "" {
			to.Set("event", event)
		}
	}
	return c.Redirect(http.StatusSeeOther, "/try?"+to.Encode())
}

// pressed remembers the last forms that were sent.
type pressed struct {
	mu     sync.Mutex
	nonces [64]string
	next   int
}

// first reports whether the form was not sent before. A form without a nonce,
// such as a script's, always counts.
func (p *pressed) first(nonce string) bool {
	if nonce == "" {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, seen := range p.nonces {
		if seen == nonce {
			return false
		}
	}
	p.nonces[p.next] = nonce
	p.next = (p.next + 1) % len(p.nonces)
	return true
}
