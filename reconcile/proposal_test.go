package reconcile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
)

var eve = access.Actor{User: "eve", Role: access.Approver, Via: "test", Reason: "looks right"}

func (o *office) proposals() *Proposals { return NewProposals(o.console, o.runs) }

// A change is somebody else's decision, bound to the text that they have seen;
// then it is the current version, and the schedule follows.
func TestProposalNeedsAnotherPerson(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	p := o.proposals()
	text := jobText("pg", "my", matchOne+"schedule: \"15 * * * *\"\n")
	if _, err := p.Make(t.Context(), ada, "points", text); !errors.Is(err, access.ErrReasonRequired) {
		t.Errorf("without a reason: %v", err)
	}
	id, err := p.Make(t.Context(), because(ada, "hourly"), "points", text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Make(t.Context(), because(bob, "too"), "points", text+"\n"); !errors.Is(err, ErrProposalWaits) {
		t.Errorf("a second one at a time: %v", err)
	}
	q, err := p.Get(t.Context(), id)
	if err != nil || q.State != ProposalWaiting || q.Base == nil || *q.Base != 1 {
		t.Fatalf("%+v, %v", q, err)
	}
	for name, c := range map[string]struct {
		actor access.Actor
		hash  []byte
		want  error
	}{
		"the maker":    {access.Actor{User: "ada", Role: access.Admin, Reason: "x"}, q.Hash, ErrOwnProposal},
		"role":         {because(bob, "x"), q.Hash, access.ErrForbidden},
		"no reason":    {because(eve, " "), q.Hash, access.ErrReasonRequired},
		"another text": {eve, q.Hash[1:], ErrProposalState},
	} {
		if err := p.Approve(t.Context(), c.actor, id, c.hash); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if err := p.Reject(t.Context(), access.Actor{User: "ada", Role: access.Admin, Reason: "x"}, id); !errors.Is(err, ErrOwnProposal) {
		t.Errorf("the maker rejects: %v", err)
	}
	if def, err := o.jobs.Current(t.Context(), "points"); err != nil || def.Version != 1 {
		t.Errorf("before the approval: %d, %v", def.Version, err)
	}
	if err := p.Approve(t.Context(), eve, id, q.Hash); err != nil {
		t.Fatal(err)
	}
	if def, err := o.jobs.Current(t.Context(), "points"); err != nil || def.Version != 2 || def.Text != text || def.LoadedBy != "eve" {
		t.Errorf("after the approval: %+v, %v", def, err)
	}
	var due time.Time
	if err := o.console.QueryRow(t.Context(), "SELECT next_at FROM schedule WHERE kind = 'reconcile' AND ref = 'points'").Scan(&due); err != nil || due.Minute() != 15 {
		t.Errorf("the schedule: %s, %v", due, err)
	}
	if err := p.Approve(t.Context(), eve, id, q.Hash); !errors.Is(err, ErrProposalState) {
		t.Errorf("approved twice: %v", err)
	}
	// The table itself refuses what no code should ask it for.
	_, err = o.console.Exec(t.Context(), "UPDATE reconcile_proposal SET decided_by = made_by WHERE id = @id", pgx.NamedArgs{"id": id})
	if err == nil || !strings.Contains(err.Error(), "check constraint") {
		t.Errorf("the maker as approver in the table: %v", err)
	}
}

func TestProposalOfAChangedJobIsStale(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	p := o.proposals()
	id, err := p.Make(t.Context(), because(ada, "x"), "points", jobText("pg", "my", matchOne+"# mine\n"))
	if err != nil {
		t.Fatal(err)
	}
	o.define(jobText("pg", "my", matchOne+"# a newer file\n"))
	q, err := p.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Approve(t.Context(), eve, id, q.Hash); !errors.Is(err, ErrProposalState) {
		t.Errorf("approved over a newer version: %v", err)
	}
	if err := p.Withdraw(t.Context(), bob, id); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("another one withdraws: %v", err)
	}
	if err := p.Withdraw(t.Context(), ada, id); err != nil {
		t.Fatal(err)
	}
	waiting, _, err := p.List(t.Context(), ProposalFilter{Job: "points", State: ProposalWaiting, Limit: 5})
	if err != nil || len(waiting) != 0 {
		t.Errorf("waiting %v, %v", waiting, err)
	}
}

func TestProposalsOfWrongDefinitions(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	good := jobText("pg", "my", matchOne)
	for name, c := range map[string]struct{ job, text, want string }{
		"typing error":       {"points", strings.Replace(good, "size: 1h", "size: 1x", 1), "points.yaml:3: window.size: "},
		"another name":       {"points", strings.Replace(good, "job: points", "job: others", 1), "has to stay points"},
		"nothing changed":    {"points", good, "nothing is changed of version 1"},
		"new, but there":     {"", good + "\n", "points is there already"},
		"unknown connection": {"points", strings.Replace(good, "connection: pg", "connection: pq", 1), "consumed: there is no connection pq"},
		"unknown column":     {"points", strings.Replace(good, "select event_id, amount, currency, at from consumed where at >= :from", "select event_id, amount, currency from consumed where at >= :from", 1), "consumed: "},
	} {
		_, err := o.proposals().Make(t.Context(), because(ada, "x"), c.job, c.text)
		if !errors.Is(err, ErrDefinition) || len(Problems(err)) == 0 || !strings.Contains(Problems(err)[0], c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A job that was made in the console outlives a restart; of one from a file the
// file wins.
func TestFilesAndProposals(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	dir := t.TempDir()
	file := jobText("pg", "my", matchOne)
	if err := os.WriteFile(filepath.Join(dir, "points.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func() {
		t.Helper()
		if _, err := o.jobs.Load(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	load()
	p := o.proposals()
	for job, text := range map[string]string{"points": file + "# by hand\n", "": strings.Replace(file, "job: points", "job: made", 1)} {
		id, err := p.Make(t.Context(), because(ada, "x"), job, text)
		if err != nil {
			t.Fatal(err)
		}
		q, err := p.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Approve(t.Context(), eve, id, q.Hash); err != nil {
			t.Fatal(err)
		}
	}
	want := func(state string, versions map[string]int) {
		t.Helper()
		all, err := o.jobs.List(t.Context(), o.runs)
		if err != nil || len(all) != len(versions) {
			t.Fatalf("%s: %d jobs, %v", state, len(all), err)
		}
		for _, j := range all {
			if j.Version != versions[j.Name] || j.GoneAt != nil || (j.File == nil) != (j.Name == "made") {
				t.Errorf("%s: %+v", state, j)
			}
		}
	}
	want("approved", map[string]int{"points": 2, "made": 1})
	load() // the next start
	want("started again", map[string]int{"points": 1, "made": 1})
}

// Ten who approve at once make one version.
func TestProposalIsDecidedOnce(t *testing.T) {
	t.Parallel()
	o := openOffice(t, "")
	p := o.proposals()
	id, err := p.Make(t.Context(), because(ada, "x"), "points", jobText("pg", "my", matchOne+"# mine\n"))
	if err != nil {
		t.Fatal(err)
	}
	q, err := p.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 10)
	for range cap(done) {
		go func() { done <- p.Approve(context.WithoutCancel(t.Context()), eve, id, q.Hash) }()
	}
	approved := 0
	for range cap(done) {
		if err := <-done; err == nil {
			approved++
		} else if !errors.Is(err, ErrProposalState) {
			t.Error(err)
		}
	}
	if approved != 1 {
		t.Errorf("approved %d times", approved)
	}
}
