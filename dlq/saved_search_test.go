package dlq

import (
	"errors"
	"testing"

	"oncemore/internal/access"
)

func TestSavedSearches(t *testing.T) {
	t.Parallel()
	s := NewSearches(newSeed(t).pool)
	bob, viewer, admin := operator, operator, operator
	bob.User, viewer.User, admin.User = "bob", "vic", "root"
	viewer.Role, admin.Role = access.Viewer, access.Admin
	mine, err := s.Save(t.Context(), operator, SavedSearch{Name: " stuck ", Page: "letters", Query: "state=open&cursor=abc&q=a%2Bb"})
	if err != nil || mine.Name != "stuck" || mine.Query != "q=a%2Bb&state=open" {
		t.Fatalf("%+v, %v: want it trimmed and without its cursor", mine, err)
	}
	if _, err := s.Save(t.Context(), operator, SavedSearch{Name: "stuck", Page: "letters"}); !errors.Is(err, ErrSearchExists) {
		t.Errorf("the same name again: %v", err)
	}
	shared, err := s.Save(t.Context(), bob, SavedSearch{Name: "stuck", Page: "letters", Query: "owner=bob", Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(t.Context(), viewer, SavedSearch{Name: "x", Page: "faults", Shared: true}); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("a viewer shares: %v", err)
	}
	list, err := s.List(t.Context(), operator, "letters")
	if err != nil || len(list) != 2 || list[0].ID != mine.ID || list[1].ID != shared.ID {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := s.List(t.Context(), viewer, ""); err != nil || len(list) != 1 {
		t.Errorf("a viewer sees %+v, %v; want what is shared", list, err)
	}
	if err := s.Delete(t.Context(), operator, shared.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("somebody else's: %v", err)
	}
	if err := errors.Join(s.Delete(t.Context(), admin, shared.ID), s.Delete(t.Context(), operator, mine.ID)); err != nil {
		t.Error(err)
	}
	for _, bad := range []SavedSearch{{Page: "letters"}, {Name: "x", Page: "replays"}, {Name: "x", Page: "letters", Query: "%zz"}} {
		var why *ErrBadTriage
		if _, err := s.Save(t.Context(), operator, bad); !errors.As(err, &why) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
