package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/consumer/outbox"
	"oncemore/dlq"
	"oncemore/dlq/export"
	"oncemore/internal/access"
	"oncemore/internal/alert"
	"oncemore/internal/audit"
	"oncemore/internal/check"
	"oncemore/internal/fleet"
	"oncemore/internal/outboxes"
	"oncemore/reconcile"
)

// fieldError is input that the request itself got wrong: a parameter, or a field
// of the body.
type fieldError struct {
	Field  string // API name; a JSON pointer's path for nested fields, such as overrides/0/verdict
	Text   string // English, without the field
	Status int    // 400: cannot be read; 422: can be read, but not done; 0: 400
}

func (e *fieldError) Error() string { return fmt.Sprintf("web: %s: %s", e.Field, e.Text) }

var (
	errTooLarge    = errors.New("web: the request is larger than the limit")
	errMediaType   = errors.New("web: send application/json")
	errCrossOrigin = errors.New("web: the request comes from another site")
	errBusy        = errors.New("web: too many live pages are open")
)

// problem is how an error is told: to people by its catalog key, to programs as
// problem+json.
type problem struct {
	Status int
	Key    string // catalog key of the page's sentence; its last part names the problem type
	Title  string // English, for programs
}

// problems is the one table from error to answer; the first that matches counts.
var problems = []struct {
	is func(error) bool
	problem
}{
	{isUnprocessable, unprocessable},
	{sentinel(ErrNoSuchButton), unprocessable},
	{kind[*fieldError](), badRequest},
	{kind[*dlq.ErrBadFilter](), badRequest},
	{sentinel(audit.ErrBadCursor), badRequest},
	{sentinel(errSignedOut), problem{http.StatusUnauthorized, "error.signed_out", "Sign in, or send a token"}},
	{sentinel(errUnknownToken), problem{http.StatusUnauthorized, "error.unknown_token", "The token is not known, or expired, or revoked"}},
	{sentinel(errCrossOrigin), problem{http.StatusForbidden, "error.cross_origin", "The request comes from another site"}},
	{sentinel(access.ErrForbidden), problem{http.StatusForbidden, "error.forbidden", "Your role does not allow this"}},
	{sentinel(dlq.ErrOwnApproval), problem{http.StatusForbidden, "error.own_approval", "Somebody else has to decide about what you asked for"}},
	{sentinel(access.ErrReasonRequired), problem{http.StatusUnprocessableEntity, "error.reason_required", "A reason is required"}},
	{sentinel(dlq.ErrNotFound), notFound},
	{sentinel(fleet.ErrUnknownGroup), notFound},
	{sentinel(alert.ErrNoAlert), problem{http.StatusConflict, "error.no_alert", "The alert has ended, or somebody has acknowledged it"}},
	{sentinel(alert.ErrNoChannel), problem{http.StatusNotFound, "error.no_channel", "There is no such channel"}},
	{sentinel(check.ErrNoFinding), problem{http.StatusConflict, "error.no_finding", "There is no such finding"}},
	{sentinel(check.ErrBadMute), problem{http.StatusUnprocessableEntity, "error.bad_mute", "A finding is muted until a time to come, at most a year ahead"}},
	{sentinel(outboxes.ErrUnknown), notFound},
	{sentinel(outbox.ErrNotFound), notFound},
	{sentinel(outboxes.ErrOwnApproval), problem{http.StatusForbidden, "error.own_approval", "Somebody else has to decide about what you asked for"}},
	{sentinel(outboxes.ErrConflict), outboxState},
	{sentinel(outbox.ErrNotDead), outboxState},
	{sentinel(ErrNoAccount), notFound},
	{sentinel(ErrNoToken), notFound},
	{kind[*dlq.ErrBadTriage](), unprocessable},
	{sentinel(dlq.ErrBulkRunning), problem{http.StatusConflict, "error.command_running", "The command is still at work"}},
	{sentinel(dlq.ErrNotUndoable), problem{http.StatusConflict, "error.not_undoable", "Only a discarding can be taken back"}},
	{sentinel(dlq.ErrSearchExists), problem{http.StatusConflict, "error.search_exists", "You have a saved search of that name"}},
	{sentinel(export.ErrFormat), badRequest},
	{kind[*dlq.ErrConflict](), problem{http.StatusConflict, "error.conflict", "Somebody was faster, or the replay is in another state"}},
	{sentinel(dlq.ErrApprovalVoid), problem{http.StatusConflict, "error.approval_void", "What was approved has changed, or the approval has expired: it has to be approved anew"}},
	{kind[*dlq.ErrBadEdit](), problem{http.StatusUnprocessableEntity, "error.bad_edit", "The edit cannot become a revision"}},
	{sentinel(dlq.ErrNothingToSend), problem{http.StatusConflict, "error.nothing_to_send", "The replay has nothing to send"}},
	{sentinel(dlq.ErrKeyReused), problem{http.StatusUnprocessableEntity, "error.key_reused", "The idempotency key belongs to another request"}},
	{sentinel(dlq.ErrBadSelection), problem{http.StatusUnprocessableEntity, "error.bad_selection", "Name letters by id or by filter"}},
	{kind[*dlq.ErrBadOverride](), problem{http.StatusUnprocessableEntity, "error.bad_override", "An override cannot be taken"}},
	{kind[*dlq.ErrTooManyLetters](), problem{http.StatusUnprocessableEntity, "error.too_many_letters", "The selection holds too many letters"}},
	{sentinel(reconcile.ErrNoJob), notFound},
	{sentinel(reconcile.ErrNoRun), notFound},
	{sentinel(reconcile.ErrNoBreak), notFound},
	{sentinel(reconcile.ErrNoProposal), notFound},
	{sentinel(reconcile.ErrDefinition), problem{http.StatusUnprocessableEntity, "error.definition", "The definition is not valid"}},
	{sentinel(reconcile.ErrOwnProposal), problem{http.StatusForbidden, "error.own_proposal", "Somebody else decides about what you proposed"}},
	{sentinel(reconcile.ErrProposalState), problem{http.StatusConflict, "error.proposal_state", "The proposal cannot be decided about"}},
	{sentinel(reconcile.ErrProposalWaits), problem{http.StatusConflict, "error.proposal_waits", "Another change of the job waits"}},
	{sentinel(reconcile.ErrWindow), problem{http.StatusUnprocessableEntity, "error.run_window", "The window cannot be run"}},
	{sentinel(reconcile.ErrPlan), problem{http.StatusUnprocessableEntity, "error.run_plan", "The plan does not fit the job"}},
	{sentinel(reconcile.ErrKey), problem{http.StatusUnprocessableEntity, "error.run_key", "The key does not fit the job"}},
	{sentinel(reconcile.ErrOwnRun), problem{http.StatusForbidden, "error.own_run", "Somebody else signs a run that you prepared"}},
	{sentinel(reconcile.ErrNotSignable), problem{http.StatusConflict, "error.not_signable", "The run cannot be signed as it is"}},
	{sentinel(reconcile.ErrChecklist), problem{http.StatusUnprocessableEntity, "error.checklist", "Every point of the checklist has to be confirmed"}},
	{sentinel(reconcile.ErrSealBroken), problem{http.StatusConflict, "error.seal_broken", "The run is not what was sealed, or not what was shown"}},
	{sentinel(reconcile.ErrBreakState), problem{http.StatusConflict, "error.break_state", "The break is in another state"}},
	{sentinel(reconcile.ErrReasonCode), problem{http.StatusUnprocessableEntity, "error.reason_code", "There is no such reason code"}},
	{sentinel(reconcile.ErrFile), problem{http.StatusUnprocessableEntity, "error.file", "The file cannot be kept"}},
	{sentinel(compensate.ErrNoAction), notFound},
	{sentinel(compensate.ErrNotFound), notFound},
	{sentinel(compensate.ErrOwn), problem{http.StatusForbidden, "error.own_approval", "Somebody else has to decide about what you asked for"}},
	{sentinel(compensate.ErrVoid), problem{http.StatusConflict, "error.compensation_void", "What would be done has changed: it has to be looked at and proposed anew"}},
	{sentinel(compensate.ErrExpired), problem{http.StatusConflict, "error.compensation_expired", "The proposal or its approval is too old"}},
	{sentinel(compensate.ErrState), problem{http.StatusConflict, "error.compensation_state", "The compensation is in another state"}},
	{sentinel(compensate.ErrTwice), problem{http.StatusConflict, "error.compensation_twice", "This is being repaired, or has been"}},
	{sentinel(compensate.ErrNotFor), problem{http.StatusUnprocessableEntity, "error.compensation_not_for", "The action is not for this"}},
	{sentinel(compensate.ErrLimit), problem{http.StatusUnprocessableEntity, "error.compensation_limit", "More than the action allows at once"}},
	{sentinel(compensate.ErrInput), problem{http.StatusUnprocessableEntity, "error.compensation_input", "The action needs a value that is not there"}},
	{sentinel(ErrAccountExists), problem{http.StatusConflict, "error.account_exists", "An account of that name exists"}},
	{sentinel(ErrLastAdmin), problem{http.StatusConflict, "error.last_admin", "The last admin that can sign in stays one"}},
	{sentinel(ErrBadName), problem{http.StatusUnprocessableEntity, "error.bad_name", "The name is not valid"}},
	{sentinel(ErrBadPassword), problem{http.StatusUnprocessableEntity, "error.bad_password", "A password has 8 to 128 characters"}},
	{sentinel(ErrBadRole), problem{http.StatusUnprocessableEntity, "error.bad_role", "There is no such role"}},
	{sentinel(ErrTokenRole), problem{http.StatusUnprocessableEntity, "error.token_role", "A token's role is at most that of its user"}},
	{sentinel(ErrTokenExpiry), problem{http.StatusUnprocessableEntity, "error.token_expiry", "The expiry lies in the past"}},
	{sentinel(ErrTokenName), problem{http.StatusUnprocessableEntity, "error.token_name", "The name is not valid"}},
	{kind[*http.MaxBytesError](), tooLarge},
	{sentinel(errTooLarge), tooLarge},
	{sentinel(errMediaType), problem{http.StatusUnsupportedMediaType, "error.media_type", "Send application/json"}},
	{sentinel(errBusy), problem{http.StatusServiceUnavailable, "error.busy", "Too many live pages are open"}},
	{sentinel(context.DeadlineExceeded), problem{http.StatusServiceUnavailable, "error.timeout", "It took too long"}},
}

func sentinel(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func kind[E error]() func(error) bool {
	return func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}
}

var (
	badRequest    = problem{http.StatusBadRequest, "error.bad_request", "The request is not valid"}
	unprocessable = problem{http.StatusUnprocessableEntity, "error.unprocessable", "The request cannot be done as asked"}
	notFound      = problem{http.StatusNotFound, "error.not_found", "Not found"}
	tooLarge      = problem{http.StatusRequestEntityTooLarge, "error.too_large", "The request is too large"}
	outboxState   = problem{http.StatusConflict, "error.outbox_state", "The row is no longer dead, or somebody has asked or decided already"}
	internal      = problem{http.StatusInternalServerError, "error.internal", "Something failed here"}
)

// problemOf finds the answer to an error. An error that nobody foresaw is a 500.
func problemOf(err error) problem {
	for _, p := range problems {
		if p.is(err) {
			return p.problem
		}
	}
	if fromEcho, ok := errors.AsType[*echo.HTTPError](err); ok && fromEcho.Code < 500 {
		return problem{fromEcho.Code, echoKey(fromEcho.Code), http.StatusText(fromEcho.Code)}
	}
	return internal
}

func isUnprocessable(err error) bool {
	field, ok := errors.AsType[*fieldError](err)
	return ok && field.Status == http.StatusUnprocessableEntity
}

func echoKey(status int) string {
	switch status {
	case http.StatusNotFound:
		return "error.not_found"
	case http.StatusMethodNotAllowed:
		return "error.method"
	}
	return "error.bad_request"
}

// fieldOf names the field that an error is about, "" none.
func fieldOf(err error) string {
	if field, ok := errors.AsType[*fieldError](err); ok {
		return field.Field
	}
	if filter, ok := errors.AsType[*dlq.ErrBadFilter](err); ok {
		return filter.Field
	}
	if triage, ok := errors.AsType[*dlq.ErrBadTriage](err); ok {
		return triage.Field
	}
	switch {
	case errors.Is(err, export.ErrFormat):
		return "format"
	case errors.Is(err, audit.ErrBadCursor):
		return "cursor"
	case errors.Is(err, access.ErrReasonRequired):
		return "reason"
	case errors.Is(err, ErrNoSuchButton):
		return "do"
	}
	return ""
}

// detailOf is what may be said of an error: what the request got wrong, who
// stands in the way, nothing of what failed inside.
func detailOf(err error, p problem) string {
	if field, ok := errors.AsType[*fieldError](err); ok {
		return field.Field + ": " + field.Text
	}
	if filter, ok := errors.AsType[*dlq.ErrBadFilter](err); ok {
		return filter.Field + ": " + filter.Reason
	}
	if triage, ok := errors.AsType[*dlq.ErrBadTriage](err); ok {
		return triage.Field + ": " + triage.Reason
	}
	if errors.Is(err, export.ErrFormat) {
		return "format: is one of csv, jsonl, xlsx"
	}
	if errors.Is(err, audit.ErrBadCursor) {
		return "cursor: is not one that this list gave"
	}
	if conflict, ok := errors.AsType[*dlq.ErrConflict](err); ok {
		return ownWords(conflict)
	}
	if missing, ok := errors.AsType[*dlq.ErrLettersNotFound](err); ok {
		return ownWords(missing)
	}
	if override, ok := errors.AsType[*dlq.ErrBadOverride](err); ok {
		return ownWords(override)
	}
	if many, ok := errors.AsType[*dlq.ErrTooManyLetters](err); ok {
		return ownWords(many)
	}
	if words := spokenWords(err); words != "" {
		return p.Title + ": " + words
	}
	if errors.Is(err, reconcile.ErrDefinition) {
		return strings.Join(reconcile.Problems(err), "\n")
	}
	if strings.HasPrefix(p.Key, "error.compensation_") {
		return plainText(err)
	}
	if _, why, ok := strings.Cut(err.Error(), access.ErrForbidden.Error()+": "); ok && p.Status == http.StatusForbidden {
		return why
	}
	if p.Status >= http.StatusInternalServerError {
		return "The log has more under the request id."
	}
	return p.Title + "."
}

func ownWords(err error) string { return strings.TrimPrefix(err.Error(), "dlq: ") }

// fail is echo's error handler: the one place where errors become answers.
func (s *Server) fail(err error, c echo.Context) {
	p := problemOf(err)
	s.logFailure(c, err, p)
	if c.Response().Committed {
		return
	}
	if errors.Is(err, access.ErrForbidden) {
		s.noteRefused(c, err)
	}
	if p.Status == http.StatusUnauthorized {
		c.Response().Header().Set("WWW-Authenticate", `Bearer realm="oncemore"`)
	}
	if p.Status == http.StatusServiceUnavailable {
		c.Response().Header().Set("Retry-After", "5")
	}
	send := s.sendErrorPage
	if isAPI(c) {
		send = s.sendProblem
	}
	if err := send(c, err, p); err != nil {
		s.Logger.Error("answer with an error", "request_id", requestID(c), "error", err)
	}
}

func (s *Server) logFailure(c echo.Context, err error, p problem) {
	switch {
	case errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil:
		return // the reader went away
	case p.Status >= http.StatusInternalServerError:
		s.Logger.Error("request failed", "request_id", requestID(c), "route", c.Path(), "error", err)
	}
}

// noteRefused keeps attempts beyond one's role in the audit log.
func (s *Server) noteRefused(c echo.Context, cause error) {
	actor, ok := c.Get(actorKey).(access.Actor)
	if !ok {
		return
	}
	err := s.note(c, actor, audit.Entry{Action: "access.refused", Target: c.Request().Method + " " + c.Path(),
		Detail: map[string]string{"why": cause.Error()}})
	if err != nil {
		s.Logger.Error("audit a refusal", "request_id", requestID(c), "error", err)
	}
}

// problemJSON is RFC 9457, with the members that clients of ours can use.
type problemJSON struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Instance  string `json:"instance"`
	RequestID string `json:"request_id"`
	Field     string `json:"field,omitempty"` // of the request

	ReplayID  int64       `json:"replay_id,omitempty"` // that stands in the way
	By        string      `json:"by,omitempty"`        // who brought it there
	At        *time.Time  `json:"at,omitempty"`
	LetterID  *uuid.UUID  `json:"letter_id,omitempty"`
	LetterIDs []uuid.UUID `json:"letter_ids,omitempty"` // that do not exist
}

func (s *Server) sendProblem(c echo.Context, err error, p problem) error {
	body := problemJSON{
		Type:  "urn:oncemore:problem:" + strings.ReplaceAll(strings.TrimPrefix(p.Key, "error."), "_", "-"),
		Title: p.Title, Status: p.Status, Detail: detailOf(err, p),
		Instance: c.Request().URL.EscapedPath(), RequestID: requestID(c), Field: fieldOf(err),
	}
	if conflict, ok := errors.AsType[*dlq.ErrConflict](err); ok {
		body.ReplayID, body.By, body.At, body.LetterID = conflict.Replay, conflict.By, instant(&conflict.At), conflict.Letter
	}
	if missing, ok := errors.AsType[*dlq.ErrLettersNotFound](err); ok {
		body.LetterIDs = missing.IDs
	}
	if override, ok := errors.AsType[*dlq.ErrBadOverride](err); ok {
		body.LetterID = &override.Override.LetterID
	}
	return sendJSON(c, p.Status, "application/problem+json", body)
}

func isAPI(c echo.Context) bool { return strings.HasPrefix(c.Request().URL.Path, "/api/") }
