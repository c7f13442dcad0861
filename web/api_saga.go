package web

import (
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
)

// sagaStepJSON is one step in one direction.
type sagaStepJSON struct {
	No             int        `json:"no"`
	Op             string     `json:"op"`
	Step           string     `json:"step"`
	State          string     `json:"state"`
	Tries          int        `json:"attempts"`
	DueAt          *time.Time `json:"due_at"`
	StartedAt      *time.Time `json:"started_at"`
	DoneAt         *time.Time `json:"done_at"`
	Why            *string    `json:"why"`
	SkipAskedBy    *string    `json:"skip_asked_by"`
	SkipReason     *string    `json:"skip_reason"`
	SkipApprovedBy *string    `json:"skip_approved_by"`
}

func sagaStepOf(r compensate.StepRow) sagaStepJSON {
	return sagaStepJSON{r.No, opNames[r.Op], r.Step, stepStates[r.State], r.Tries, instant(r.DueAt), instant(r.StartedAt), instant(r.DoneAt), r.Why, r.SkipBy, r.SkipReason, r.SkipApprovedBy}
}

var stepStates = map[compensate.StepState]string{
	compensate.StepWaiting: "waiting", compensate.StepRunning: "running", compensate.StepDone: "done", compensate.StepFailed: "failed",
	compensate.StepUnknown: "unknown", compensate.StepSkipped: "skipped",
}

// apiSagas lists the compensations of several steps.
func (s *Server) apiSagas(c echo.Context) error {
	q := parseQuery(c)
	f := compensationFilter(q)
	if err := q.done(); err != nil {
		return err
	}
	f.Sagas = true
	return s.answerCompensations(c, f)
}

// apiStepAct runs a command on one step: the path names its number and direction.
func (s *Server) apiStepAct(act stepAct) echo.HandlerFunc {
	return func(c echo.Context) error {
		by, err := commander(c)
		if err != nil {
			return err
		}
		id, err := s.actOnStep(c, act, by.Reason)
		if err != nil {
			return err
		}
		return s.answerCompensation(c, id)
	}
}
