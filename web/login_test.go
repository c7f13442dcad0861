package web_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"oncemore/internal/access"
	"oncemore/web"
)

func loginForm(user, pass, back string) url.Values {
	return url.Values{"user": {user}, "password": {pass}, "return": {back}}
}

func TestPagesAskForALogin(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	r := s.get(t, s.browser(t), "/letters?state=open")
	if r.status != http.StatusSeeOther || r.header.Get("Location") != "/login?return=%2Fletters%3Fstate%3Dopen" {
		t.Errorf("a page without a session: %d to %q", r.status, r.header.Get("Location"))
	}
}

func TestLoginReturnsToOwnPathsOnly(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for back, want := range map[string]string{
		"":                              "/",
		"/letters?state=open":           "/letters?state=open",
		"https://evil.example/":         "/",
		"//evil.example/":               "/",
		"/\\evil.example/":              "/",
		"\\\\evil.example":              "/",
		"/\t/evil.example":              "/",
		"javascript:alert(1)":           "/",
		"/login?return=/letters":        "/",
		"/%2f%2fevil.example":           "/",
		"letters":                       "/",
		"https:evil.example":            "/",
		"/letters\r\nSet-Cookie: a=b":   "/",
		"http://user@evil.example/path": "/",
	} {
		r := s.post(t, s.browser(t), "/login", loginForm("operator", password, back))
		if got := r.header.Get("Location"); r.status != http.StatusSeeOther || got != want {
			t.Errorf("return to %q: %d to %q, want %q", back, r.status, got, want)
		}
	}
}

func TestSessionCookieIsClosed(t *testing.T) {
	t.Parallel()
	s := setupSite(t, func(d *web.Deps) { d.Secure = true })
	r := s.post(t, s.browser(t), "/login", loginForm("operator", password, ""))
	cookie := r.header.Get("Set-Cookie")
	for _, want := range []string{"oncemore_session=", "HttpOnly", "SameSite=Lax", "Secure", "Path=/"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("session cookie %q lacks %s", cookie, want)
		}
	}
	if r.header.Get("Strict-Transport-Security") == "" {
		t.Error("no HSTS over TLS")
	}
}

// A token from before the log-in, such as one that somebody else planted, must
// not become worth something.
func TestLoginRenewsTheSession(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	planted := s.sessionCookie(t, s.signIn(t, access.Viewer))
	victim := s.browser(t)
	victim.Jar.SetCookies(s.url(t), []*http.Cookie{planted})
	if r := s.post(t, victim, "/login", loginForm("admin", password, "")); r.status != http.StatusSeeOther {
		t.Fatalf("log in over a planted session: %d", r.status)
	}
	if got := s.sessionCookie(t, victim); got.Value == planted.Value {
		t.Error("the session kept its token over a log-in")
	}
	attacker := s.browser(t)
	attacker.Jar.SetCookies(s.url(t), []*http.Cookie{planted})
	if r := s.get(t, attacker, "/api/v1/audit"); r.status != http.StatusUnauthorized {
		t.Errorf("the planted token is worth a %d after the log-in, want 401", r.status)
	}
}

// What lies in the database must not open a session.
func TestSessionTokensAreHashed(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	cookie := s.sessionCookie(t, s.signIn(t, access.Admin))
	var stored string
	if err := s.pool.QueryRow(t.Context(), "select token from sessions").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if stored == cookie.Value {
		t.Error("sessions.token is the cookie itself")
	}
}

func TestExpiredSessionsAreSwept(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	old := s.signIn(t, access.Viewer)
	if _, err := s.pool.Exec(t.Context(), "update sessions set expiry = now() - interval '1 second'"); err != nil {
		t.Fatal(err)
	}
	if r := s.get(t, old, "/api/v1/audit"); r.status != http.StatusUnauthorized {
		t.Errorf("an expired session: %d, want 401", r.status)
	}
	s.signIn(t, access.Operator)
	var n int
	if err := s.pool.QueryRow(t.Context(), "select count(*) from sessions").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n != 1 {
		t.Errorf("%d sessions are kept, want the live one", n)
	}
}

func TestLogoutEndsTheSessionOnTheServer(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.signIn(t, access.Operator)
	cookie := s.sessionCookie(t, b)
	if r := s.post(t, b, "/logout", nil); r.status != http.StatusSeeOther {
		t.Fatalf("log out: %d", r.status)
	}
	b.Jar.SetCookies(s.url(t), []*http.Cookie{cookie})
	if r := s.get(t, b, "/api/v1/audit"); r.status != http.StatusUnauthorized {
		t.Errorf("the old cookie gives %d after the log-out, want 401", r.status)
	}
	if got := s.audited(t, "session.ended"); len(got) != 1 {
		t.Errorf("audit of the log-out: %v", got)
	}
}

// Whatever takes rights from an account ends its sessions at once.
func TestAccountChangesEndSessions(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	ctx := t.Context()
	for name, change := range map[string]func(user string) error{
		"disable":  func(u string) error { return s.accounts.Disable(ctx, access.System(), u) },
		"role":     func(u string) error { return s.accounts.SetRole(ctx, access.System(), u, access.Viewer) },
		"password": func(u string) error { return s.accounts.SetPassword(ctx, access.System(), u, "another password") },
	} {
		user := "somebody-" + name
		if _, err := s.accounts.Create(ctx, access.System(), user, password, access.Operator); err != nil {
			t.Fatal(err)
		}
		b := s.browser(t)
		s.post(t, b, "/login", loginForm(user, password, ""))
		if r := s.get(t, b, "/api/v1/audit"); r.status != http.StatusOK {
			t.Fatalf("%s: signed in, but %d: %s", name, r.status, r.body)
		}
		if err := change(user); err != nil {
			t.Fatal(err)
		}
		if r := s.get(t, b, "/api/v1/audit"); r.status != http.StatusUnauthorized {
			t.Errorf("%s: the session still gives %d, want 401", name, r.status)
		}
	}
}

func TestWrongLoginSaysNotWhich(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	if err := s.accounts.Disable(t.Context(), access.System(), "reviewer"); err != nil {
		t.Fatal(err)
	}
	replies := map[string]reply{}
	for name, form := range map[string]url.Values{
		"unknown":  loginForm("nobody", password, ""),
		"wrong":    loginForm("operator", "wrong password", ""),
		"disabled": loginForm("reviewer", password, ""),
		"empty":    loginForm("", "", ""),
		"zero":     loginForm("oper\x00ator", "pass\x00word", ""),
		"broken":   loginForm("oper\xffator", "\xff", ""),
	} {
		r := s.post(t, s.browser(t), "/login", form)
		if r.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d, want 422: %s", name, r.status, r.body)
		}
		replies[name] = r
	}
	same := func(name, user string) string {
		return strings.ReplaceAll(replies[name].body, `value="`+user+`"`, `value=""`)
	}
	if same("unknown", "nobody") != same("wrong", "operator") || same("wrong", "operator") != same("disabled", "reviewer") {
		t.Error("the page differs between unknown, wrong and disabled")
	}
}

// An unknown account must take as long as a wrong password: both compute a hash.
func TestUnknownAccountTakesAsLong(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	fastest := map[string]time.Duration{}
	for range 4 { // in turns, so that a busy machine is slow for both
		for _, user := range []string{"operator", "nobody"} {
			began := time.Now()
			s.post(t, s.browser(t), "/login", loginForm(user, "wrong password", ""))
			if took := time.Since(began); fastest[user] == 0 || took < fastest[user] {
				fastest[user] = took
			}
		}
	}
	if fastest["nobody"] < fastest["operator"]/3 {
		t.Errorf("an unknown account answers in %v, a known one in %v", fastest["nobody"], fastest["operator"])
	}
}

func TestRepeatedFailuresLockOut(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browser(t)
	for i := range 5 {
		if r := s.post(t, b, "/login", loginForm("operator", "wrong password", "")); r.status != http.StatusUnprocessableEntity {
			t.Fatalf("attempt %d: %d, want 422", i+1, r.status)
		}
	}
	r := s.post(t, b, "/login", loginForm("operator", password, ""))
	if r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") == "" {
		t.Fatalf("the right password after five wrong ones: %d, want 429", r.status)
	}
	until := s.clock.Now().Add(15 * time.Minute).In(time.Local).Format("15:04")
	if !strings.Contains(r.body, until) {
		t.Errorf("the page does not say that the lock ends at %s: %s", until, r.body)
	}
	if r := s.post(t, b, "/login", loginForm("viewer", password, "")); r.status != http.StatusSeeOther {
		t.Errorf("another account from there: %d, want 303", r.status)
	}
	s.clock.Add(15*time.Minute + time.Second)
	if r := s.post(t, b, "/login", loginForm("operator", password, "")); r.status != http.StatusSeeOther {
		t.Errorf("after the lock: %d, want 303", r.status)
	}
}

func TestUnknownAccountsLockOutAlike(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for range 5 {
		s.post(t, s.browser(t), "/login", loginForm("nobody", "wrong password", ""))
	}
	if r := s.post(t, s.browser(t), "/login", loginForm("nobody", "wrong password", "")); r.status != http.StatusTooManyRequests {
		t.Errorf("an account that does not exist: %d, want 429 as for one that does", r.status)
	}
}

// Guesses sent side by side must not get past the limit.
func TestLockOutHoldsUnderConcurrency(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	var mu sync.Mutex
	seen := map[int]int{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			r := s.post(t, s.browser(t), "/login", loginForm("operator", "wrong password", ""))
			mu.Lock()
			defer mu.Unlock()
			seen[r.status]++
		})
	}
	wg.Wait()
	if seen[http.StatusUnprocessableEntity] != 5 || seen[http.StatusTooManyRequests] != 15 {
		t.Errorf("20 guesses at once: %v, want 5 looked at and 15 refused", seen)
	}
}

func TestSuccessForgetsFailures(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for range 3 {
		for range 4 {
			s.post(t, s.browser(t), "/login", loginForm("operator", "wrong password", ""))
		}
		if r := s.post(t, s.browser(t), "/login", loginForm("operator", password, "")); r.status != http.StatusSeeOther {
			t.Fatalf("the right password after four wrong ones: %d", r.status)
		}
	}
}

// One address that tries many accounts is locked too, and a forged
// X-Forwarded-For gives it no new address.
func TestAddressLocksOut(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	var last reply
	for i := range 51 {
		r := s.request(t, http.MethodPost, "/login", loginForm(fmt.Sprintf("user%d", i), "x", "").Encode())
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i))
		last = s.do(t, http.DefaultClient, r)
	}
	if last.status != http.StatusTooManyRequests {
		t.Errorf("the 51st account from one address: %d, want 429", last.status)
	}
}

// Only a proxy that the config names may say where a request came from.
func TestTrustedProxies(t *testing.T) {
	t.Parallel()
	s := setupSite(t, func(d *web.Deps) { d.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	r := s.request(t, http.MethodPost, "/login", loginForm("operator", password, "").Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-For", "203.0.113.66, 198.51.100.7")
	if got := s.do(t, s.browser(t), r); got.status != http.StatusSeeOther {
		t.Fatalf("log in through a proxy: %d", got.status)
	}
	var from string
	if err := s.pool.QueryRow(t.Context(), "select from_addr from audit_log where action = 'session.started'").Scan(&from); err != nil {
		t.Fatal(err)
	}
	if from != "198.51.100.7" {
		t.Errorf("the log-in is from %s, want what the proxy added, not what the client sent", from)
	}
}

func TestLoginsAreAudited(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.signIn(t, access.Operator)
	s.post(t, s.browser(t), "/login", loginForm("operator", "wrong password", ""))
	s.post(t, s.browser(t), "/login", loginForm("my-secret-password", "operator", ""))
	if got := s.audited(t, "session.started"); len(got) != 1 || got[0] != "operator session.started user/operator" {
		t.Errorf("log-ins: %v", got)
	}
	refused := s.audited(t, "session.refused")
	if len(refused) != 2 || refused[0] != "unknown session.refused " || refused[1] != "operator session.refused user/operator" {
		t.Errorf("refused log-ins, without names of no account: %v", refused)
	}
	if strings.Contains(s.log.String(), "my-secret-password") {
		t.Error("the log holds what was typed as a name")
	}
}

func (s *site) url(t *testing.T) *url.URL {
	t.Helper()
	u, err := url.Parse(s.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (s *site) sessionCookie(t *testing.T, b *http.Client) *http.Cookie {
	t.Helper()
	for _, c := range b.Jar.Cookies(s.url(t)) {
		if c.Name == "oncemore_session" {
			return c
		}
	}
	t.Fatal("no session cookie")
	return nil
}
