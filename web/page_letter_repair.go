package web

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"oncemore/compensate"
	"oncemore/dlq"
	"oncemore/views"
	"oncemore/views/locale"
)

// mostRepairs of one event are shown.
const mostRepairs = 20

// repairsOfLetter are the compensations of a letter, and those of its event in its
// group, newest first, without those that ended with no effect.
func (s *Server) repairsOfLetter(ctx context.Context, l dlq.Letter) ([]compensate.Row, error) {
	if s.Compensations == nil {
		return nil, nil
	}
	all, _, err := s.Compensations.List(ctx, compensate.Filter{LetterID: l.ID, Limit: mostRepairs})
	if err == nil && l.EventID != nil && l.Group != nil {
		var more []compensate.Row
		more, _, err = s.Compensations.List(ctx, compensate.Filter{EventID: *l.EventID, Limit: mostRepairs})
		all = append(all, slices.DeleteFunc(more, func(r compensate.Row) bool { return deref(r.Group) != *l.Group || deref(r.LetterID) == l.ID })...)
	}
	if err != nil {
		return nil, fmt.Errorf("list compensations of letter %s: %w", l.ID, err)
	}
	all = slices.DeleteFunc(all, func(r compensate.Row) bool { return r.State.Ended() && r.State != compensate.Verified })
	slices.SortFunc(all, func(a, b compensate.Row) int { return int(b.ID - a.ID) })
	return all, nil
}

func letterRepairs(here locale.Locale, all []compensate.Row) []views.LetterRepair {
	links := make([]views.LetterRepair, len(all))
	for i, r := range all {
		id := strconv.FormatInt(r.ID, 10)
		links[i] = views.LetterRepair{Href: "/compensations/" + id, Text: here.Text("saga.compensation", "id", id), State: compensationWord(r)}
		if r.State == compensate.Verified {
			links[i].Text, links[i].State = here.Text("letter.compensated_by", "id", id), ""
		}
	}
	return links
}
