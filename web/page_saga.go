package web

import (
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

func (s *Server) sagaPage(c echo.Context) error { return s.showSaga(c, refused{}) }

func (s *Server) showSaga(c echo.Context, was refused) error {
	id, err := numberID(c, 64)
	if err != nil {
		return compensate.ErrNotFound
	}
	if err := noQuery(c); err != nil {
		return err
	}
	t, err := storyOf(c.Request().Context(), s.Compensations, id)
	if err != nil {
		return err
	}
	here, actor, name := localeOf(c), actorOf(c), "C-"+strconv.FormatInt(id, 10)
	v := views.Saga{
		Frame: s.pageFrame(c, "compensations", here.Text("saga.title", "id", strconv.FormatInt(id, 10)), repairCrumbs(here, "compensations", name)...),
		ID:    id, State: compensationWord(t.Row), Effect: effectSays(here, t.Compensation), Direction: directionOf(t), Steps: sagaRows(here, t, &actor),
		Attempts: attemptRows(here, t), Error: was.Text,
	}
	v.Says = sagaSays(here, t)
	if v.Because, err = s.becauseOf(c, t); err != nil {
		return err
	}
	if v.Timeline, err = s.compensationTimeline(c, t); err != nil {
		return err
	}
	if acts, err := s.compensationActs(c, t); err != nil {
		return err
	} else if v.WhoMay = acts.WhoMay; v.WhoMay == "" {
		v.MayCancel = acts.Cancel
	}
	return render(c, was.status(), views.SagaPage(v))
}

// directionOf is where a saga goes: forward, back, confirm, or nowhere any more.
func directionOf(t story) string {
	switch {
	case t.State.Ended() || t.State == compensate.Verifying:
		return "ended"
	case t.goes(compensate.Back):
		return "back"
	case t.goes(compensate.Confirm):
		return "confirm"
	}
	return "forward"
}

func (t story) goes(op compensate.Op) bool {
	return slices.ContainsFunc(t.steps, func(r compensate.StepRow) bool { return r.Op == op })
}

// stopped is the step that the saga stands at; nil: at none.
func (t story) stopped() *compensate.StepRow {
	if t.State != compensate.NeedsAttention {
		return nil
	}
	op := compensate.Forward
	for _, r := range t.steps {
		op = max(op, r.Op)
	}
	for i, r := range slices.Backward(t.steps) {
		if r.Op == op && (r.State == compensate.StepFailed || r.State == compensate.StepUnknown) {
			return &t.steps[i]
		}
	}
	return nil
}

// sagaSays is where the saga stands, in a sentence.
func sagaSays(here locale.Locale, t story) string {
	if at := t.stopped(); at != nil {
		switch {
		case at.Op == compensate.Back && at.No > 0 && t.waitsBelow(at.No):
			return here.Text("saga.says.stopped_back", "step", at.Step)
		case at.Op == compensate.Back:
			return here.Text("saga.says.stopped_last", "step", at.Step)
		case at.State == compensate.StepUnknown:
			return here.Text("saga.says.unknown", "step", at.Step)
		}
		return here.Text("saga.says.stopped", "step", at.Step)
	}
	if t.State.Ended() || t.State == compensate.NeedsAttention || t.State == compensate.Verifying {
		if t.State == compensate.NeedsAttention && t.goes(compensate.Back) {
			return here.Text("saga.says.undone")
		}
		return here.Text("saga.says." + t.State.String())
	}
	if len(t.steps) == 0 {
		return here.Text("saga.says.not_begun")
	}
	return here.Text("saga.says." + directionOf(t))
}

// waitsBelow reports whether what undoes earlier steps has still to run.
func (t story) waitsBelow(no int) bool {
	return slices.ContainsFunc(t.steps, func(r compensate.StepRow) bool {
		return r.Op == compensate.Back && r.No < no && r.State == compensate.StepWaiting
	})
}

// sagaRows is the list of steps. Without an actor it has no buttons.
func sagaRows(here locale.Locale, t story, actor *access.Actor) []views.SagaStepRow {
	rows := make([]views.SagaStepRow, 0, len(t.Effect))
	for no, e := range t.Effect {
		rows = append(rows, views.SagaStepRow{No: no, Name: e.Step, Kind: string(e.Kind), Undo: e.Undo})
	}
	stands := t.stopped()
	for i, r := range t.steps {
		if r.No >= len(rows) {
			continue
		}
		cell := sagaCell(here, t, r)
		if cell.Stopped = stands == &t.steps[i]; cell.Stopped && actor != nil {
			buttons(here, &cell, r, *actor)
		}
		switch r.Op {
		case compensate.Forward:
			rows[r.No].Forward = cell
		case compensate.Back:
			rows[r.No].Back = cell
		case compensate.Confirm:
			rows[r.No].Confirm = &cell
		}
	}
	return rows
}

func sagaCell(here locale.Locale, t story, r compensate.StepRow) views.SagaCell {
	cell := views.SagaCell{There: true, Op: opNames[r.Op], State: stepWord(r), Tries: r.Tries, At: r.DoneAt, Why: deref(r.Why)}
	if cell.At == nil {
		cell.At = r.StartedAt
	}
	if r.State == compensate.StepWaiting {
		cell.Due = r.DueAt
	}
	if last := t.lastAnswer(r); last != nil {
		cell.Answer = answerSays(here, last.Answer)
		if decision := readAnswer(last.Answer).Barrier; decision != "" {
			if key := "barrier." + decision; locale.Has(key) {
				cell.Barrier = here.Text(key)
			}
		}
		if cell.Why == cell.Answer {
			cell.Why = ""
		}
	}
	if r.SkipBy != nil {
		cell.Skip = here.Text("saga.skip_asked", "by", *r.SkipBy, "reason", deref(r.SkipReason))
		if r.SkipApprovedBy != nil {
			cell.Skip = here.Text("saga.skipped", "by", *r.SkipBy, "reason", deref(r.SkipReason), "approver", *r.SkipApprovedBy)
		}
	}
	return cell
}

// stepWord is a step's state: what undoes has words of its own.
func stepWord(r compensate.StepRow) string {
	if r.Op == compensate.Back {
		switch r.State {
		case compensate.StepRunning:
			return "compensating"
		case compensate.StepDone:
			return "compensated"
		}
	}
	return stepStates[r.State]
}

func (t story) lastAnswer(r compensate.StepRow) *compensate.Attempt {
	for i, a := range slices.Backward(t.attempts) {
		if a.No == r.No && a.Op == r.Op && a.Outcome != nil {
			return &t.attempts[i]
		}
	}
	return nil
}

// buttons are what can be done where a saga stands.
func buttons(here locale.Locale, cell *views.SagaCell, r compensate.StepRow, actor access.Actor) {
	cell.MayRetry = actor.May(access.ControlCompensation)
	if r.SkipBy == nil {
		cell.MaySkip = actor.May(access.ControlCompensation)
		return
	}
	switch {
	case *r.SkipBy == actor.User:
		cell.WhoAgree = here.Text("error.own_approval.detail")
	case actor.May(access.ApproveCompensation):
		cell.MayAgree = true
	default:
		cell.WhoAgree = here.Text("may.approve_compensation", "roles", rolesOf(here, access.ApproveCompensation))
	}
}
