package web

import (
	"context"
	"fmt"
	"strconv"

	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// mostBreaks of one event are shown: one per job and type.
const mostBreaks = 20

// breaksOfEvent are the differences that an event's letters explain.
func (s *Server) breaksOfEvent(ctx context.Context, event string) ([]reconcile.Break, error) {
	if event == "" {
		return nil, nil
	}
	found, _, err := s.Reconcile.Breaks.List(ctx, reconcile.BreakFilter{EventID: event, Limit: mostBreaks}, s.Clock())
	if err != nil {
		return nil, fmt.Errorf("list breaks of event %s: %w", event, err)
	}
	return found, nil
}

// stakeOf is the money that hangs on a letter: what is open by currency, never
// added up, and the breaks that say so.
func stakeOf(here locale.Locale, breaks []reconcile.Break) views.Stake {
	var v views.Stake
	var open []reconcile.Break
	for _, b := range breaks {
		if b.State.Outstanding() {
			open = append(open, b)
		}
		v.Breaks = append(v.Breaks, views.StakeRow{
			ID: b.ID, Href: "/breaks/" + strconv.FormatInt(b.ID, 10), Type: string(b.Type), State: b.State.String(),
			Amount: money(b.Amount, b.Currency), Job: b.Job, JobHref: jobHref(b.Job), Open: b.State.Outstanding(),
		})
	}
	gross := grossOf(open)
	for _, currency := range currencies(gross) {
		v.Open = append(v.Open, money(gross[currency].Amount, currency))
	}
	return v
}
