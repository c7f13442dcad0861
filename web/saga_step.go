package web

import (
	"context"
	"fmt"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/internal/access"
)

// stepAct is a command on one step of a compensation, in one direction.
type stepAct func(ctx context.Context, actor access.Actor, id int64, no int, op compensate.Op) error

var opsByName = map[string]compensate.Op{"forward": compensate.Forward, "compensate": compensate.Back, "confirm": compensate.Confirm}

// actOnStep runs a command on the step that the path names.
func (s *Server) actOnStep(c echo.Context, act stepAct, reason string) (int64, error) {
	id, err := numberID(c, 64)
	if err != nil {
		return 0, err
	}
	no, err := strconv.ParseUint(c.Param("no"), 10, 15)
	if err != nil {
		return 0, &fieldError{Field: "no", Text: "is the number of a step"}
	}
	op, err := choice("op", c.Param("op"), opsByName)
	if err != nil {
		return 0, err
	}
	return id, act(c.Request().Context(), actorBecause(c, reason), id, int(no), op)
}

// retryStep tries what the compensation stopped at once more: that is the step.
func (s *Server) retryStep(ctx context.Context, actor access.Actor, id int64, no int, op compensate.Op) error {
	steps, err := s.Compensations.Steps(ctx, id)
	if err != nil {
		return err
	}
	for _, r := range steps {
		if r.No == no && r.Op == op && (r.State == compensate.StepFailed || r.State == compensate.StepUnknown) {
			return s.Compensations.Retry(ctx, actor, id)
		}
	}
	return fmt.Errorf("%w: it has not stopped at step %d", compensate.ErrState, no)
}
