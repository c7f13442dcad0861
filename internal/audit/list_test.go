package audit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/migrations/pgtest"
)

func write(t *testing.T, pool *pgxpool.Pool, actor access.Actor, e audit.Entry) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return audit.Write(t.Context(), tx, actor, e) })
	if err != nil {
		t.Fatal(err)
	}
}

func TestListPagesWithoutGapsOrRepeats(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for i := range 7 {
		write(t, pool, access.System(), audit.Entry{Action: "test.done", Target: fmt.Sprintf("thing/%d", i)})
	}
	var targets []string
	for cursor := ""; ; {
		page, err := audit.List(t.Context(), pool, audit.Filter{}, 3, cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Items {
			targets = append(targets, row.Target)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		write(t, pool, access.System(), audit.Entry{Action: "test.done", Target: "meanwhile"})
	}
	if got, want := fmt.Sprint(targets), "[thing/6 thing/5 thing/4 thing/3 thing/2 thing/1 thing/0]"; got != want {
		t.Errorf("pages held %s, want %s", got, want)
	}
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	ada := access.Actor{User: "ada", Via: "token:ci", From: "192.0.2.7", Reason: "because"}
	write(t, pool, ada, audit.Entry{Action: "replay.started", Target: "replay/1", Detail: map[string]int{"total": 3}})
	write(t, pool, access.System(), audit.Entry{Action: "replay.done", Target: "replay/1"})
	write(t, pool, ada, audit.Entry{Action: "replay.started", Target: "replay/2"})
	for name, c := range map[string]struct {
		filter audit.Filter
		want   int
	}{
		"none":             {audit.Filter{}, 3},
		"actor":            {audit.Filter{Actor: "ada"}, 2},
		"action":           {audit.Filter{Action: "replay.done"}, 1},
		"target":           {audit.Filter{Target: "replay/1"}, 2},
		"actor and target": {audit.Filter{Actor: "ada", Target: "replay/1"}, 1},
		"since":            {audit.Filter{Since: time.Now().Add(time.Hour)}, 0},
		"until":            {audit.Filter{Until: time.Now().Add(time.Hour)}, 3},
		"nobody":           {audit.Filter{Actor: "' or true --"}, 0},
	} {
		page, err := audit.List(t.Context(), pool, c.filter, 0, "")
		if err != nil || len(page.Items) != c.want || page.Next != "" {
			t.Errorf("%s: %d rows, next %q, %v; want %d", name, len(page.Items), page.Next, err, c.want)
		}
	}
	page, err := audit.List(t.Context(), pool, audit.Filter{Actor: "ada", Target: "replay/1"}, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	r := page.Items[0]
	if r.Via != "token:ci" || r.From != "192.0.2.7" || r.Reason != "because" || string(r.Detail) != `{"total": 3}` || time.Since(r.At) > time.Minute {
		t.Errorf("a row reads %+v", r)
	}
}

func TestListRefusesCursorsOfOthers(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	for _, cursor := range []string{"0", "-1", "zzzzzzzzzzzzzzzzzzzz", "\x00zz", "01", "A", " 1", "1.5", "é"} {
		if _, err := audit.List(t.Context(), pool, audit.Filter{}, 0, cursor); !errors.Is(err, audit.ErrBadCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

// A command that failed leaves no trace of having been done.
func TestWriteIsPartOfItsTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t)
	failed := errors.New("command failed")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if err := audit.Write(t.Context(), tx, access.System(), audit.Entry{Action: "test.done"}); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	page, err := audit.List(t.Context(), pool, audit.Filter{}, 0, "")
	if err != nil || len(page.Items) != 0 {
		t.Errorf("%d rows, %v", len(page.Items), err)
	}
}
