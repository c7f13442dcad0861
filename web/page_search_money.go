package web

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/reconcile"
	"oncemore/views"
)

// findMoney adds the breaks and compensations of an event id, a key or an amount.
func (s *Server) findMoney(c echo.Context, v *views.Found) error {
	ctx := c.Request().Context()
	if s.Reconcile.Breaks != nil {
		breaks, more, err := s.Reconcile.Breaks.Find(ctx, v.Text, searchRows)
		if err != nil {
			return fmt.Errorf("search breaks: %w", err)
		}
		v.MoreBreaks = more
		for _, b := range breaks {
			v.Breaks = append(v.Breaks, foundBreak(b))
		}
	}
	if s.Compensations != nil {
		repairs, more, err := s.Compensations.Find(ctx, v.Text, searchRows)
		if err != nil {
			return fmt.Errorf("search compensations: %w", err)
		}
		v.MoreCompensations = more
		for _, r := range repairs {
			v.Compensations = append(v.Compensations, foundCompensation(r))
		}
	}
	return nil
}

func foundBreak(b reconcile.Break) views.FoundMoney {
	id := strconv.FormatInt(b.ID, 10)
	return views.FoundMoney{Name: "B-" + id, Href: "/breaks/" + id, Key: strings.Join(b.Key, " · "), Of: b.Job,
		Kind: string(b.Type), State: b.State.String(), Amount: b.Amount.String() + " " + b.Currency, At: b.OpenedAt}
}

func foundCompensation(r compensate.Row) views.FoundMoney {
	id := strconv.FormatInt(r.ID, 10)
	key := strings.Join(r.Key, " · ")
	if key == "" {
		key = deref(r.EventID)
	}
	return views.FoundMoney{Name: "C-" + id, Href: "/compensations/" + id, Key: key, Of: r.Action,
		State: r.State.String(), Amount: strings.TrimSpace(r.Amount.String() + " " + r.Currency), At: r.AskedAt}
}
