package dlq

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"oncemore/internal/audit"
)

// monthsAgo is in the middle of a month.
func monthsAgo(n int) time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month()-time.Month(n), 15, 12, 0, 0, 0, time.UTC)
}

type oldLetters struct {
	*seed
	retention *Retention
	closed    []uuid.UUID // four months ago, all resolved or discarded
	mixed     []uuid.UUID // three months ago, one open
	young     []uuid.UUID // last month, closed
}

func setupOld(t *testing.T) oldLetters {
	t.Helper()
	o := oldLetters{seed: newSeed(t)}
	for n := range 5 {
		o.exec("call letter_add_month($1)", monthsAgo(n))
	}
	o.keepAfter(3)
	shelf := func(ago int, states ...State) []uuid.UUID {
		var letters []seedLetter
		for i, st := range states {
			letters = append(letters, seedLetter{event: "e", at: monthsAgo(ago).Add(time.Duration(i) * time.Second), state: st, verdict: Verdict(i), message: "boom"})
		}
		ids := o.add(letters...)
		for i, id := range ids {
			o.exec("INSERT INTO letter_identity VALUES ($1, $2, $3)", i, uuid.New(), id)
			o.exec("INSERT INTO letter_verdict (letter_id, group_id, verdict, reached, asked_at) VALUES ($1, 0, 1, true, now())", id)
			o.exec("INSERT INTO letter_occurrence (letter_id, at, source_id, partition, \"offset\") VALUES ($1, now(), 1, $2, $3)", id, ago, i)
			o.exec("INSERT INTO letter_comment (letter_id, text, created_by) VALUES ($1, 'x', 'ada')", id)
			o.exec("INSERT INTO letter_bulk_item VALUES ($1, $2)", ago, id)
			o.exec("INSERT INTO letter_revision (letter_id, no, headers, digest, reason, created_by) VALUES ($1, 1, '', '', 'x', 'ada')", id)
			o.exec("INSERT INTO letter_unpark (letter_id, replays, reason, created_by) VALUES ($1, 1, 'x', 'ada')", id)
		}
		return ids
	}
	o.closed = shelf(4, Resolved, Discarded, Discarded)
	o.mixed = shelf(3, Resolved, Open, Discarded)
	o.young = shelf(1, Resolved, Discarded)
	o.fold()
	o.indexAll()
	return o
}

// keepAfter makes months due that are at least so many ago.
func (o *oldLetters) keepAfter(months int) {
	end := newLetterMonth(monthsAgo(months).AddDate(0, 0, -14).Truncate(24 * time.Hour)).end
	o.retention = NewRetention(o.pool, time.Since(end)-time.Hour, slog.New(slog.DiscardHandler))
}

func (o oldLetters) sweep() int {
	o.t.Helper()
	n, err := o.retention.Sweep(context.Background())
	if err != nil {
		o.t.Fatal(err)
	}
	return n
}

func TestAClosedMonthIsDroppedWithAllThatBelongsToIt(t *testing.T) {
	t.Parallel()
	o := setupOld(t)
	if n := o.sweep(); n != 1 {
		t.Fatalf("dropped %d months, want the oldest alone", n)
	}
	left := int64(len(o.mixed) + len(o.young))
	for _, table := range []string{"dead_letter", "dead_letter_body", "letter_token", "letter_identity", "letter_verdict", "letter_occurrence", "letter_comment", "letter_bulk_item",
		"letter_revision", "letter_unpark"} {
		if n := o.one("SELECT count(*) FROM " + table); n != left {
			t.Errorf("%s holds %d rows, want %d", table, n, left)
		}
	}
	o.foots()
	if _, err := NewLetters(o.pool).Get(t.Context(), o.closed[0]); !errors.Is(err, ErrNotFound) {
		t.Errorf("a dropped letter: %v", err)
	}
	page, err := audit.List(t.Context(), o.pool, audit.Filter{Action: "letters.month_dropped"}, 0, "")
	if err != nil || len(page.Items) != 1 || page.Items[0].Target != "month/"+monthsAgo(4).Format("2006-01") {
		t.Errorf("audit %+v, %v", page.Items, err)
	}
	if n := o.sweep(); n != 0 {
		t.Errorf("a second sweep dropped %d", n)
	}
}

func TestAMonthWithOpenLettersStaysAndSaysSo(t *testing.T) {
	t.Parallel()
	o := setupOld(t)
	o.sweep()
	months, err := o.retention.Months(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var kept *LetterMonth
	for i := range months {
		if months[i].Month.Format("200601") == monthsAgo(3).Format("200601") {
			kept = &months[i]
		}
	}
	if kept == nil || kept.OpenN != 1 || kept.Why == "" || kept.FoundAt == nil || kept.DropAt.After(time.Now()) {
		t.Fatalf("%+v, want the month with its open letter", kept)
	}
	if kept, err := KeptMonths(t.Context(), o.pool); err != nil || len(kept) != 1 || kept[0] != monthsAgo(3).Format("2006-01")+" (1)" {
		t.Errorf("%v, %v", kept, err)
	}
	b := newBulks(t, o.seed, 0)
	if _, err := b.Discard(t.Context(), operator, BulkRequest{Selection: Selection{Filter: &LetterFilter{Until: monthsAgo(2)}}}); err != nil {
		t.Fatal(err)
	}
	if n := o.sweep(); n != 1 {
		t.Errorf("dropped %d months after the open one was discarded, want 1", n)
	}
	o.foots()
	if n := o.one("SELECT count(*) FROM letter_month_kept"); n != 0 {
		t.Errorf("%d months are still said to be kept", n)
	}
}

// The bytes of a later arrival stand in a later month than its letter.
func TestAMonthWithBytesOfAnOlderLetterStays(t *testing.T) {
	t.Parallel()
	o := setupOld(t)
	o.keepAfter(2)
	body := seedID(monthsAgo(2))
	o.exec("INSERT INTO dead_letter_body (id, headers) VALUES ($1, '')", body)
	o.exec("UPDATE letter_occurrence SET body_id = $1 WHERE letter_id = $2", body, o.mixed[1])
	o.sweep()
	if n := o.one("SELECT count(*) FROM dead_letter_body WHERE id = $1", body); n != 1 {
		t.Fatal("the bytes of a letter that stays are gone")
	}
	o.exec("UPDATE dead_letter SET state = 3 WHERE state = 1")
	o.sweep()
	if n := o.sweep(); n != 0 || o.one("SELECT count(*) FROM dead_letter_body WHERE id = $1", body) != 0 {
		t.Error("the bytes stay though their letter is gone")
	}
}

func TestAMonthInUseIsLeftForLater(t *testing.T) {
	t.Parallel()
	o := setupOld(t)
	tx, err := o.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "UPDATE dead_letter SET owner_id = 1 WHERE id = $1", o.closed[0]); err != nil {
		t.Fatal(err)
	}
	if n := o.sweep(); n != 0 {
		t.Fatalf("dropped %d months under a writer", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := o.sweep(); n != 1 {
		t.Errorf("dropped %d months afterwards, want 1", n)
	}
	o.foots()
}

func TestNothingIsDroppedWithoutARetention(t *testing.T) {
	t.Parallel()
	o := setupOld(t)
	o.retention = NewRetention(o.pool, 0, slog.New(slog.DiscardHandler))
	if n := o.sweep(); n != 0 || !o.retention.KeptUntil(o.closed[0]).IsZero() {
		t.Errorf("dropped %d, kept until %s", n, o.retention.KeptUntil(o.closed[0]))
	}
	keep := NewRetention(o.pool, 24*time.Hour, slog.New(slog.DiscardHandler))
	at := monthsAgo(4)
	want := time.Date(at.Year(), at.Month()+1, 2, 0, 0, 0, 0, time.UTC)
	if got := keep.KeptUntil(o.closed[0]); !got.Equal(want) {
		t.Errorf("kept until %s, want %s", got, want)
	}
}
