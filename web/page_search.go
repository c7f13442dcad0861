package web

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
)

var shortName = regexp.MustCompile(`^(?i)([FR])-(\d{1,18})$`)

// search opens the one exact hit, else the list of letters with that event id:
// a fault or replay by its name, a letter by its id.
func (s *Server) search(c echo.Context) error {
	q := parseQuery(c)
	text := strings.TrimSpace(q.take("q"))
	if err := q.done(); err != nil {
		return err
	}
	if m := shortName.FindStringSubmatch(text); m != nil {
		section := "/faults/"
		if strings.EqualFold(m[1], "R") {
			section = "/replays/"
		}
		return c.Redirect(http.StatusSeeOther, section+strings.TrimLeft(m[2], "0"))
	}
	if id, err := uuid.Parse(text); err == nil && len(text) == 36 {
		if _, err := s.Letters.Get(c.Request().Context(), id); err == nil {
			return c.Redirect(http.StatusSeeOther, "/letters/"+id.String())
		}
	}
	if text == "" {
		return c.Redirect(http.StatusSeeOther, "/letters")
	}
	found, err := s.Letters.List(c.Request().Context(), dlq.LetterFilter{EventID: text}, dlq.Page{Limit: 2})
	if err != nil {
		return fmt.Errorf("search letters: %w", err)
	}
	if len(found.Items) == 1 {
		return c.Redirect(http.StatusSeeOther, "/letters/"+found.Items[0].ID.String())
	}
	return c.Redirect(http.StatusSeeOther, address("/letters", "event_id", text))
}
