package web

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
)

var shortName = regexp.MustCompile(`^(?i)([FRBC])-(\d{1,18})$`)

// sections are where the things of a short name stand.
var sections = map[string]string{"F": "/faults/", "R": "/replays/", "B": "/breaks/", "C": "/compensations/"}

// searchRows is how many letters the page of a search shows.
const searchRows = 20

// search opens the one exact hit: a fault, replay, break or compensation by its
// name, a letter by its id or event id. Several letters of an event id are listed
// with the replays that hold them. Else it lists what has the term anywhere.
func (s *Server) search(c echo.Context) error {
	q := parseQuery(c)
	text := strings.TrimSpace(q.take("q"))
	if err := q.done(); err != nil {
		return err
	}
	if text == "" {
		return c.Redirect(http.StatusSeeOther, "/letters")
	}
	if m := shortName.FindStringSubmatch(text); m != nil {
		return c.Redirect(http.StatusSeeOther, sections[strings.ToUpper(m[1])]+strings.TrimLeft(m[2], "0"))
	}
	ctx := c.Request().Context()
	if id, err := uuid.Parse(text); err == nil && len(text) == 36 {
		if _, err := s.Letters.Get(ctx, id); err == nil {
			return c.Redirect(http.StatusSeeOther, "/letters/"+id.String())
		}
	}
	byID, err := s.Letters.List(ctx, dlq.LetterFilter{EventID: text}, dlq.Page{Limit: searchRows})
	if err != nil {
		return fmt.Errorf("search letters: %w", err)
	}
	switch len(byID.Items) {
	case 0:
		return s.searchPage(c, text)
	case 1: // whose page shows its replays
		return c.Redirect(http.StatusSeeOther, "/letters/"+byID.Items[0].ID.String())
	}
	return s.eventPage(c, text, byID)
}

// searchPage lists what has the term in its key, headers, error or payload.
func (s *Server) searchPage(c echo.Context, text string) error {
	here, actor := localeOf(c), actorOf(c)
	v, err := s.foundPage(c, text)
	if err != nil {
		return err
	}
	if !actor.May(access.ReadPayload) {
		v.None = here.Text("search.none_masked", "query", text, "roles", rolesOf(here, access.ReadPayload))
		return render(c, http.StatusOK, views.SearchPage(v))
	}
	filter := dlq.LetterFilter{Search: text}
	page, err := s.Letters.List(c.Request().Context(), filter, dlq.Page{Limit: searchRows})
	if bad, ok := errors.AsType[*dlq.ErrBadFilter](err); ok {
		v.None = bad.Reason
		return render(c, http.StatusOK, views.SearchPage(v))
	}
	if err != nil {
		return fmt.Errorf("search letters: %w", err)
	}
	if len(page.Items) == 1 && page.Next == "" && page.Stopped == nil && !v.Money() {
		return c.Redirect(http.StatusSeeOther, "/letters/"+page.Items[0].ID.String())
	}
	s.foundLetters(c, &v, page, address("/letters", "q", text))
	if len(page.Items) == 0 {
		if only := v.Only(); only != "" && page.Stopped == nil {
			return c.Redirect(http.StatusSeeOther, only)
		}
		v.None = here.Text("search.none", "query", text)
	}
	v.AsText = address("/letters", "text", text, "within", "24h")
	if v.Notices, err = s.searchNotices(c, letterQuery{filter: filter}, page); err != nil {
		return err
	}
	return render(c, http.StatusOK, views.SearchPage(v))
}

// foundPage begins a page of what was found, with breaks and compensations.
func (s *Server) foundPage(c echo.Context, text string) (views.Found, error) {
	here := localeOf(c)
	v := views.Found{Frame: s.pageFrame(c, "letters", here.Text("search.title"), letterSectionCrumbs(here, here.Text("search.title"))...), Text: text}
	v.Query = text
	err := s.findMoney(c, &v)
	return v, err
}

// foundLetters adds letters; list is the address of all that are like them.
func (s *Server) foundLetters(c echo.Context, v *views.Found, page dlq.LetterPage, list string) {
	for _, l := range page.Items {
		v.Rows = append(v.Rows, s.letterRow(actorOf(c), l, queryAddress(list)))
	}
	if page.Next != "" {
		v.More = list
	}
}

func queryAddress(href string) string { return "?" + queryOf(href) }
