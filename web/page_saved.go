package web

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
)

// savedBar is the saved searches over a list, and the offer to save the present
// one where it narrows anything.
func (s *Server) savedBar(c echo.Context, page, query string, narrowed bool) (views.SavedBar, error) {
	actor := actorOf(c)
	v := views.SavedBar{Page: page, From: backTo(c.Request().URL.RequestURI()), MayShare: actor.May(access.ShareSearch)}
	if s.Searches == nil {
		return v, nil
	}
	all, err := s.Searches.List(c.Request().Context(), actor, page)
	if err != nil {
		return v, fmt.Errorf("list saved searches: %w", err)
	}
	present := sortedQuery(query)
	known := false
	for _, one := range all {
		row := views.SavedSearch{ID: one.ID, Name: one.Name, Href: "/" + page + "?" + one.Query, Mine: one.Owner == actor.User, Current: one.Query == present}
		if !row.Mine {
			row.Owner = one.Owner
		}
		known = known || row.Current
		v.Searches = append(v.Searches, row)
	}
	if narrowed && !known {
		v.Query = query
	}
	return v, nil
}

// sortedQuery is a query as a saved one is written.
func sortedQuery(query string) string {
	values, err := url.ParseQuery(query)
	if err != nil {
		return query
	}
	values.Del("cursor")
	return values.Encode()
}

func (s *Server) searchSave(c echo.Context) error {
	page, query := c.FormValue("page"), c.FormValue("query")
	if err := checkListQuery(c, page, query); err != nil {
		return err
	}
	saved, err := s.Searches.Save(c.Request().Context(), actorOf(c), dlq.SavedSearch{
		Name: c.FormValue("name"), Page: page, Query: query, Shared: c.FormValue("shared") != ""})
	if err != nil {
		return s.refuse(c, c.FormValue("from"), "", fmt.Errorf("save a search: %w", err))
	}
	return c.Redirect(http.StatusSeeOther, "/"+saved.Page+"?"+saved.Query)
}

func (s *Server) searchDelete(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	if err := s.Searches.Delete(c.Request().Context(), actorOf(c), id); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, backTo(c.FormValue("from")))
}
