package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// loginForm is what the log-in page shows.
type loginForm struct {
	User        string // as typed
	Return      string // own path to go to afterwards
	Wrong       bool   // name or password, it does not say which
	LockedUntil time.Time
}

func (s *Server) loginPage(c echo.Context) error {
	form := loginForm{Return: ownPath(c.QueryParam("return"))}
	if _, ok := c.Get(actorKey).(access.Actor); ok {
		return c.Redirect(http.StatusSeeOther, form.Return)
	}
	return s.renderLogin(c, http.StatusOK, form)
}

// login answers 303 to where the person wanted to go, 422 for a wrong name or
// password, and 429 while the account or the address is locked.
func (s *Server) login(c echo.Context) error {
	name, password := c.FormValue("user"), c.FormValue("password")
	form := loginForm{User: name, Return: ownPath(c.FormValue("return"))}
	err := s.signIn(c, strings.ToLower(strings.TrimSpace(name)), password)
	var locked *lockedError
	switch {
	case errors.As(err, &locked):
		form.LockedUntil = locked.until
		c.Response().Header().Set("Retry-After", fmt.Sprint(int(locked.until.Sub(s.Clock()).Seconds())+1))
		return s.renderLogin(c, http.StatusTooManyRequests, form)
	case errors.Is(err, errWrongLogin):
		form.Wrong = true
		return s.renderLogin(c, http.StatusUnprocessableEntity, form)
	case err != nil:
		return err
	}
	return c.Redirect(http.StatusSeeOther, form.Return)
}

var errWrongLogin = errors.New("web: wrong name or password")

const sqlLoginAccount = `
SELECT id, name, role, password_hash, session_epoch
FROM app_user
WHERE name = @name AND disabled_at IS NULL`

type loginAccount struct {
	ID           int64
	Name         string
	Role         access.Role
	PasswordHash string
	SessionEpoch int
}

// signIn checks the password and puts the account into a renewed session. An
// unknown or disabled account takes as long as a wrong password.
func (s *Server) signIn(c echo.Context, name, password string) error {
	ctx := c.Request().Context()
	if err := s.logins.begin(ctx, name, c.RealIP()); err != nil {
		return err
	}
	rows, err := s.Pool.Query(ctx, sqlLoginAccount, pgx.NamedArgs{"name": storable(name)})
	if err != nil {
		return fmt.Errorf("look up account: %w", err)
	}
	found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[loginAccount])
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look up account: %w", err)
	}
	ok, err := matches(password, found.PasswordHash)
	if err != nil {
		return err
	}
	actor := access.Actor{User: found.Name, Role: found.Role, Via: "session", From: c.RealIP()}
	if !ok {
		return errors.Join(errWrongLogin, s.noteFailedLogin(c, actor))
	}
	if err := s.sessions.RenewToken(ctx); err != nil { // a token from before the log-in must not become worth something
		return fmt.Errorf("renew session: %w", err)
	}
	s.sessions.Put(ctx, sessionUser, found.ID)
	s.sessions.Put(ctx, sessionEpoch, found.SessionEpoch)
	return s.noteLogin(c, actor)
}

const sqlLoggedIn = `UPDATE app_user SET last_login_at = now() WHERE name = @name`

const sqlSessionsSwept = `DELETE FROM sessions WHERE expiry < now()`

func (s *Server) noteLogin(c echo.Context, actor access.Actor) error {
	ctx := c.Request().Context()
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLoggedIn, pgx.NamedArgs{"name": actor.User}); err != nil {
			return fmt.Errorf("note log-in: %w", err)
		}
		if _, err := tx.Exec(ctx, sqlSessionsSwept); err != nil {
			return fmt.Errorf("sweep sessions: %w", err)
		}
		if err := s.logins.succeeded(ctx, tx, actor.User, actor.From); err != nil {
			return err
		}
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "session.started", Target: "user/" + actor.User})
	})
}

// noteFailedLogin names the account only if it exists: people type passwords
// into the field of the name.
func (s *Server) noteFailedLogin(c echo.Context, actor access.Actor) error {
	target := "user/" + actor.User
	if actor.User == "" {
		actor.User, target = "unknown", ""
	}
	return s.note(c, actor, audit.Entry{Action: "session.refused", Target: target})
}

func (s *Server) logout(c echo.Context) error {
	ctx := c.Request().Context()
	if actor, ok := c.Get(actorKey).(access.Actor); ok {
		if err := s.note(c, actor, audit.Entry{Action: "session.ended", Target: "user/" + actor.User}); err != nil {
			return err
		}
	}
	if err := s.sessions.Destroy(ctx); err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	return c.Redirect(http.StatusSeeOther, "/login")
}

// note writes one audit row in a transaction of its own, also for somebody who
// did not wait for the answer.
func (s *Server) note(c echo.Context, actor access.Actor, e audit.Entry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), 5*time.Second)
	defer cancel()
	return pgx.BeginFunc(ctx, s.Pool, func(tx pgx.Tx) error { return audit.Write(ctx, tx, actor, e) })
}

// ownPath is where to go after a log-in: a path of this site that is no log-in
// page, never another site's.
func ownPath(to string) string {
	if to = backTo(to); strings.HasPrefix(to, "/login") {
		return "/"
	}
	return to
}

// backTo is to where it is a path of this site, else the first page. Browsers
// read a backslash as a slash, drop tabs and line breaks, and take what follows
// two slashes for a host.
func backTo(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/") ||
		strings.HasPrefix(to, "//") || strings.HasPrefix(u.Path, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		return "/"
	}
	return to
}
