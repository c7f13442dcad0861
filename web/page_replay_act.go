package web

import (
	"context"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
)

// replayAct runs one command on one replay and goes to where its effect can be
// seen; %d in next is the replay.
func (s *Server) replayAct(act func(context.Context, access.Actor, int64) error, next string) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := numberID(c, 64)
		if err != nil {
			return dlq.ErrNotFound
		}
		reason := c.FormValue("reason")
		if why := badText(reason); why != "" {
			return invalid("reason", why)
		}
		at := fmt.Sprintf(next, id)
		if err := act(c.Request().Context(), actorBecause(c, reason), id); err != nil {
			from := c.FormValue("from")
			if from == "" {
				from = at
			}
			return s.refuse(c, from, reason, fmt.Errorf("replay %d: %w", id, err))
		}
		return c.Redirect(http.StatusSeeOther, at)
	}
}
