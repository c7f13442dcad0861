package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
)

type searchJSON struct {
	ID     int64  `json:"id"`
	Owner  string `json:"owner"`
	Name   string `json:"name"`
	Page   string `json:"page"`
	Query  string `json:"query"`
	Shared bool   `json:"shared"`
}

func searchOf(s dlq.SavedSearch) searchJSON {
	return searchJSON{s.ID, s.Owner, s.Name, s.Page, s.Query, s.Shared}
}

func (s *Server) apiSearches(c echo.Context) error {
	q := parseQuery(c)
	page := q.take("page")
	if err := q.done(); err != nil {
		return err
	}
	all, err := s.Searches.List(c.Request().Context(), actorOf(c), page)
	if err != nil {
		return fmt.Errorf("list saved searches: %w", err)
	}
	return answer(c, http.StatusOK, listOf(all, "", searchOf))
}

type newSearchJSON struct {
	Name   string `json:"name"`
	Page   string `json:"page"`
	Query  string `json:"query"`
	Shared bool   `json:"shared"`
}

func (s *Server) apiSearchSave(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var body newSearchJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	if err := checkListQuery(c, body.Page, body.Query); err != nil {
		return err
	}
	saved, err := s.Searches.Save(c.Request().Context(), actorOf(c), dlq.SavedSearch{Name: body.Name, Page: body.Page, Query: body.Query, Shared: body.Shared})
	if err != nil {
		return err
	}
	return answer(c, http.StatusCreated, searchOf(saved))
}

// checkListQuery refuses what the list itself would.
func checkListQuery(c echo.Context, page, query string) error {
	q := queryFrom(c, query)
	q.take("cursor")
	switch page {
	case "letters":
		letterFilter(q)
		q.take("within")
		q.columns()
	case "faults":
		q.take("by")
		faultFilter(q)
	default:
		return nil // refused by name later
	}
	if err := q.done(); err != nil {
		return fmt.Errorf("query: %w", err)
	}
	return nil
}

func (s *Server) apiSearchDelete(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	if err := s.Searches.Delete(c.Request().Context(), actorOf(c), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

type monthJSON struct {
	Month   string     `json:"month"`
	Letters int64      `json:"letters"` // about
	DropAt  *time.Time `json:"drop_at"` // null: never
	Kept    *keptJSON  `json:"kept"`    // null: nothing keeps it beyond drop_at
}

type keptJSON struct {
	Open    int64      `json:"open"`
	Reason  string     `json:"reason"`
	FoundAt *time.Time `json:"found_at"`
}

type retentionJSON struct {
	KeepSeconds int64       `json:"keep_seconds"` // after the end of a letter's month; 0: for ever
	Months      []monthJSON `json:"months"`
}

func (s *Server) apiRetention(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	months, err := s.Retention.Months(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list months: %w", err)
	}
	j := retentionJSON{KeepSeconds: int64(s.Retention.Keep() / time.Second), Months: []monthJSON{}}
	for _, m := range months {
		one := monthJSON{Month: m.Month.Format("2006-01"), Letters: m.Letters, DropAt: instant(&m.DropAt)}
		if m.Why != "" {
			one.Kept = &keptJSON{Open: m.OpenN, Reason: m.Why, FoundAt: instant(m.FoundAt)}
		}
		j.Months = append(j.Months, one)
	}
	return answer(c, http.StatusOK, j)
}
