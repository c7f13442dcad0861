package web_test

import (
	"fmt"
	"net/http"
	"testing"

	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/web"
)

// The search box finds breaks by event id, key, amount and name.
func TestSearchFindsBreaks(t *testing.T) {
	t.Parallel()
	s := setupShop(t, func(d *web.Deps) { d.Reconcile.Breaks = reconcile.NewBreaks(d.Pool) })
	add := func(event string, amount string) (id int64) {
		t.Helper()
		err := s.pool.QueryRow(t.Context(), `INSERT INTO reconcile_break (job, key, type, key_text, event_id, currency, amount, sides, opened_run, seen_run)
			VALUES ('points', convert_to($1, 'UTF8'), 'missing_effect', ARRAY[$1, 'order-7'], $1, 'CNY', $2::numeric, '[{}, {}, {}]', 1, 1) RETURNING id`, event, amount).Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	one, two := add("e-1", "253.12"), add("e-2", "-9.90")
	operator, viewer := s.signIn(t, access.Operator), s.signIn(t, access.Viewer)
	for text, id := range map[string]int64{"e-1": one, "253.120": one, "9.9": two, fmt.Sprintf("b-%d", two): two} {
		if r := s.get(t, operator, "/search?q="+text); r.status != http.StatusSeeOther || r.header.Get("Location") != fmt.Sprintf("/breaks/%d", id) {
			t.Errorf("search for %s: %d to %q", text, r.status, r.header.Get("Location"))
		}
	}
	for _, who := range []*http.Client{operator, viewer} {
		contains(t, s.get(t, who, "/search?q=order-7"), http.StatusOK, fmt.Sprintf(`href="/breaks/%d"`, one), fmt.Sprintf(`href="/breaks/%d"`, two), "253.12 CNY", "-9.9 CNY", "Missing effect")
	}
	contains(t, s.get(t, operator, "/search?q=e-3"), http.StatusOK, "No letter has the event id e-3")
	s.fail(t, "e-1", points)
	s.letters(t, s.token(t, access.Operator), 1)
	if r := s.get(t, operator, "/search?q=e-1"); r.status != http.StatusSeeOther || r.header.Get("Location")[:9] != "/letters/" {
		t.Errorf("a letter comes before its break: %d to %q", r.status, r.header.Get("Location"))
	}
}
