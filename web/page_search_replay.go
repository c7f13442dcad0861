package web

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/views"
)

// eventLetters is how many letters of an event are asked for their replays.
const eventLetters = 200

// eventPage shows the letters of an event id and the replays that hold them; an
// event that was not replayed has its list of letters.
func (s *Server) eventPage(c echo.Context, event string, letters dlq.LetterPage) error {
	ctx := c.Request().Context()
	list := address("/letters", "event_id", event)
	ids, _, err := s.Letters.IDs(ctx, dlq.LetterFilter{EventID: event}, eventLetters)
	if err != nil {
		return fmt.Errorf("list letters of event %s: %w", event, err)
	}
	items, more, err := s.Replays.Find(ctx, ids, searchRows)
	if err != nil {
		return fmt.Errorf("search replays: %w", err)
	}
	if len(items) == 0 {
		return c.Redirect(http.StatusSeeOther, list)
	}
	v, err := s.foundPage(c, event)
	if err != nil {
		return err
	}
	v.MoreReplays = more
	for _, it := range items {
		v.Replays = append(v.Replays, foundReplay(it))
	}
	s.foundLetters(c, &v, letters, list)
	return render(c, http.StatusOK, views.SearchPage(v))
}

func foundReplay(it dlq.FoundItem) views.FoundReplay {
	row := views.FoundReplay{ID: it.ReplayID, No: int(it.No), To: it.To, SentAt: it.SentAt,
		Href: address("/replays/"+strconv.FormatInt(it.ReplayID, 10), "tab", "all", "cursor", it.Before) + "#items"}
	for _, o := range it.Outcomes {
		row.Outcomes = append(row.Outcomes, o.String())
	}
	if len(row.Outcomes) == 0 {
		row.Outcomes = []string{itemOutcome(it.State)}
	}
	return row
}

// itemOutcome is the word for an item of which no group has an outcome.
func itemOutcome(state string) string {
	switch state {
	case "sending", "sent":
		return dlq.Pending.String()
	}
	return state
}
