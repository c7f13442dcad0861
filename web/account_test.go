package web_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"oncemore/internal/access"
	"oncemore/web"
)

func TestAccountsRefuse(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for _, c := range []struct {
		name, password string
		role           access.Role
		want           error
	}{
		{"ada", "short", access.Viewer, web.ErrBadPassword},
		{"ada", strings.Repeat("x", 129), access.Viewer, web.ErrBadPassword},
		{"", password, access.Viewer, web.ErrBadName},
		{"ada lovelace", password, access.Viewer, web.ErrBadName},
		{".ada", password, access.Viewer, web.ErrBadName},
		{strings.Repeat("a", 65), password, access.Viewer, web.ErrBadName},
		{"ada", password, "root", web.ErrBadRole},
		{"OPERATOR", password, access.Viewer, web.ErrAccountExists},
	} {
		if _, err := s.accounts.Create(t.Context(), access.System(), c.name, c.password, c.role); !errors.Is(err, c.want) {
			t.Errorf("create %q as %s: %v, want %v", c.name, c.role, err, c.want)
		}
	}
	for name, err := range map[string]error{
		"disable":  s.accounts.Disable(t.Context(), access.System(), "nobody"),
		"role":     s.accounts.SetRole(t.Context(), access.System(), "nobody", access.Viewer),
		"password": s.accounts.SetPassword(t.Context(), access.System(), "nobody", password),
	} {
		if !errors.Is(err, web.ErrNoAccount) {
			t.Errorf("%s of nobody: %v, want ErrNoAccount", name, err)
		}
	}
}

func TestOnlyAdminsManageAccounts(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for _, role := range access.Roles {
		actor := access.Actor{User: string(role), Role: role, Via: "session"}
		_, listErr := s.accounts.List(t.Context(), actor)
		_, createErr := s.accounts.Create(t.Context(), actor, "by-"+string(role), password, access.Viewer)
		for what, err := range map[string]error{
			"list": listErr, "create": createErr,
			"role":     s.accounts.SetRole(t.Context(), actor, "viewer", access.Viewer),
			"password": s.accounts.SetPassword(t.Context(), actor, "viewer", password),
			"disable":  s.accounts.Disable(t.Context(), actor, "viewer"),
			"enable":   s.accounts.Enable(t.Context(), actor, "viewer"),
		} {
			if allowed := role == access.Admin; allowed != (err == nil) || (!allowed && !errors.Is(err, access.ErrForbidden)) {
				t.Errorf("%s by %s: %v", what, role, err)
			}
		}
	}
}

func TestAccountCommandsAreAudited(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	if err := s.accounts.SetRole(t.Context(), access.System(), "viewer", access.Operator); err != nil {
		t.Fatal(err)
	}
	if got := s.audited(t, "user.created"); len(got) != len(access.Roles) {
		t.Errorf("%d accounts made, audit holds %v", len(access.Roles), got)
	}
	if got := s.audited(t, "user.role_set"); len(got) != 1 || got[0] != "system user.role_set user/viewer" {
		t.Errorf("audit of the role: %v", got)
	}
	if _, err := s.accounts.Create(t.Context(), access.System(), "operator", password, access.Viewer); err == nil {
		t.Fatal("a name was taken twice")
	}
	if got := s.audited(t, "user.created"); len(got) != len(access.Roles) {
		t.Errorf("a refused command is in the audit log: %v", got)
	}
}

// Somebody who can let others in has to stay, also when two admins take each
// other's rights at the same moment.
func TestTheLastAdminStays(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	if err := s.accounts.Disable(t.Context(), access.System(), "admin"); !errors.Is(err, web.ErrLastAdmin) {
		t.Errorf("disable the last admin: %v", err)
	}
	if err := s.accounts.SetRole(t.Context(), access.System(), "admin", access.Operator); !errors.Is(err, web.ErrLastAdmin) {
		t.Errorf("take the last admin's role: %v", err)
	}
	if _, err := s.accounts.Create(t.Context(), access.System(), "second", password, access.Admin); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, name := range []string{"admin", "second"} {
		wg.Go(func() { errs[i] = s.accounts.Disable(t.Context(), access.System(), name) })
	}
	wg.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("two admins at once: %v and %v, want exactly one to stay", errs[0], errs[1])
	}
}

func TestPasswordsAreHashed(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	var hash string
	if err := s.pool.QueryRow(t.Context(), "select password_hash from app_user where name = 'admin'").Scan(&hash); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("stored as %.40s", hash)
	}
}
