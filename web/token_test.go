package web_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"oncemore/internal/access"
	"oncemore/web"
)

func TestWrongTokens(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	good := s.token(t, access.Viewer)
	for _, header := range []string{
		"Bearer wrong", "Bearer ", "Bearer", "Basic " + good, good, "Bearer " + good + "x", "Bearer " + strings.ToUpper(good),
		"Bearer " + strings.Repeat("x", 10_000),
	} {
		req := s.request(t, http.MethodGet, "/api/v1/audit", "")
		req.Header.Set("Authorization", header)
		r := s.do(t, http.DefaultClient, req)
		if r.status != http.StatusUnauthorized || r.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%.40q: %d", header, r.status)
			continue
		}
		r.problem(t)
	}
	if r := s.call(t, good, http.MethodGet, "/api/v1/audit", ""); r.status != http.StatusOK {
		t.Errorf("the right token: %d %s", r.status, r.body)
	}
}

// A wrong token is refused even where the browser has a session.
func TestTokenCountsBeforeSession(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	req := s.request(t, http.MethodGet, "/api/v1/audit", "")
	req.Header.Set("Authorization", "Bearer wrong")
	if r := s.do(t, s.signIn(t, access.Admin), req); r.status != http.StatusUnauthorized {
		t.Errorf("a wrong token with a session: %d, want 401", r.status)
	}
}

func TestTokensEnd(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	ctx := t.Context()
	secret, token, err := s.tokens.Create(ctx, access.System(), web.NewToken{User: "operator", Name: "ci", Role: access.Viewer, ExpiresAt: s.clock.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	works := func() bool { return s.call(t, secret, http.MethodGet, "/api/v1/audit", "").status == http.StatusOK }
	if !works() {
		t.Fatal("a new token does not work")
	}
	if err := s.accounts.Disable(ctx, access.System(), "operator"); err != nil {
		t.Fatal(err)
	}
	if works() {
		t.Error("the token of a disabled account works")
	}
	if err := s.accounts.Enable(ctx, access.System(), "operator"); err != nil {
		t.Fatal(err)
	}
	if !works() {
		t.Error("the token of an account that is enabled again does not work")
	}
	s.clock.Add(2 * time.Hour)
	if works() {
		t.Error("an expired token works")
	}
	s.clock.Add(-2 * time.Hour)
	if err := s.tokens.Revoke(ctx, access.System(), token.ID); err != nil {
		t.Fatal(err)
	}
	if works() {
		t.Error("a revoked token works")
	}
	if err := s.tokens.Revoke(ctx, access.System(), token.ID); err != nil {
		t.Errorf("revoked twice: %v", err)
	}
	if err := s.tokens.Revoke(ctx, access.System(), 9999); !errors.Is(err, web.ErrNoToken) {
		t.Errorf("revoke what is not there: %v", err)
	}
	if got := s.audited(t, "token.revoked"); len(got) != 1 {
		t.Errorf("audit of the revocation: %v", got)
	}
}

// No token is worth more than its user, nor than who made it: else a viewer's
// token of an admin could make itself an admin's.
func TestTokenRoleIsCapped(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for _, user := range access.Roles {
		for _, maker := range access.Roles {
			for _, role := range access.Roles {
				actor := access.Actor{User: string(user), Role: maker, Via: "token:x"}
				_, _, err := s.tokens.Create(t.Context(), actor, web.NewToken{User: string(user), Name: "t", Role: role})
				want := role.AtMost(user) && role.AtMost(maker)
				if want != (err == nil) || (!want && !errors.Is(err, web.ErrTokenRole)) {
					t.Errorf("account %s through a %s token asks for %s: %v", user, maker, role, err)
				}
			}
		}
	}
}

// A role taken from a user takes the tokens down too.
func TestTokenFollowsItsUserDown(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	token := s.token(t, access.Operator)
	path, body := "/api/v1/consumers/points/pause", `{"reason":"x"}`
	if r := s.call(t, token, http.MethodPost, path, body); r.status != http.StatusNotFound {
		t.Fatalf("an operator's pause of an unknown group: %d %s, want 404", r.status, r.body)
	}
	if err := s.accounts.SetRole(t.Context(), access.System(), "operator", access.Viewer); err != nil {
		t.Fatal(err)
	}
	if r := s.call(t, token, http.MethodPost, path, body); r.status != http.StatusForbidden {
		t.Errorf("the token of somebody who is a viewer now: %d, want 403", r.status)
	}
}

func TestTokensOfOthers(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	operator := access.Actor{User: "operator", Role: access.Operator, Via: "session"}
	if _, _, err := s.tokens.Create(t.Context(), operator, web.NewToken{User: "viewer", Name: "t", Role: access.Viewer}); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("make a token for somebody else: %v", err)
	}
	if _, err := s.tokens.List(t.Context(), operator, "viewer"); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("list somebody else's tokens: %v", err)
	}
	_, theirs, err := s.tokens.Create(t.Context(), access.System(), web.NewToken{User: "viewer", Name: "t", Role: access.Viewer})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.tokens.Revoke(t.Context(), operator, theirs.ID); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("revoke somebody else's token: %v", err)
	}
}

func TestTokenSecretsAreShownOnce(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	secret := s.token(t, access.Admin)
	if !strings.HasPrefix(secret, "om_") || len(secret) < 40 {
		t.Errorf("a secret such as %q", secret)
	}
	var holds bool
	err := s.pool.QueryRow(t.Context(), "select exists (select from api_token t where t::text like '%' || $1 || '%')", secret).Scan(&holds)
	if err != nil {
		t.Fatal(err)
	}
	if holds {
		t.Error("api_token holds the secret")
	}
	s.call(t, secret, http.MethodGet, "/api/v1/audit", "")
	if strings.Contains(s.log.String(), secret) {
		t.Error("the log holds the secret")
	}
}

func TestTokensRefuse(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for _, c := range []struct {
		want web.NewToken
		err  error
	}{
		{web.NewToken{User: "nobody", Name: "t", Role: access.Viewer}, web.ErrNoAccount},
		{web.NewToken{User: "admin", Name: "", Role: access.Viewer}, web.ErrTokenName},
		{web.NewToken{User: "admin", Name: "t", Role: "root"}, web.ErrBadRole},
		{web.NewToken{User: "admin", Name: "t", Role: access.Viewer, ExpiresAt: s.clock.Now()}, web.ErrTokenExpiry},
	} {
		if _, _, err := s.tokens.Create(t.Context(), access.System(), c.want); !errors.Is(err, c.err) {
			t.Errorf("%+v: %v, want %v", c.want, err, c.err)
		}
	}
}

// The audit log tells who stood behind a token.
func TestTokenActsAreTheUsers(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.call(t, s.token(t, access.Viewer), http.MethodPost, "/api/v1/consumers/points/pause", `{"reason":"x"}`)
	var actor, via, from string
	err := s.pool.QueryRow(t.Context(), "select actor, via, from_addr from audit_log where action = 'access.refused'").Scan(&actor, &via, &from)
	if err != nil {
		t.Fatal(err)
	}
	if actor != "viewer" || via != "token:test" || from != "127.0.0.1" {
		t.Errorf("refused attempt of %s via %s from %s", actor, via, from)
	}
}
