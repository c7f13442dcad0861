package web_test

import (
	"net/http"
	"net/url"
	"testing"

	"oncemore/internal/access"
)

// A letter may name a group that no config names and no broker knows any more:
// its page then says what is left of it, and no link of ours is dead.
func TestAGroupThatOnlyLettersKnow(t *testing.T) {
	t.Parallel()
	s := setupPageShop(t)
	const gone = "gone/group"
	s.fail(failure{event: "payment-success-1", group: gone, class: "shop.Gone", message: "no more"})
	s.stored(1)
	operator, there := s.signIn(t, access.Operator), "/consumers/"+url.PathEscape(gone)
	letter := s.letterOf("payment-success-1")
	contains(t, s.get(t, operator, "/letters/"+letter.ID.String()), http.StatusOK, `href="`+there+`"`)
	contains(t, s.get(t, operator, there), http.StatusOK, "No config names this group", "1 open letter", "Not ours to know", "/letters?state=open&amp;consumer_group=gone%2Fgroup")
	for _, form := range []url.Values{{"reason": {"repair"}}, {}} {
		if r := s.post(t, operator, there+"/pause", form); r.status < 400 {
			t.Errorf("pausing it with %v answers %d", form, r.status)
		}
	}
	contains(t, s.get(t, operator, "/consumers/nobody"), http.StatusNotFound)
}
