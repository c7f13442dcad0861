package web

import (
	"fmt"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
)

// addRemarks reads what people did with a letter and said about it.
func (s *Server) addRemarks(c echo.Context, f *letterFacts) (err error) {
	ctx, id := c.Request().Context(), f.letter.ID
	if f.triage, err = s.triageForm(c); err != nil {
		return err
	}
	if f.said, err = s.Letters.Comments(ctx, id); err != nil {
		return fmt.Errorf("list comments on letter %s: %w", id, err)
	}
	if f.letter.State == dlq.Discarded && s.Bulks != nil {
		if f.discard, err = s.Bulks.Of(ctx, id); err != nil {
			return fmt.Errorf("find what discarded letter %s: %w", id, err)
		}
	}
	return nil
}

// readableHeaders are those that may stand in a link: none for who may not read them.
func readableHeaders(body dlq.Body, mayRead bool) []dlq.Header {
	if !mayRead {
		return nil
	}
	return body.Headers
}
