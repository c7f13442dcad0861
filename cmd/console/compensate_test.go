package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/compensate"
	"oncemore/migrations/pgtest"
)

const (
	clerkJob = `
job: points
window: {size: 1h, overlap: 10m, grace: 5m}
consumed: {connection: shop, query: 'select event_id, amount, at from consumed where at >= :from and at < :to', lookup: 'select event_id, amount, at from consumed where event_id in (:keys)'}
effect: {connection: shop, query: 'select event_id, amount, at from effect where at >= :from and at < :to', lookup: 'select event_id, amount, at from effect where event_id in (:keys)'}
key: [event_id]
match: {mode: one_to_one, amount: amount, currency: none, consumed_time: at, effect_time: at}
`
	clerkAction = `
action: credit
applies_to: [missing_effect]
kind: http
url: "{{points-api}}/credit/{{key.event_id}}"
`
)

// clerk works at the command line, on a shop that has not credited two events.
type clerk struct {
	*testing.T
	conf    string
	console *pgxpool.Pool
	shop    *pgxpool.Pool
}

func newClerk(t *testing.T) *clerk {
	t.Helper()
	console, business := pgtest.URL(t), pgtest.Empty(t)
	shop := pgtest.Open(t, business)
	role := "r_" + shop.Config().ConnConfig.Database
	reader, err := url.Parse(business)
	if err != nil {
		t.Fatal(err)
	}
	reader.User = url.UserPassword(role, "reader")
	for _, sql := range []string{
		"CREATE TABLE consumed (event_id text, amount numeric, at timestamptz)", "CREATE TABLE effect (event_id text, amount numeric, at timestamptz)",
		"INSERT INTO consumed VALUES ('e-1', 7.50, '2026-09-01 12:01Z'), ('e-2', 20, '2026-09-01 12:02Z')",
		"CREATE ROLE " + role + " LOGIN PASSWORD 'reader'", "GRANT SELECT ON consumed, effect TO " + role,
	} {
		if _, err := shop.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	t.Cleanup(func() {
		if _, err := shop.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	c := &clerk{T: t, conf: filepath.Join(dir, "console.yaml"), console: pgtest.Open(t, console), shop: shop}
	for name, text := range map[string]string{"job.yaml": clerkJob, "action.yaml": clerkAction, "../console.yaml": fmt.Sprintf(`environment: test
database: {url_file: %q}
connections: {shop: {kind: postgres, url_file: %q}}
urls: {points-api: "http://127.0.0.1:9"}
reconcile_dir: %q
`, secretFile(t, console), secretFile(t, reader.String()), filepath.Join(dir, "jobs"))} {
		file := filepath.Join(dir, "jobs", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// does runs a command that has to end with a code and say something, and returns
// what it prints.
func (c *clerk) does(want int, says string, args ...string) string {
	c.Helper()
	var out, stderr bytes.Buffer
	code := run(c.Context(), append(args, "--config", c.conf), &out, &stderr)
	if both := out.String() + stderr.String(); code != want || !regexp.MustCompile(says).MatchString(both) {
		c.Fatalf("%v: exit %d, want %d and %q: %s", args, code, want, says, both)
	}
	return out.String()
}

// reads is does with --json.
func (c *clerk) reads(want int, into any, args ...string) {
	c.Helper()
	if err := json.Unmarshal([]byte(c.does(want, "", append(args, "--json")...)), into); err != nil {
		c.Fatalf("%v: %v", args, err)
	}
}

// becomes puts a compensation into a state, as other people and the engine would.
func (c *clerk) becomes(id int64, state compensate.State) {
	c.Helper()
	_, err := c.console.Exec(c.Context(), "UPDATE compensation SET state = $2, finished_at = CASE WHEN $3 THEN now() END WHERE id = $1", id, state, state.Ended())
	if err != nil {
		c.Fatal(err)
	}
}

// A repair is tried, proposed, looked at and approved at the command line; the
// codes that the commands end with tell a script how it stands.
func TestRepairsAtTheCommandLine(t *testing.T) {
	c := newClerk(t)
	c.does(1, `missing_effect`, "reconcile", "run", "points", "--from", "2026-09-01T12:00:00Z", "--to", "2026-09-01T13:00:00Z")
	var compared struct{ State, Kind string }
	c.reads(1, &compared, "reconcile", "run", "points", "--from", "2026-09-01T12:00:00Z", "--to", "2026-09-01T13:00:00Z")
	if compared.State != "complete" || compared.Kind != "by_hand" {
		t.Errorf("compared: %+v", compared)
	}
	c.does(0, `^$`, "compensate", "list")
	c.does(1, "name the breaks in one way", "compensate", "propose", "credit", "--reason", "closing")
	c.does(1, "name the breaks in one way", "compensate", "propose", "credit", "--reason", "closing", "--break", "1", "--job", "points")
	c.does(1, "job points has no such break", "compensate", "propose", "credit", "--reason", "closing", "--job", "points", "--type", "timing")
	c.does(1, "no such action: none", "compensate", "propose", "none", "--reason", "closing", "--job", "points")
	c.does(0, `(?s)B-\d.*would be proposed.*B-\d.*would be proposed`, "compensate", "propose", "credit", "--reason", "closing", "--job", "points", "--dry-run")
	var made struct{ IDs []int64 }
	c.reads(0, &made, "compensate", "propose", "credit", "--reason", "closing", "--job", "points", "--type", "missing_effect")
	if len(made.IDs) != 2 {
		t.Fatalf("proposed %v", made.IDs)
	}
	one := fmt.Sprint(made.IDs[0])
	c.does(0, `stays: `, "compensate", "propose", "credit", "--reason", "again", "--job", "points", "--dry-run")
	var tried []struct{ Problem string }
	c.reads(0, &tried, "compensate", "propose", "credit", "--reason", "again", "--job", "points", "--dry-run")
	if len(tried) != 2 || !strings.Contains(tried[0].Problem, "this is being repaired") {
		t.Errorf("tried again: %+v", tried)
	}

	c.does(3, `(?s)compensation +C-`+one+`, proposed.*amount +\d.*by .*: closing.*approved +0 of 1.*effect .*POST points-api:/credit/e-\d`, "compensate", "show", one)
	var shown struct {
		State, Hash, Action string
		Attempts            int
	}
	c.reads(3, &shown, "compensate", "show", one)
	if shown.State != "awaiting_approval" || len(shown.Hash) != 64 || shown.Action != "credit" || shown.Attempts != 0 {
		t.Errorf("shown %+v", shown)
	}
	approve := []string{"compensate", "approve", one, "--reason", "right", "--hash"}
	c.does(1, "64 hexadecimal digits", append(approve, "abc")...)
	c.does(1, "somebody else has to approve", append(approve, shown.Hash)...)
	if _, err := c.console.Exec(t.Context(), "UPDATE compensation SET asked_by = 'ada'"); err != nil {
		t.Fatal(err)
	}
	c.does(1, "not what was shown", append(approve, strings.Repeat("0", 64))...)
	c.does(0, `^$`, append(approve, shown.Hash)...)
	c.does(3, `(?s), approved.*approved +1 of 1.*approval .*: right`, "compensate", "show", one)

	c.does(0, `(?s)^C-\d.*C-\d`, "compensate", "list", "--state", "approved", "--state", "proposed")
	c.does(1, "--state is one of proposed, approved", "compensate", "list", "--state", "lost")
	c.becomes(made.IDs[0], compensate.NeedsAttention)
	var listed []struct{ ID int64 }
	if c.reads(1, &listed, "compensate", "list", "--limit", "5"); len(listed) != 2 {
		t.Errorf("listed %v", listed)
	}
	if c.reads(0, &listed, "compensate", "list", "--action", "none"); len(listed) != 0 {
		t.Errorf("of another action: %v", listed)
	}
	c.does(1, "needs_attention", "compensate", "show", one)
	c.does(1, "no step .* is of unknown outcome", "compensate", "check", one, "--reason", "really?")
	c.does(0, "", "compensate", "cancel", one, "--reason", "done by hand")
	c.does(2, "cancelled", "compensate", "show", one)
	c.does(0, "", "compensate", "reject", fmt.Sprint(made.IDs[1]), "--reason", "it is not owed")
	c.does(1, "is rejected", "compensate", "pause", fmt.Sprint(made.IDs[1]), "--reason", "wait")
	c.does(1, "99", "compensate", "show", "99")

	c.does(0, "", "compensate", "stop", "--reason", "it credits twice")
	c.does(1, "there already", "compensate", "stop", "--reason", "it credits twice")
	c.does(0, "", "compensate", "allow", "--reason", "mended")
	c.audited("compensation.approved", "compensation.cancel_asked", "compensation.rejected", "compensations.stopped", "compensations.resumed")
}

// audited looks that each act was written down once, by who works here.
func (c *clerk) audited(actions ...string) {
	c.Helper()
	for _, action := range actions {
		var n int
		err := c.console.QueryRow(c.Context(), "SELECT count(*) FROM audit_log WHERE action = $1 AND via = 'cli'", action).Scan(&n)
		if err != nil || n != 1 {
			c.Errorf("%s is audited %d times, %v", action, n, err)
		}
	}
}

// Each state ends the command with its code.
func TestWhatAStateEndsTheCommandWith(t *testing.T) {
	t.Parallel()
	codes := map[compensate.State]exitCode{
		compensate.Proposed: 3, compensate.Approved: 3, compensate.Running: 3, compensate.Verifying: 3, compensate.Verified: 0, compensate.NotNeeded: 0,
		compensate.NeedsAttention: 1, compensate.Rejected: 2, compensate.Cancelled: 2, compensate.Voided: 2, compensate.Expired: 2,
	}
	for s := compensate.Proposed; s <= compensate.Expired; s++ {
		want, known := codes[s]
		if got := came(s); got != want || !known {
			t.Errorf("%s ends with %d, want %d", s, got, want)
		}
		if same, err := compensationState(s.String()); err != nil || same != s {
			t.Errorf("--state %s is %s, %v", s, same, err)
		}
	}
}
