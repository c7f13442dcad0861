package web

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/internal/access"
)

// reasonOf reads why somebody does something.
func reasonOf(c echo.Context) (string, error) {
	reason := c.FormValue("reason")
	if why := badText(reason); why != "" {
		return "", invalid("reason", why)
	}
	return reason, nil
}

// compensationDo runs a command on one compensation and shows it again.
func (s *Server) compensationDo(act compensationAct) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := numberID(c, 64)
		if err != nil {
			return compensate.ErrNotFound
		}
		reason, err := reasonOf(c)
		if err != nil {
			return err
		}
		return s.afterCompensation(c, id, reason, act(c.Request().Context(), actorBecause(c, reason), id))
	}
}

// afterCompensation shows the compensation: anew, or with what was wrong.
func (s *Server) afterCompensation(c echo.Context, id int64, reason string, err error) error {
	return after(c, "/compensations/"+strconv.FormatInt(id, 10), s.showCompensation, reason, err)
}

// afterSaga is afterCompensation on the page of its steps.
func (s *Server) afterSaga(c echo.Context, id int64, reason string, err error) error {
	return after(c, "/sagas/"+strconv.FormatInt(id, 10), s.showSaga, reason, err)
}

func after(c echo.Context, page string, show func(echo.Context, refused) error, reason string, err error) error {
	if err == nil {
		return c.Redirect(http.StatusSeeOther, page)
	}
	was, ok := financeRefusal(localeOf(c), err, reason)
	if !ok {
		return err
	}
	return show(c, was)
}

// compensationApprove is bound to what was shown: the form carries its hash.
func (s *Server) compensationApprove(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return compensate.ErrNotFound
	}
	hash, err := parseHash("hash", c.FormValue("hash"))
	if err != nil {
		return err
	}
	reason, err := reasonOf(c)
	if err != nil {
		return err
	}
	return s.afterCompensation(c, id, reason, s.Compensations.Approve(c.Request().Context(), actorBecause(c, reason), id, hash))
}

// compensationSwitch stops what the schedule does by itself, or lets it go on.
func (s *Server) compensationSwitch(stop bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		reason, err := reasonOf(c)
		if err != nil {
			return err
		}
		turn := s.Compensations.Go
		if stop {
			turn = s.Compensations.Stop
		}
		err = turn(c.Request().Context(), actorBecause(c, reason))
		if err == nil {
			return c.Redirect(http.StatusSeeOther, "/compensations")
		}
		was, ok := financeRefusal(localeOf(c), err, reason)
		if !ok {
			return err
		}
		return s.showCompensationList(c, was)
	}
}

// sagaDo runs a command on one step, or on the saga, and shows it again.
func (s *Server) sagaDo(act stepAct) echo.HandlerFunc {
	return func(c echo.Context) error {
		reason, err := reasonOf(c)
		if err != nil {
			return err
		}
		id, err := s.actOnStep(c, act, reason)
		return s.afterSaga(c, id, reason, err)
	}
}

func (s *Server) sagaCancel(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return compensate.ErrNotFound
	}
	reason, err := reasonOf(c)
	if err != nil {
		return err
	}
	return s.afterSaga(c, id, reason, s.Compensations.Cancel(c.Request().Context(), actorBecause(c, reason), id))
}

// registerCompensationPages registers repairs, sagas and approvals.
func (s *Server) registerCompensationPages(g *echo.Group) {
	all := s.Compensations
	propose, approve, control := s.allow(access.ProposeCompensation), s.allow(access.ApproveCompensation), s.allow(access.ControlCompensation)
	g.GET("/approvals", s.approvalsPage)
	g.GET("/compensations", s.compensationListPage)
	g.GET("/compensations/new", s.compensationNewPage)
	g.POST("/compensations", s.compensationPropose, propose)
	g.GET("/compensations/approve", s.compensationBatchPage)
	g.POST("/compensations/approve", s.compensationBatchApprove, approve)
	g.POST("/compensations/stop", s.compensationSwitch(true), control)
	g.POST("/compensations/allow", s.compensationSwitch(false), approve)
	g.GET("/compensations/:id", s.compensationPage)
	g.POST("/compensations/:id/approve", s.compensationApprove, approve)
	g.POST("/compensations/:id/reject", s.compensationDo(all.Reject), approve)
	g.POST("/compensations/:id/retry", s.compensationDo(all.Retry), control)
	g.POST("/compensations/:id/check", s.compensationDo(all.Check), control)
	g.POST("/compensations/:id/cancel", s.compensationDo(all.Cancel), control)
	g.POST("/compensations/:id/pause", s.compensationDo(all.Pause), control)
	g.POST("/compensations/:id/resume", s.compensationDo(all.Resume), control)
	g.GET("/sagas/:id", s.sagaPage)
	g.POST("/sagas/:id/cancel", s.sagaCancel, control)
	g.POST("/sagas/:id/steps/:op/:no/retry", s.sagaDo(s.retryStep), control)
	g.POST("/sagas/:id/steps/:op/:no/skip", s.sagaDo(all.AskSkip), control)
	g.POST("/sagas/:id/steps/:op/:no/approve-skip", s.sagaDo(all.ApproveSkip), approve)
}
