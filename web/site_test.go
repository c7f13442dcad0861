package web_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/internal/fleet"
	"oncemore/migrations/pgtest"
	"oncemore/reconcile"
	"oncemore/web"
)

const password = "correct horse battery"

// site is a console on a database of its own with one account per role, named
// after the role.
type site struct {
	pool     *pgxpool.Pool
	server   *web.Server
	http     *httptest.Server
	accounts *web.Accounts
	tokens   *web.Tokens
	clock    *clock
	log      *buffer
}

// clock stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// buffer is a log that a test can read while the server writes.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func setupSite(t testing.TB, change ...func(*web.Deps)) *site {
	t.Helper()
	s := &site{pool: pgtest.New(t), clock: &clock{now: time.Now()}, log: &buffer{}}
	s.accounts, s.tokens = web.NewAccounts(s.pool), web.NewTokens(s.pool, s.clock.Now)
	for _, role := range access.Roles {
		if _, err := s.accounts.Create(t.Context(), access.System(), string(role), password, role); err != nil {
			t.Fatal(err)
		}
	}
	d := web.Deps{
		Pool: s.pool, Environment: "test", Clusters: []string{"shop-kafka"}, Version: "test", Fleet: fleet.New(s.pool, fleet.Options{}),
		Logger: slog.New(slog.NewTextHandler(s.log, nil)), Clock: s.clock.Now, Registry: prometheus.NewRegistry(),
	}
	jobs := reconcile.NewJobs(s.pool)
	runs, err := reconcile.NewRuns(s.pool, jobs, nil, reconcile.Options{Clock: s.clock.Now, Log: d.Logger})
	if err != nil {
		t.Fatal(err)
	}
	d.Reconcile = web.Reconciliation{Jobs: jobs, Runs: runs, Breaks: reconcile.NewBreaks(s.pool)}
	d.Compensations, err = compensate.New(compensate.Config{Pool: s.pool, Actions: compensate.NewActions(s.pool), Runs: runs, Breaks: d.Reconcile.Breaks, Jobs: jobs, Clock: s.clock.Now, Log: d.Logger})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&d)
	}
	s.server = web.New(d)
	t.Cleanup(s.server.Close)
	s.http = httptest.NewServer(s.server.Handler())
	t.Cleanup(s.http.Close)
	return s
}

// token makes a token of the account that is named after the role.
func (s *site) token(t testing.TB, role access.Role) string {
	t.Helper()
	secret, _, err := s.tokens.Create(t.Context(), access.System(), web.NewToken{User: string(role), Name: "test", Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

// operator is the token that most tests use.
func (s *site) operator(t testing.TB) string { return s.token(t, access.Operator) }

// browser keeps cookies, follows nothing, and says where its requests come from
// as browsers do.
func (s *site) browser(t testing.TB) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// signIn gives a browser in which the account of the role is signed in.
func (s *site) signIn(t testing.TB, role access.Role) *http.Client {
	t.Helper()
	b := s.browser(t)
	r := s.post(t, b, "/login", url.Values{"user": {string(role)}, "password": {password}})
	if r.status != http.StatusSeeOther {
		t.Fatalf("sign in as %s: %d %s", role, r.status, r.body)
	}
	return b
}

type reply struct {
	status int
	header http.Header
	body   string
}

// problem reads the reply as problem+json, and insists that it is.
func (r reply) problem(t testing.TB) map[string]any {
	t.Helper()
	if ct := r.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("%d with Content-Type %q, want a problem: %s", r.status, ct, r.body)
	}
	var p map[string]any
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("problem: %v: %s", err, r.body)
	}
	if p["status"] != float64(r.status) || p["title"] == "" || p["request_id"] != r.header.Get("X-Request-Id") {
		t.Fatalf("problem of a %d is %s", r.status, r.body)
	}
	return p
}

func (s *site) do(t testing.TB, client *http.Client, r *http.Request) reply {
	t.Helper()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func (s *site) request(t testing.TB, method, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.http.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *site) get(t testing.TB, client *http.Client, path string) reply {
	t.Helper()
	return s.do(t, client, s.request(t, http.MethodGet, path, ""))
}

// post sends a form as a page of the site does.
func (s *site) post(t testing.TB, client *http.Client, path string, form url.Values) reply {
	t.Helper()
	r := s.request(t, http.MethodPost, path, form.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return s.do(t, client, r)
}

// call sends a request to the API with a token; body "" is none.
func (s *site) call(t testing.TB, token, method, path, body string) reply {
	t.Helper()
	r := s.request(t, method, path, body)
	r.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return s.do(t, http.DefaultClient, r)
}

// audited returns the newest entries of the audit log, as "actor action target".
func (s *site) audited(t testing.TB, action string) []string {
	t.Helper()
	rows, err := s.pool.Query(t.Context(), "select actor || ' ' || action || ' ' || target from audit_log where action = $1 order by id desc", action)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}
