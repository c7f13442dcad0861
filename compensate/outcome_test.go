package compensate

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"oncemore/internal/access"
	"oncemore/reconcile"
)

const probedCredit = `
action: probed
applies_to: [missing_effect]
group: points-consumer-group
kind: http
url: "{{points-api}}/credit/{{key.event_id}}"
body: {eventId: "{{key.event_id}}", amount: "{{consumed.amount}}"}
timeout: 300ms
probe: {url: "{{points-api}}/requests/{{idempotency_key}}", applied_when: {status: 200}}
attempts: {max: 3, initial: 10s}
`

// credit books what the request's path names, as the service would.
func (b *bank) credit(r *http.Request) {
	b.exec("INSERT INTO effect SELECT event_id, amount, $2 FROM consumed WHERE event_id = $1", r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], noon.Add(2*time.Hour))
}

// cut closes the connection without an answer.
func cut(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		err = conn.Close()
	}
	if err != nil {
		panic(err)
	}
}

// A call that came to no answer is decided by its probe: it is repeated only if
// it surely was not applied, and without an answer of the probe by nobody.
func TestUnknownOutcomesAreAskedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrives bool // the first call is applied
		slow    bool // no answer in time; else the connection is cut
		probe   int  // its status, if it does not know
		state   State
		posts   int
	}{
		"slow, applied":        {true, true, 0, Verified, 1},
		"slow, not applied":    {false, true, 0, Verified, 2},
		"cut, applied":         {true, false, 0, Verified, 1},
		"cut, not applied":     {false, false, 0, Verified, 2},
		"the probe is broken":  {true, true, 503, NeedsAttention, 1},
		"the probe is refused": {true, false, 401, NeedsAttention, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := openBank(t)
			b.define(probedCredit)
			var posts, applied atomic.Int64
			keys := make(chan string, 8)
			b.answers(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					if !strings.HasSuffix(r.URL.Path, "/C-1:action") {
						t.Errorf("the probe asks for %s", r.URL.Path)
					}
					switch {
					case c.probe != 0:
						w.WriteHeader(c.probe)
					case applied.Load() == 0:
						w.WriteHeader(http.StatusNotFound)
					}
					return
				}
				keys <- r.Header.Get("Idempotency-Key")
				first := posts.Add(1) == 1
				if c.arrives || !first {
					b.credit(r)
					applied.Add(1)
				}
				switch {
				case first && c.slow:
					_, _ = io.Copy(io.Discard, r.Body) // else nobody would notice that the caller has gone
					<-r.Context().Done()
				case first:
					cut(w)
				}
			})
			comp := b.approved("probed", b.missing("e-1", 100))
			for range 4 {
				if comp = b.do(comp.ID); comp.State != Running {
					break
				}
				b.pass(time.Minute)
			}
			if comp.State != c.state || int(posts.Load()) != c.posts || applied.Load() != 1 {
				t.Errorf("%s after %d calls, %d applied: %s", comp.State, posts.Load(), applied.Load(), text(comp.Why, ""))
			}
			close(keys)
			for key := range keys {
				if key != "C-1:action" {
					t.Errorf("a call with key %q", key)
				}
			}
		})
	}
}

// Without a probe nobody knows: it is not repeated, it waits for a person.
func TestUnknownWithoutAProbeNeedsAttention(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	b.answers(func(w http.ResponseWriter, _ *http.Request) { cut(w) })
	comp := b.approved("call", b.missing("e-1", 100))
	if comp = b.do(comp.ID); comp.State != NeedsAttention || len(b.called()) != 1 {
		t.Fatalf("%s after %d calls", comp.State, len(b.called()))
	}
	row, err := b.Summary(t.Context(), comp.ID)
	if err != nil || !row.Unknown {
		t.Errorf("unknown %v, %v", row.Unknown, err)
	}
	// the person has seen that it did not arrive, and tries again
	b.answers(func(_ http.ResponseWriter, r *http.Request) { b.credit(r) })
	if err := b.Retry(t.Context(), maker, comp.ID); err != nil {
		t.Fatal(err)
	}
	if comp = b.do(comp.ID); comp.State != Verified {
		t.Errorf("after the retry: %s: %s", comp.State, text(comp.Why, ""))
	}
	if calls := b.called(); len(calls) != 2 || calls[0] != calls[1] {
		t.Errorf("calls %v", calls)
	}
}

// What never left is tried again without asking anybody.
func TestNoConnectionIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := b.Bases["points-api"]
	b.Bases["points-api"] = Base{URL: "http://" + ln.Addr().String()}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	comp := b.approved("call", b.missing("e-1", 100))
	if comp = b.do(comp.ID); comp.State != Running {
		t.Fatalf("nobody listens, and it is %s: %s", comp.State, text(comp.Why, ""))
	}
	b.Bases["points-api"] = up
	b.answers(func(_ http.ResponseWriter, r *http.Request) { b.credit(r) })
	b.pass(time.Minute)
	if comp = b.do(comp.ID); comp.State != Verified {
		t.Errorf("%s: %s", comp.State, text(comp.Why, ""))
	}
}

// A redirect is not followed: the credential would go where nobody sent it.
func TestRedirectsAreRefused(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			b.credit(r)
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	comp := b.approved("call", b.missing("e-1", 100))
	if comp = b.do(comp.ID); comp.State != NeedsAttention || len(b.called()) != 1 || !strings.Contains(text(comp.Why, ""), "307") {
		t.Errorf("%s after %v: %s", comp.State, b.called(), text(comp.Why, ""))
	}
}

// Secrets go to the other side, and nowhere else.
func TestSecretsAreNeverKept(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	base := b.Bases["points-api"]
	base.Headers = map[string]string{"Authorization": "Bearer s3cr3t-v4lue"}
	b.Bases["points-api"] = base
	b.secrets = masker(b.Bases)
	b.define(httpCredit)
	b.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer s3cr3t-v4lue" {
			t.Errorf("the call carries %q", r.Header.Get("Authorization"))
		}
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintf(w, `{"echo": %q, "bare": "s3cr3t-v4lue", "sessionToken": "abc-123", "api_key":"k-9", "reason": "no such account"}`, r.Header.Get("Authorization"))
	})
	comp := b.approved("call", b.missing("e-1", 100))
	b.do(comp.ID)
	attempts, err := b.Attempts(t.Context(), comp.ID)
	if err != nil || len(attempts) != 1 {
		t.Fatalf("%d attempts, %v", len(attempts), err)
	}
	if got := string(attempts[0].Answer); !strings.Contains(got, "no such account") || !strings.Contains(got, "***") {
		t.Errorf("answer %s", got)
	}
	for table, query := range map[string]string{
		"compensation": "SELECT c::text FROM compensation c", "attempt": "SELECT a::text FROM compensation_attempt a",
		"step": "SELECT s::text FROM saga_step s", "note": "SELECT n::text FROM compensation_note n", "audit": "SELECT a::text FROM audit_log a",
	} {
		for _, row := range b.texts(query) {
			for _, secret := range []string{"s3cr3t", "abc-123", "k-9"} {
				if strings.Contains(row, secret) {
					t.Errorf("%s holds %s: %s", table, secret, row)
				}
			}
		}
	}
}

// texts reads one column of the console's database.
func (b *bank) texts(query string) (all []string) {
	b.Helper()
	rows, err := b.console.Query(b.Context(), query)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			b.Fatal(err)
		}
		all = append(all, s)
	}
	if rows.Err() != nil {
		b.Fatal(rows.Err())
	}
	return all
}

// The other side says when it wants to be asked again.
func TestRetryAfterIsKept(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	b.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	comp := b.approved("call", b.missing("e-1", 100))
	b.do(comp.ID)
	b.pass(119 * time.Second)
	b.do(comp.ID)
	if n := len(b.called()); n != 1 {
		t.Errorf("%d calls before it was time", n)
	}
	b.pass(2 * time.Second)
	b.do(comp.ID)
	if n := len(b.called()); n != 2 {
		t.Errorf("%d calls when it was time", n)
	}
	if err := b.Retry(t.Context(), maker, comp.ID); err != nil {
		t.Fatal(err)
	}
	b.do(comp.ID)
	if n := len(b.called()); n != 3 {
		t.Errorf("%d calls after somebody said now", n)
	}
}

// What was executed and does not match afterwards says both values.
func TestVerificationTellsBothValues(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	b.answers(func(_ http.ResponseWriter, r *http.Request) {
		b.exec("INSERT INTO effect VALUES ('e-1', 60, $1)", noon.Add(2*time.Hour))
	})
	id := b.missing("e-1", 100)
	comp := b.approved("call", id)
	comp = b.do(comp.ID)
	if why := text(comp.Why, ""); comp.State != NeedsAttention || !strings.Contains(why, "100") || !strings.Contains(why, "60") {
		t.Errorf("%s: %s", comp.State, why)
	}
	if comp.FinishedAt != nil {
		t.Error("what needs attention counts as finished")
	}
}

// Where nobody looks afterwards, the break is open again until a run finds its key
// whole.
func TestUnverifiedBreakStaysOpen(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit + "verify: none\n")
	b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	id := b.missing("e-1", 100)
	if comp := b.do(b.approved("call", id).ID); comp.State != Verified {
		t.Fatalf("%s: %s", comp.State, text(comp.Why, ""))
	}
	if got, err := b.breaks.Get(t.Context(), id); err != nil || got.State != reconcile.Reopened {
		t.Errorf("break %s, %v", got.State, err)
	}
}

// A compensation that is paused makes no further call, not even within a step,
// and goes on where it was.
func TestPauseHolds(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	id := b.missing("e-1", 100)
	comp := b.approved("call", id)
	if err := b.Pause(t.Context(), maker, comp.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.step(t.Context(), comp.ID, -1); err == nil || len(b.called()) != 0 {
		t.Errorf("%d calls while it was paused, %v", len(b.called()), err)
	}
	b.answers(func(_ http.ResponseWriter, r *http.Request) { b.credit(r) })
	if err := b.Resume(t.Context(), maker, comp.ID); err != nil {
		t.Fatal(err)
	}
	if comp = b.do(comp.ID); comp.State != Verified {
		t.Errorf("%s: %s", comp.State, text(comp.Why, ""))
	}
}

// What was approved has to be what is there: a key that reads differently by now
// is not repaired, even before a run has noticed.
func TestAnotherDifferenceIsVoid(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	comp := b.approved("call", b.missing("e-1", 100))
	b.exec("UPDATE consumed SET amount = 90 WHERE event_id = 'e-1'")
	if comp = b.do(comp.ID); comp.State != Voided || len(b.called()) != 0 || !strings.Contains(text(comp.Why, ""), "90") {
		t.Errorf("%s after %v: %s", comp.State, b.called(), text(comp.Why, ""))
	}
}

// The end of one compensation does not give back a break that another repairs.
func TestAnotherActionWaits(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	b.define(sqlCredit)
	id := b.missing("e-1", 100)
	first, other := b.approved("call", id), b.approved("credit", id)
	third := b.propose("call", b.missing("e-2", 1))
	b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	b.do(first.ID)
	if got := b.do(other.ID); got.State != Approved || !strings.Contains(text(got.Why, ""), "under way") {
		t.Errorf("the other one is %s: %s", got.State, text(got.Why, ""))
	}
	if err := b.Cancel(t.Context(), maker, other.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := b.breaks.Get(t.Context(), id); err != nil || got.State != reconcile.Compensating {
		t.Errorf("the break is %s, %v", got.State, err)
	}
	if err := b.Reject(t.Context(), checker, third.ID); err != nil || b.get(third.ID).State != Rejected {
		t.Errorf("rejected: %v", err)
	}
}

// What the database refuses, whatever the server thinks.
func TestTheDatabaseRefusesApprovals(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(sqlCredit)
	comp := b.propose("credit", b.missing("e-1", 100))
	const insert = `INSERT INTO compensation_approval (compensation_id, by, maker, at, reason, hash, approve_by)
		SELECT id, $2, $3, $4, 'x', $5, approve_by FROM compensation WHERE id = $1`
	soon := b.clock()
	for name, c := range map[string]struct {
		by, maker string
		at        time.Time
		hash      []byte
		want      string
	}{
		"one's own":                  {maker.User, maker.User, soon, comp.Hash, "compensation_approval_check"},
		"one's own by another maker": {maker.User, "somebody", soon, comp.Hash, "compensation_approval_bound"},
		"another effect":             {checker.User, maker.User, soon, bytes.Repeat([]byte{7}, 32), "compensation_approval_bound"},
		"too late":                   {checker.User, maker.User, soon.Add(25 * time.Hour), comp.Hash, "compensation_approval_in_time"},
	} {
		_, err := b.console.Exec(t.Context(), insert, comp.ID, c.by, c.maker, c.at, c.hash)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// and a state alone starts nothing
	if _, err := b.console.Exec(t.Context(), "UPDATE compensation SET state = 2 WHERE id = $1", comp.ID); err != nil {
		t.Fatal(err)
	}
	if got := b.do(comp.ID); got.State != Voided || len(b.texts("SELECT op::text FROM saga_step")) != 0 {
		t.Errorf("without an approval it is %s", got.State)
	}
	if _, err := b.console.Exec(t.Context(), insert, comp.ID, checker.User, maker.User, soon, comp.Hash); err != nil {
		t.Errorf("what is right: %v", err)
	}
}

// Two people approve at once: it starts once, and one of them is told.
func TestTwoApproveAtOnce(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(sqlCredit)
	comp := b.propose("credit", b.missing("e-1", 100))
	results := make(chan error, 2)
	for _, who := range []access.Actor{checker, second} {
		go func() { results <- b.Approve(t.Context(), who, comp.ID, comp.Hash) }()
	}
	var refused int
	for range 2 {
		if err := <-results; err != nil {
			refused++
		}
	}
	if jobs := b.texts("SELECT id::text FROM river_job WHERE kind = 'compensation_step'"); refused != 1 || len(jobs) != 1 {
		t.Errorf("%d refused, %d steps", refused, len(jobs))
	}
	if comp = b.do(comp.ID); comp.State != Verified {
		t.Errorf("%s", comp.State)
	}
}
