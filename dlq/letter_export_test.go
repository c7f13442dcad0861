package dlq

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

func TestAnExportHoldsTheListAndLeavesATrace(t *testing.T) {
	t.Parallel()
	s := newSeed(t)
	ids := s.add(faultLetters(2500, nil)...)
	letters := NewLetters(s.pool)
	var got []uuid.UUID
	err := letters.Export(t.Context(), operator, LetterFilter{Sort: SortOldest}, "csv", func(l Letter) error {
		if len(got) == 1200 {
			s.add(seedLetter{event: "meanwhile", message: "boom", at: time.Now().Add(time.Minute)})
		}
		got = append(got, l.ID)
		return nil
	})
	if err != nil || !slices.Equal(got, ids) {
		t.Fatalf("%d letters, want the %d there were; %v", len(got), len(ids), err)
	}
	page, err := audit.List(t.Context(), s.pool, audit.Filter{Action: "letters.exported", Actor: "ada"}, 0, "")
	if err != nil || len(page.Items) != 1 {
		t.Errorf("audit %+v, %v", page.Items, err)
	}
	full := errors.New("the reader left")
	if err := letters.Export(t.Context(), operator, LetterFilter{}, "csv", func(Letter) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v, want the sink's error", err)
	}
	n := 0
	if err := NewFaults(s.pool).Export(t.Context(), operator, FaultFilter{}, "xlsx", func(Fault) error { n++; return nil }); err != nil || n != 2 {
		t.Errorf("%d faults, %v", n, err)
	}
	if err := letters.Export(t.Context(), access.Actor{}, LetterFilter{}, "csv", nil); !errors.Is(err, access.ErrForbidden) {
		t.Errorf("nobody exports: %v", err)
	}
}
