package web

import (
	"context"
	"fmt"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"oncemore/views"
)

// faultListEvents says when faults have changed since the page was made. Rows
// stay where they are: the notice offers the refresh.
func (s *Server) faultListEvents(c echo.Context) error {
	return s.changes(c, func(ctx context.Context, since time.Time) (int, bool, error) {
		n, err := s.Faults.Changed(ctx, since)
		return n, n >= 1000, err
	}, "changes.faults")
}

// letterListEvents says when letters have arrived that the list would hold.
func (s *Server) letterListEvents(c echo.Context) error {
	return s.changes(c, func(ctx context.Context, since time.Time) (int, bool, error) {
		n, err := s.Letters.Arrived(ctx, since)
		return n, n >= 1000, err
	}, "changes.letters")
}

// changesPoll spares the database: a list that is read needs no second's warning.
const changesPoll = 3 * time.Second

func (s *Server) changes(c echo.Context, count func(context.Context, time.Time) (int, bool, error), key string) error {
	q := parseQuery(c)
	since, page := q.time("since"), q.take("page")
	if err := q.done(); err != nil {
		return err
	}
	here, last, n, more := localeOf(c), time.Time{}, 0, false
	return s.stream(c, func(ctx context.Context) (string, templ.Component, bool, error) {
		if now := time.Now(); now.Sub(last) >= changesPoll {
			var err error
			if n, more, err = count(ctx, since); err != nil {
				return "", nil, false, fmt.Errorf("count changes: %w", err)
			}
			last = now
		}
		text := ""
		if n > 0 {
			text = here.Text(key, "n", n, "time", here.Clock(since))
		}
		if more {
			text = here.Text("changes.many", "time", here.Clock(since))
		}
		return fmt.Sprint("v", n), views.ChangeNotice(text, backTo(page)), false, nil
	})
}

// changesURL is the stream of a list's changes from now on.
func changesURL(c echo.Context, list string) string {
	return address(list+"/events", "since", rfc(localeOf(c).Now), "page", c.Request().URL.RequestURI())
}
