package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/views/locale"
	"oncemore/web"
)

// address fills a route's parameters with something.
func address(route string) string {
	for name, value := range map[string]string{
		":id": "1", ":group": "points", ":no": "1", ":bodyID": "01932f00-0000-7000-8000-000000000000", "*": "app.css",
	} {
		route = strings.ReplaceAll(route, name, value)
	}
	return route
}

func TestSecurityHeadersOnEveryRoute(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for _, route := range s.server.Routes() {
		if route.Method != http.MethodGet && route.Method != http.MethodPost {
			continue
		}
		r := s.do(t, s.browser(t), s.request(t, route.Method, address(route.Path), ""))
		csp := r.header.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(csp, "unsafe") ||
			!strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s %s: policy %q", route.Method, route.Path, csp)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin"} {
			if got := r.header.Get(header); got != want {
				t.Errorf("%s %s: %s is %q", route.Method, route.Path, header, got)
			}
		}
		if r.header.Get("X-Request-Id") == "" {
			t.Errorf("%s %s: no request id", route.Method, route.Path)
		}
	}
}

// Without a log-in nothing answers but what has to.
func TestNothingIsOpenByAccident(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	open := regexp.MustCompile(`^/(healthz|readyz|metrics|static/\*|login|logout|preferences)$`)
	for _, route := range s.server.Routes() {
		if open.MatchString(route.Path) || route.Method == echo.RouteNotFound {
			continue
		}
		r := s.do(t, s.browser(t), s.request(t, route.Method, address(route.Path), ""))
		switch {
		case strings.HasPrefix(route.Path, "/api/"):
			if r.status != http.StatusUnauthorized {
				t.Errorf("%s %s: %d, want 401", route.Method, route.Path, r.status)
			}
			r.problem(t)
		case r.status != http.StatusSeeOther || !strings.HasPrefix(r.header.Get("Location"), "/login"):
			t.Errorf("%s %s: %d to %q, want the log-in page", route.Method, route.Path, r.status, r.header.Get("Location"))
		}
	}
}

// A request that another site makes the browser send is refused, on every route
// that changes something, before anything else looks at it.
func TestCrossSiteRequestsAreRefused(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.signIn(t, access.Admin)
	forged := map[string]map[string]string{
		"fetch metadata": {"Sec-Fetch-Site": "cross-site"},
		"same site":      {"Sec-Fetch-Site": "same-site"},
		"origin":         {"Origin": "https://evil.example"},
		"opaque origin":  {"Origin": "null"},
	}
	for _, route := range s.server.Routes() {
		if route.Method == http.MethodGet || route.Method == http.MethodHead || route.Method == echo.RouteNotFound {
			continue
		}
		for how, headers := range forged {
			req := s.request(t, route.Method, address(route.Path), "")
			for name, value := range headers {
				req.Header.Set(name, value)
			}
			if r := s.do(t, b, req); r.status != http.StatusForbidden {
				t.Errorf("%s %s, %s: %d, want 403", route.Method, route.Path, how, r.status)
			}
		}
	}
	if r := s.get(t, b, "/api/v1/audit"); r.status != http.StatusOK {
		t.Errorf("the session ended by a forged log-out: %d", r.status)
	}
}

// An Authorization header that is none must not switch the protection off.
func TestCrossSiteWithABogusAuthorization(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.signIn(t, access.Admin)
	for _, path := range []string{"/logout", "/api/v1/consumers/points/pause"} {
		for _, header := range []string{"Basic abc", "Bearer", "Bearer x"} {
			req := s.request(t, http.MethodPost, path, "")
			req.Header.Set("Authorization", header)
			req.Header.Set("Sec-Fetch-Site", "cross-site")
			if r := s.do(t, b, req); r.status != http.StatusForbidden && r.status != http.StatusUnauthorized {
				t.Errorf("%s with %q: %d", path, header, r.status)
			}
		}
	}
	if r := s.get(t, b, "/api/v1/audit"); r.status != http.StatusOK {
		t.Errorf("the session did not survive: %d", r.status)
	}
}

func TestUnknownAddresses(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	token := s.token(t, access.Viewer)
	r := s.call(t, token, http.MethodGet, "/api/v1/nothing", "")
	if r.status != http.StatusNotFound {
		t.Errorf("an unknown address of the API: %d", r.status)
	}
	r.problem(t)
	r = s.call(t, token, http.MethodDelete, "/api/v1/letters", "")
	if r.status != http.StatusMethodNotAllowed {
		t.Errorf("an unknown method: %d", r.status)
	}
	r.problem(t)
	if r := s.get(t, s.signIn(t, access.Viewer), "/nothing"); r.status != http.StatusNotFound || !strings.Contains(r.body, "Not found") {
		t.Errorf("an unknown page: %d %s", r.status, r.body)
	}
}

func TestUnforeseenErrorsStayInTheLog(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.server.Handle(http.MethodGet, "/api/broken", func(echo.Context) error { return errors.New("relation secret does not exist") })
	s.server.Handle(http.MethodGet, "/panics", func(echo.Context) error { panic("secret nil map") })
	for _, path := range []string{"/api/broken", "/panics"} {
		r := s.get(t, s.browser(t), path)
		id := r.header.Get("X-Request-Id")
		if r.status != http.StatusInternalServerError || !strings.Contains(r.body, id) || strings.Contains(r.body, "secret") {
			t.Errorf("%s: %d, request id %s: %s", path, r.status, id, r.body)
		}
		if log := s.log.String(); !strings.Contains(log, id) || !strings.Contains(log, "secret") {
			t.Errorf("%s: the log does not hold the cause under %s: %s", path, id, log)
		}
	}
}

func TestLargeBodiesAreRefused(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	body := `{"reason":"` + strings.Repeat("x", 2<<20) + `"}`
	r := s.call(t, s.token(t, access.Admin), http.MethodPost, "/api/v1/consumers/points/pause", body)
	if r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("2 MiB: %d, want 413", r.status)
	}
	r.problem(t)
	req := s.request(t, http.MethodPost, "/api/v1/consumers/points/pause", body)
	req.ContentLength = -1 // the length comes with no promise
	req.Header.Set("Authorization", "Bearer "+s.token(t, access.Admin))
	req.Header.Set("Content-Type", "application/json")
	if r := s.do(t, http.DefaultClient, req); r.status != http.StatusRequestEntityTooLarge {
		t.Errorf("2 MiB of unsaid length: %d, want 413", r.status)
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	started := errors.New("still starting")
	s := setupSite(t, func(d *web.Deps) { d.Ready = readyUnless(&started) })
	if r := s.get(t, s.browser(t), "/healthz"); r.status != http.StatusOK {
		t.Errorf("healthz: %d", r.status)
	}
	if r := s.get(t, s.browser(t), "/readyz"); r.status != http.StatusServiceUnavailable || strings.Contains(r.body, "still starting") {
		t.Errorf("readyz before the parts started: %d %s", r.status, r.body)
	}
	started = nil
	if r := s.get(t, s.browser(t), "/readyz"); r.status != http.StatusOK {
		t.Errorf("readyz: %d %s", r.status, r.body)
	}
	s.pool.Close()
	if r := s.get(t, s.browser(t), "/readyz"); r.status != http.StatusServiceUnavailable {
		t.Errorf("readyz without a database: %d", r.status)
	}
}

// Without its database the console still says which lines of its log to read.
func TestNoDatabaseNamesTheRequest(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	viewer := s.signIn(t, access.Viewer)
	s.pool.Close()
	r := s.get(t, viewer, "/faults")
	id := r.header.Get("X-Request-Id")
	if r.status != http.StatusInternalServerError || id == "" || !strings.Contains(r.body, id) || !strings.Contains(s.log.String(), `msg="request failed" request_id=`+id) {
		t.Errorf("%d, id %q, log %s, page %s", r.status, id, s.log, r.body)
	}
}

func TestReadinessAsksForMigrations(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	if _, err := s.pool.Exec(t.Context(), "delete from goose_db_version where version_id = (select max(version_id) from goose_db_version)"); err != nil {
		t.Fatal(err)
	}
	if r := s.get(t, s.browser(t), "/readyz"); r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "1 migrations are pending") {
		t.Errorf("readyz with a migration missing: %d %s", r.status, r.body)
	}
}

func TestStaticFilesAreKept(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	page := s.get(t, s.browser(t), "/login").body
	path := regexp.MustCompile(`/static/[0-9a-f]+/app\.css`).FindString(page)
	if path == "" {
		t.Fatalf("the log-in page names no style sheet: %s", page)
	}
	r := s.get(t, s.browser(t), path)
	if r.status != http.StatusOK || !strings.Contains(r.header.Get("Cache-Control"), "immutable") {
		t.Errorf("%s: %d, Cache-Control %q", path, r.status, r.header.Get("Cache-Control"))
	}
	if r := s.get(t, s.browser(t), "/static/../server.go"); r.status == http.StatusOK {
		t.Error("a file outside static is served")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	s.get(t, s.browser(t), "/healthz")
	r := s.get(t, s.browser(t), "/metrics")
	if !strings.Contains(r.body, `oncemore_http_request_seconds_count{method="GET",route="/healthz",status="200"} 1`) {
		t.Errorf("the request is not counted: %s", r.body)
	}
}

func TestPreferences(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	b := s.browser(t)
	r := s.post(t, b, "/preferences", url.Values{"lang": {"zh-Hans"}, "theme": {"dark"}, "return": {"/login?return=%2Fletters"}})
	if r.status != http.StatusSeeOther || r.header.Get("Location") != "/login?return=%2Fletters" {
		t.Fatalf("preferences: %d to %q", r.status, r.header.Get("Location"))
	}
	page := s.get(t, b, "/login").body
	if !strings.Contains(page, `<html lang="zh-Hans"`) || !strings.Contains(page, `data-theme="dark"`) {
		t.Errorf("the page is not dark and Chinese: %.300s", page)
	}
	for _, form := range []url.Values{{"lang": {"tlh"}}, {"theme": {"<script>"}}} {
		if r := s.post(t, b, "/preferences", form); r.status != http.StatusUnprocessableEntity {
			t.Errorf("%v: %d, want 422", form, r.status)
		}
	}
	if r := s.post(t, b, "/preferences", url.Values{"return": {"//evil.example"}}); r.header.Get("Location") != "/" {
		t.Errorf("preferences lead to %q", r.header.Get("Location"))
	}
}

func TestLanguageOfTheBrowser(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	for header, want := range map[string]string{"": "en", "zh-CN,zh;q=0.9": "zh-Hans", "de,en;q=0.5": "en", ";;;,=": "en"} {
		req := s.request(t, http.MethodGet, "/login", "")
		req.Header.Set("Accept-Language", header)
		if r := s.do(t, s.browser(t), req); !strings.Contains(r.body, fmt.Sprintf(`<html lang=%q`, want)) {
			t.Errorf("Accept-Language %q: %.80s", header, r.body)
		}
	}
}

func TestEveryProblemHasItsWords(t *testing.T) {
	t.Parallel()
	for _, key := range web.ProblemKeys() {
		for _, part := range []string{".title", ".detail"} {
			if !locale.Has(key + part) {
				t.Errorf("the catalog lacks %s", key+part)
			}
		}
	}
}

func TestServeStopsInOrder(t *testing.T) {
	t.Parallel()
	s := setupSite(t)
	stop, stopped := s.serve(t)
	stop()
	select {
	case err := <-stopped:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(15 * time.Second):
		t.Error("Serve does not end")
	}
}
