package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
)

// refused is a form that could not be done: shown again on its page, with what
// was typed. The zero value is a form that nobody sent yet.
type refused struct {
	Status  int
	Text    string
	Reason  string   // as typed
	Checked []string // points of a checklist that were ticked
}

func (r refused) status() int {
	if r.Status == 0 {
		return http.StatusOK
	}
	return r.Status
}

func (r refused) reason(preset string) string {
	if r.Status == 0 {
		return preset
	}
	return r.Reason
}

// refusal turns what a command answered into a sentence for the form's page.
// False: it is no error that a form can mend.
func refusal(here locale.Locale, err error) (refused, bool) {
	if conflict, ok := errors.AsType[*dlq.ErrConflict](err); ok {
		return refused{Status: http.StatusConflict, Text: conflictText(here, conflict)}, true
	}
	if many, ok := errors.AsType[*dlq.ErrTooManyLetters](err); ok {
		return refused{Status: http.StatusUnprocessableEntity, Text: here.Text("form.too_many", "n", many.Limit)}, true
	}
	if override, ok := errors.AsType[*dlq.ErrBadOverride](err); ok {
		return refused{Status: http.StatusUnprocessableEntity, Text: here.Text("form.override", "id", override.Override.LetterID.String())}, true
	}
	if triage, ok := errors.AsType[*dlq.ErrBadTriage](err); ok {
		return refused{Status: http.StatusUnprocessableEntity, Text: here.Text("form.triage", "field", here.Text("triage.field."+triage.Field), "why", triage.Reason)}, true
	}
	for sentinel, key := range map[error]string{
		dlq.ErrBulkRunning: "form.bulk_running", dlq.ErrNotUndoable: "form.not_undoable", dlq.ErrSearchExists: "form.search_exists",
		access.ErrReasonRequired: "form.reason", dlq.ErrApprovalVoid: "form.approval_void", dlq.ErrBadSelection: "form.none", dlq.ErrNothingToSend: "form.nothing", dlq.ErrOwnApproval: "form.own",
	} {
		if errors.Is(err, sentinel) {
			return refused{Status: problemOf(sentinel).Status, Text: here.Text(key)}, true
		}
	}
	return refused{}, false
}

func conflictText(here locale.Locale, e *dlq.ErrConflict) string {
	id := strconv.FormatInt(e.Replay, 10)
	if e.Letter != nil && e.By != "" {
		return here.Text("form.conflict", "by", e.By, "id", id)
	}
	return here.Text("form.conflict_state", "id", id, "state", here.Text("state.replay."+e.State.String()))
}

// replayForm is what every form that replays carries.
func (s *Server) replayForm(c echo.Context, preset string, was refused) views.ReplayForm {
	here := localeOf(c)
	return views.ReplayForm{
		May: actorOf(c).May(access.StartReplay), WhoMay: here.Text("may.replay", "roles", rolesOf(here, access.StartReplay)),
		Reason: was.reason(preset), RequestKey: hexHash(string(randomBytes(16))), Error: was.Text, From: backTo(c.Request().URL.RequestURI()),
	}
}

// again shows the page that a refused form came from. False: from no page of ours.
func (s *Server) again(c echo.Context, from string, was refused) (bool, error) {
	u, err := url.Parse(backTo(from))
	if err != nil {
		return false, nil
	}
	r := c.Request().Clone(c.Request().Context())
	r.Method, r.URL = http.MethodGet, u
	c.SetRequest(r)
	section, rest, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	id, last, _ := strings.Cut(rest, "/")
	c.SetParamNames("id")
	c.SetParamValues(id)
	switch {
	case section == "letters" && id == "":
		return true, s.showLetterList(c, was)
	case section == "letters":
		return true, s.showLetter(c, was)
	case section == "faults" && id == "":
		return true, s.showFaultList(c, was)
	case section == "faults":
		return true, s.showFault(c, was)
	case section == "commands" && id != "":
		return true, s.showCommand(c, was)
	case section == "replays" && last == "plan":
		return true, s.showReplayPlan(c, was)
	case section == "replays" && id != "":
		return true, s.showReplay(c, was)
	}
	return s.againFinance(c, section, id, was)
}
