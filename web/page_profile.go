package web

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/views"
)

// policyActs is the order of the policy table on the page.
var policyActs = []access.Act{
	access.Read, access.ReadPayload, access.PlanReplay, access.StartReplay, access.ApproveReplay,
	access.ProposeJob, access.ApproveJob,
	access.PauseConsumer, access.AckAlert, access.RunChecks, access.MuteCheck, access.TestAlert, access.Configure, access.ManageTokens, access.ManageUsers,
}

func (s *Server) profilePage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	return s.showProfile(c, views.Profile{}, http.StatusOK)
}

// showProfile fills in what every showing of the page has.
func (s *Server) showProfile(c echo.Context, v views.Profile, status int) error {
	here, actor := localeOf(c), actorOf(c)
	tokens, err := s.tokens.List(c.Request().Context(), actor, actor.User)
	if err != nil {
		return fmt.Errorf("list tokens: %w", err)
	}
	v.Frame = s.pageFrame(c, "profile", here.Text("profile.title"), views.Crumb{Label: here.Text("profile.title")})
	v.Path = "/profile"
	for _, t := range tokens {
		v.Tokens = append(v.Tokens, views.TokenRow{ID: t.ID, Name: t.Name, Role: string(t.Role), Created: t.CreatedAt, LastUsed: t.LastUsedAt, Revoked: t.RevokedAt})
	}
	for _, r := range access.Roles {
		if r.AtMost(actor.Role) {
			v.Roles = append(v.Roles, string(r))
		}
	}
	for _, act := range policyActs {
		row := views.ActRow{Act: string(act), Mine: actor.May(act)}
		for _, r := range access.RolesFor(act) {
			row.Roles = append(row.Roles, string(r))
		}
		v.Acts = append(v.Acts, row)
	}
	return render(c, status, views.ProfilePage(v))
}

// tokenCreate answers with the page and not with a redirect: the secret is shown
// this once and stands in no address.
func (s *Server) tokenCreate(c echo.Context) error {
	actor := actorOf(c)
	typed := views.TokenForm{Name: strings.TrimSpace(c.FormValue("name")), Role: c.FormValue("role")}
	secret, _, err := s.tokens.Create(c.Request().Context(), actor, NewToken{User: actor.User, Name: typed.Name, Role: access.Role(typed.Role)})
	for _, sentinel := range []error{ErrTokenName, ErrTokenRole, ErrBadRole} {
		if errors.Is(err, sentinel) {
			p := problemOf(sentinel)
			text := localeOf(c).Text(p.Key+".title") + ". " + localeOf(c).Text(p.Key+".detail")
			return s.showProfile(c, views.Profile{Error: text, Typed: typed}, p.Status)
		}
	}
	if err != nil {
		return fmt.Errorf("make token: %w", err)
	}
	return s.showProfile(c, views.Profile{Fresh: secret}, http.StatusCreated)
}

func (s *Server) tokenRevoke(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return ErrNoToken
	}
	if err := s.tokens.Revoke(c.Request().Context(), actorOf(c), id); err != nil {
		return fmt.Errorf("revoke token %d: %w", id, err)
	}
	return c.Redirect(http.StatusSeeOther, "/profile")
}
