package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alexedwards/scs/pgxstore"
	"github.com/alexedwards/scs/v2"
	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
)

// sessionLifetime is how long a log-in holds, whatever is done in it.
const sessionLifetime = 12 * time.Hour

// What a session keeps.
const (
	sessionUser  = "user"  // int64, app_user.id
	sessionEpoch = "epoch" // int, app_user.session_epoch at log-in
)

// errSignedOut is a request without a session that needs one.
var errSignedOut = errors.New("web: not signed in")

func (s *Server) newSessions() *scs.SessionManager {
	m := scs.New()
	m.Store = pgxstore.NewWithCleanupInterval(s.Pool, 0) // its own cleaner races with its stop: log-ins sweep instead
	m.HashTokenInStore = true
	m.Lifetime = sessionLifetime
	m.Cookie.Name = "oncemore_session"
	m.Cookie.HttpOnly = true
	m.Cookie.SameSite = http.SameSiteLaxMode
	m.Cookie.Secure = s.Secure
	m.ErrorFunc = func(w http.ResponseWriter, r *http.Request, err error) {
		c := s.echo.NewContext(r, w)
		c.Set(requestIDKey, w.Header().Get(echo.HeaderXRequestID)) // the page and the log name the same request
		s.fail(fmt.Errorf("session: %w", err), c)
	}
	return m
}

// session loads the session of the request and finds out who it belongs to.
// Without one the request goes on, as nobody.
func (s *Server) session(next echo.HandlerFunc) echo.HandlerFunc {
	loaded := func(c echo.Context) error {
		actor, err := s.sessionActor(c.Request().Context())
		if err == nil {
			actor.From = c.RealIP()
			setActor(c, actor)
		} else if !errors.Is(err, errSignedOut) {
			return err
		}
		return next(c)
	}
	return echo.WrapMiddleware(s.sessions.LoadAndSave)(loaded)
}

const sqlSessionUser = `
SELECT name, role
FROM app_user
WHERE id = @id AND session_epoch = @epoch AND disabled_at IS NULL`

// sessionActor asks the account on every request, so that a role taken away or a
// disabled account counts at once.
func (s *Server) sessionActor(ctx context.Context) (access.Actor, error) {
	id := s.sessions.GetInt64(ctx, sessionUser)
	if id == 0 {
		return access.Actor{}, errSignedOut
	}
	actor := access.Actor{Via: "session"}
	err := s.Pool.QueryRow(ctx, sqlSessionUser, pgx.NamedArgs{"id": id, "epoch": s.sessions.GetInt(ctx, sessionEpoch)}).
		Scan(&actor.User, &actor.Role)
	if errors.Is(err, pgx.ErrNoRows) {
		return access.Actor{}, errors.Join(errSignedOut, s.sessions.Destroy(ctx))
	}
	if err != nil {
		return access.Actor{}, fmt.Errorf("look up account of session: %w", err)
	}
	return actor, nil
}

// gate asks everyone who they are, except on the routes that are open. What is
// not registered is no exception.
func (s *Server) gate(next echo.HandlerFunc) echo.HandlerFunc {
	api, pages := s.apiAuth(next), s.session(s.signedIn(next))
	return func(c echo.Context) error {
		switch {
		case s.open[c.Path()]:
			return next(c)
		case isAPI(c):
			return api(c)
		}
		return pages(c)
	}
}

// signedIn sends people without a session to the log-in page, and back afterwards.
func (s *Server) signedIn(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Set("Cache-Control", "no-store")
		if _, ok := c.Get(actorKey).(access.Actor); ok {
			return next(c)
		}
		r := c.Request()
		to := "/login"
		if r.Method == http.MethodGet && r.URL.Path != "/" {
			to += "?" + url.Values{"return": {r.URL.RequestURI()}}.Encode()
		}
		if r.Header.Get("HX-Request") != "" { // a fragment must not become the log-in page
			c.Response().Header().Set("HX-Redirect", "/login")
			return c.NoContent(http.StatusUnauthorized)
		}
		return c.Redirect(http.StatusSeeOther, to)
	}
}

// apiAuth lets a bearer token or a session in. A token that is sent counts, even
// where there is a session as well.
func (s *Server) apiAuth(next echo.HandlerFunc) echo.HandlerFunc {
	withSession := s.session(func(c echo.Context) error {
		if _, ok := c.Get(actorKey).(access.Actor); !ok {
			return errSignedOut
		}
		return next(c)
	})
	return func(c echo.Context) error {
		c.Response().Header().Set("Cache-Control", "no-store")
		header := c.Request().Header.Get(echo.HeaderAuthorization)
		if header == "" {
			return withSession(c)
		}
		secret, ok := bearer(header)
		if !ok {
			return errUnknownToken
		}
		actor, err := s.tokens.actor(c.Request().Context(), secret)
		if err != nil {
			return err
		}
		actor.From = c.RealIP()
		setActor(c, actor)
		return next(c)
	}
}

func bearer(header string) (string, bool) {
	scheme, secret, ok := strings.Cut(header, " ")
	return strings.TrimSpace(secret), ok && strings.EqualFold(scheme, "Bearer")
}

const actorKey = "actor"

func setActor(c echo.Context, a access.Actor) { c.Set(actorKey, a) }

// actorOf is who sent the request. It is only called behind signedIn or apiAuth.
func actorOf(c echo.Context) access.Actor { return c.Get(actorKey).(access.Actor) }

// actorBecause is actorOf with the reason that the request gives.
func actorBecause(c echo.Context, reason string) access.Actor {
	a := actorOf(c)
	a.Reason = strings.TrimSpace(reason)
	return a
}
