package compensate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

const limitedCredit = `
action: credit
applies_to: [missing_effect]
timezone: Asia/Shanghai
kind: sql
connection: pg
sql: insert into effect values (:event_id, :consumed.amount::numeric, '2026-11-30 14:00Z')
approval: {expires: 3d}
limits: {amount_per_day: "250"}
`

// replica is another process on the same databases.
func (b *bank) replica() *Compensations {
	b.Helper()
	c, err := New(b.Config)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// A day's amount holds for all replicas at once, and the next day begins at
// midnight of the action's zone.
func TestAmountPerDay(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(limitedCredit)
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	b.now = time.Date(2026, 12, 4, 23, 50, 0, 0, shanghai)
	replicas := []*Compensations{b.Compensations, b.replica(), b.replica()}
	var all []int64
	for i := range 6 {
		all = append(all, b.approved("credit", b.missing(fmt.Sprintf("e-%d", i), 100)).ID)
	}
	var working sync.WaitGroup
	for i, id := range all {
		working.Go(func() {
			if _, err := replicas[i%3].step(context.WithoutCancel(t.Context()), id, -1); err != nil {
				t.Error(err)
			}
		})
	}
	working.Wait()
	states := func() (verified int) {
		for _, id := range all {
			switch c := b.get(id); {
			case c.State == Verified:
				verified++
			case c.State != Approved || !strings.Contains(text(c.Why, ""), "amount_per_day"):
				t.Errorf("%d is %s: %s", id, c.State, text(c.Why, ""))
			case !c.DueAt.Equal(time.Date(2026, 12, 5, 0, 0, 0, 0, shanghai)):
				t.Errorf("%d is due at %s", id, c.DueAt)
			}
		}
		return verified
	}
	if n := states(); n != 2 {
		t.Errorf("%d of 100 each within 250 a day", n)
	}
	b.pass(9 * time.Minute) // 23:59 in Shanghai, the afternoon elsewhere
	for _, id := range all {
		if b.get(id).State == Approved {
			b.do(id)
		}
	}
	if n := states(); n != 2 {
		t.Errorf("%d a minute before midnight", n)
	}
	b.pass(2 * time.Minute)
	for _, id := range all {
		if b.get(id).State == Approved {
			b.do(id)
		}
	}
	verified := 0
	for _, id := range all {
		if b.get(id).State == Verified {
			verified++
		}
	}
	spent, err := b.SpentToday(t.Context(), "credit")
	if err != nil || verified != 4 || len(spent) != 1 || spent[0].Amount.String() != "200" || spent[0].Limit.String() != "250" {
		t.Errorf("%d after midnight, spent %+v, %v", verified, spent, err)
	}
	if _, err := b.Propose(t.Context(), maker, "credit", []int64{b.missing("e-big", 251)}); !errors.Is(err, ErrLimit) {
		t.Errorf("more than any day allows: %v", err)
	}
}

// A rate spaces out starts over all replicas, and what an outage has delayed
// does not start at once.
func TestRate(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(strings.Replace(limitedCredit, `limits: {amount_per_day: "250"}`, "limits: {rate: 2/s}", 1))
	var all []int64
	for i := range 4 {
		all = append(all, b.approved("credit", b.missing(fmt.Sprintf("e-%d", i), 1)).ID)
	}
	for i, id := range all {
		if due := b.get(id).DueAt; !due.Equal(b.clock().Add(time.Duration(i) * 500 * time.Millisecond)) {
			t.Errorf("%d is due at %s", i, due.Sub(b.clock()))
		}
	}
	b.pass(time.Hour) // nobody worked
	started := 0
	for _, id := range all {
		if b.do(id).State == Verified {
			started++
		}
	}
	if started != 1 {
		t.Errorf("%d started at once after an outage", started)
	}
	for range 3 {
		b.pass(500 * time.Millisecond)
		for _, id := range all {
			if b.get(id).State == Approved {
				b.do(id)
			}
		}
		started++
		verified := 0
		for _, id := range all {
			if b.get(id).State == Verified {
				verified++
			}
		}
		if verified != started {
			t.Errorf("%d have started, want %d", verified, started)
		}
	}
}

// More than limits.per_batch at once is refused, by name and by filter.
func TestPerBatch(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(strings.Replace(limitedCredit, `amount_per_day: "250"`, "per_batch: 2", 1))
	breaks := []int64{b.missing("e-1", 1), b.missing("e-2", 1), b.missing("e-3", 1)}
	if _, err := b.Propose(t.Context(), maker, "credit", breaks); !errors.Is(err, ErrLimit) {
		t.Errorf("by name: %v", err)
	}
	if _, err := b.ProposeMany(t.Context(), maker, "credit", Selection{BreakFilter: &reconcile.BreakFilter{Job: "points"}}, ""); !errors.Is(err, ErrLimit) {
		t.Errorf("by filter: %v", err)
	}
	if left := b.texts("SELECT id::text FROM compensation"); len(left) != 0 {
		t.Errorf("%d proposals are left", len(left))
	}
}

// claim takes the event for something else, as a replay would.
func (b *bank) claim(event string, by int64) {
	b.Helper()
	b.keep(func(tx pgx.Tx) error {
		return dlq.ClaimForCompensation(b.Context(), tx, event, "points-consumer-group", by)
	})
}

// An event that a replay or another compensation works at is left alone until it
// is free; and what works at it holds it until it is settled.
func TestClaimsAreShared(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(httpCredit)
	comp := b.approved("call", b.missing("e-1", 100))
	b.claim("e-1", 999)
	if comp = b.do(comp.ID); comp.State != Approved || len(b.called()) != 0 || !strings.Contains(text(comp.Why, ""), "replay") {
		t.Fatalf("%s after %v: %s", comp.State, b.called(), text(comp.Why, ""))
	}
	b.keep(func(tx pgx.Tx) error { return dlq.ReleaseCompensation(t.Context(), tx, 999) })
	b.pass(time.Minute)
	b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	if comp = b.do(comp.ID); comp.State != NeedsAttention {
		t.Fatalf("%s: %s", comp.State, text(comp.Why, ""))
	}
	other := pgx.BeginFunc(t.Context(), b.console, func(tx pgx.Tx) error {
		return dlq.ClaimForCompensation(t.Context(), tx, "e-1", "points-consumer-group", 1000)
	})
	if !errors.Is(other, dlq.ErrClaimed) {
		t.Errorf("what needs attention let go of the event: %v", other)
	}
	if err := b.Cancel(t.Context(), maker, comp.ID); err != nil {
		t.Fatal(err)
	}
	b.claim("e-1", 1000)
}

// A filter is frozen, proposed in chunks with one sum, and says what it passed over.
func TestProposeAFilter(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(sqlCredit)
	for i := range bulkChunk + 5 {
		b.exec("INSERT INTO consumed VALUES ($1, $2, $3)", fmt.Sprintf("e-%d", i), 10, noon.Add(time.Minute))
	}
	taken := b.propose("credit", b.missing("e-last", 10))
	sel := Selection{BreakFilter: &reconcile.BreakFilter{Job: "points"}}
	viewer := access.Actor{User: "vic", Role: access.Viewer, Reason: "x"}
	if _, err := b.ProposeMany(t.Context(), viewer, "credit", sel, ""); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("a viewer: %v", err)
	}
	bulk, err := b.ProposeMany(t.Context(), maker, "credit", sel, "form-1")
	if err != nil || bulk.Total != bulkChunk+6 || bulk.State != BulkProposing || bulk.Left() != bulk.Total {
		t.Fatalf("%+v, %v", bulk, err)
	}
	if again, err := b.ProposeMany(t.Context(), maker, "credit", sel, "form-1"); err != nil || again.ID != bulk.ID {
		t.Errorf("the same form twice: %d and %d, %v", bulk.ID, again.ID, err)
	}
	b.missing("e-later", 10) // after the freeze: not in it
	more, err := b.bulkChunk(t.Context(), bulkArgs{Bulk: bulk.ID})
	if err != nil || !more {
		t.Fatalf("the first chunk: more %v, %v", more, err)
	}
	if half, err := b.Bulk(t.Context(), bulk.ID); err != nil || half.Proposed+half.PassedOver != bulkChunk || half.State != BulkProposing {
		t.Errorf("half way: %+v, %v", half, err)
	}
	if _, err := b.bulkChunk(t.Context(), bulkArgs{Bulk: bulk.ID}); !errors.Is(err, errFenced) {
		t.Errorf("a doubled step: %v", err)
	}
	if more, err = b.bulkChunk(t.Context(), bulkArgs{Bulk: bulk.ID, Epoch: 1}); err != nil || more {
		t.Fatalf("the last chunk: more %v, %v", more, err)
	}
	done, err := b.Bulk(t.Context(), bulk.ID)
	if err != nil || done.State != BulkDone || done.Proposed != bulkChunk+5 || done.PassedOver != 1 {
		t.Errorf("done: %+v, %v", done, err)
	}
	passed, err := b.BulkItems(t.Context(), bulk.ID, true, 0, 10)
	if err != nil || len(passed) != 1 || *passed[0].BreakID != *taken.BreakID || !strings.Contains(*passed[0].Why, "being repaired") {
		t.Errorf("passed over: %+v, %v", passed, err)
	}
	totals, err := b.Totals(t.Context(), Filter{Bulk: bulk.ID})
	if err != nil || len(totals) != 1 || totals[0].Items != bulkChunk+5 || totals[0].Amount.String() != "550" {
		t.Errorf("totals %+v, %v", totals, err)
	}
	for _, bad := range []Selection{{}, {Breaks: []int64{1}, BreakFilter: sel.BreakFilter}, {BreakFilter: &reconcile.BreakFilter{Job: "none"}}} {
		if _, err := b.ProposeMany(t.Context(), maker, "credit", bad, ""); !errors.Is(err, ErrSelection) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

const automaticCredit = limitedCredit + `automatic: {schedule: "*/5 * * * *", below: "50", per_run: 3, amount_per_day: "100", older_than: 1h}
`

// opened makes every break as old.
func (b *bank) opened(ago time.Duration) {
	b.Helper()
	if _, err := b.console.Exec(b.Context(), "UPDATE reconcile_break SET opened_at = $1", b.clock().Add(-ago)); err != nil {
		b.Fatal(err)
	}
}

// What runs by itself needs trust in its very version, stays below its caps, and
// stops when the switch is thrown.
func TestAutomatic(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	text := strings.Replace(automaticCredit, `limits: {amount_per_day: "250"}`, "", 1)
	b.define(text)
	b.missing("e-large", 50)
	var small []int64
	for i, amount := range []int{30, 30, 30, 30, 9} {
		small = append(small, b.missing(fmt.Sprintf("e-%d", i), amount))
	}
	runs := func(want ...int64) {
		t.Helper()
		ids, err := b.Automatic(t.Context(), "credit")
		var breaks []int64
		for _, id := range ids {
			c := b.get(id)
			breaks = append(breaks, *c.BreakID)
			if c.State != Approved || !c.Automatic || c.AskedBy != "system" {
				t.Errorf("%d is %s, automatic %v, by %s", id, c.State, c.Automatic, c.AskedBy)
			}
		}
		if err != nil || !slices.Equal(breaks, want) {
			t.Errorf("it took %v, %v, want %v", breaks, err, want)
		}
	}
	b.opened(30 * time.Minute)
	runs() // nobody trusts it
	if err := b.actions.Trust(t.Context(), maker, "credit", true); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("an operator's trust: %v", err)
	}
	if err := b.actions.Trust(t.Context(), checker, "credit", true); err != nil {
		t.Fatal(err)
	}
	runs() // too young
	b.opened(2 * time.Hour)
	if err := b.Stop(t.Context(), maker); err != nil {
		t.Fatal(err)
	}
	runs() // stopped
	if err := b.Stop(t.Context(), maker); !errors.Is(err, ErrState) {
		t.Errorf("stopped twice: %v", err)
	}
	if stop, err := b.Switch(t.Context()); err != nil || *stop.StoppedBy != maker.User || *stop.Reason != maker.Reason || stop.StoppedAt == nil {
		t.Errorf("the switch says %+v, %v", stop, err)
	}
	if err := b.Go(t.Context(), maker); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("an operator lets it go on: %v", err)
	}
	if err := b.Go(t.Context(), checker); err != nil {
		t.Fatal(err)
	}
	runs(small[0], small[1], small[2]) // per run
	runs(small[4])                     // the day's 100 leave room for 9, not for 30
	runs()
	if err := b.Stop(t.Context(), checker); err != nil {
		t.Fatal(err)
	}
	first := b.texts("SELECT id::text FROM compensation ORDER BY id LIMIT 1")
	if len(first) != 1 {
		t.Fatal("nothing was proposed")
	}
	if c := b.do(1); c.State != Approved || !strings.Contains(*c.Why, "stopped") {
		t.Errorf("after the stop it is %s", c.State)
	}
	if err := b.Go(t.Context(), checker); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Minute)
	if c := b.do(1); c.State != Verified {
		t.Errorf("after the stop was lifted it is %s", c.State)
	}
	b.pass(24 * time.Hour)
	b.define(text + "# changed\n")
	runs() // nobody trusts this version
	audits := b.texts("SELECT action FROM audit_log WHERE action LIKE 'compensations.%' ORDER BY id")
	if want := []string{"compensations.stopped", "compensations.resumed", "compensations.automatic", "compensations.automatic", "compensations.stopped", "compensations.resumed"}; !slices.Equal(audits, want) {
		t.Errorf("audited: %v", audits)
	}
}

// Two replicas at once propose no more than one would.
func TestAutomaticOnTwoReplicas(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(strings.Replace(automaticCredit, `limits: {amount_per_day: "250"}`, "", 1))
	for i := range 3 {
		b.missing(fmt.Sprintf("e-%d", i), 40)
	}
	b.opened(2 * time.Hour)
	if err := b.actions.Trust(t.Context(), checker, "credit", true); err != nil {
		t.Fatal(err)
	}
	var working sync.WaitGroup
	for _, c := range []*Compensations{b.Compensations, b.replica()} {
		working.Go(func() {
			if _, err := c.Automatic(t.Context(), "credit"); err != nil {
				t.Error(err)
			}
		})
	}
	working.Wait()
	if all := b.texts("SELECT amount::text FROM compensation"); len(all) != 2 {
		t.Errorf("%d of 40 each within 100 a day", len(all))
	}
}

// What nobody approves in time is put aside, and a break can be proposed anew.
func TestSweep(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	b.define(sqlCredit)
	id := b.missing("e-1", 100)
	comp := b.propose("credit", id)
	sweep := func() {
		t.Helper()
		b.keep(func(tx pgx.Tx) error {
			_, err := b.sweepDue(t.Context(), tx, "", b.clock())
			return err
		})
	}
	b.pass(23 * time.Hour)
	sweep()
	if got := b.get(comp.ID); got.State != Proposed {
		t.Errorf("too early: %s", got.State)
	}
	b.pass(2 * time.Hour)
	sweep()
	if got := b.get(comp.ID); got.State != Expired {
		t.Errorf("too late: %s", got.State)
	}
	if again := b.propose("credit", id); again.ID == comp.ID {
		t.Error("it was not proposed anew")
	}
}
