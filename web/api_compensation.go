package web

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/reconcile"
)

// registerCompensationAPI registers repairs, their actions and their sagas.
func (s *Server) registerCompensationAPI(g *echo.Group) {
	read, approve, control := s.allow(access.Read), s.allow(access.ApproveCompensation), s.allow(access.ControlCompensation)
	all := s.Compensations
	g.GET("/compensations", s.apiCompensations, read)
	g.POST("/compensations", s.apiCompensationPropose, s.allow(access.ProposeCompensation))
	g.POST("/compensations/approve", s.apiCompensationsApprove, approve)
	g.GET("/compensations/:id", s.apiCompensation, read)
	g.POST("/compensations/:id/check", s.apiCompensationAct(all.Check), control)
	g.POST("/compensations/:id/approve", s.apiCompensationApprove, approve)
	g.POST("/compensations/:id/reject", s.apiCompensationAct(all.Reject), approve)
	g.POST("/compensations/:id/retry", s.apiCompensationAct(all.Retry), control)
	g.POST("/compensations/:id/cancel", s.apiCompensationAct(all.Cancel), control)
	g.POST("/compensations/:id/pause", s.apiCompensationAct(all.Pause), control)
	g.POST("/compensations/:id/resume", s.apiCompensationAct(all.Resume), control)
	s.registerSelectionAPI(g)
	g.GET("/sagas", s.apiSagas, read)
	g.GET("/sagas/:id", s.apiCompensation, read)
	g.POST("/sagas/:id/cancel", s.apiCompensationAct(all.Cancel), control)
	g.POST("/sagas/:id/steps/:op/:no/retry", s.apiStepAct(s.retryStep), control)
	g.POST("/sagas/:id/steps/:op/:no/skip", s.apiStepAct(all.AskSkip), control)
	g.POST("/sagas/:id/steps/:op/:no/approve-skip", s.apiStepAct(all.ApproveSkip), approve)
	g.GET("/actions", s.apiActions, read)
	g.GET("/actions/:action", s.apiAction, read)
	g.POST("/actions/:action/trust", s.apiActionTrust(true), approve)
	g.POST("/actions/:action/distrust", s.apiActionTrust(false), approve)
}

type compensationJSON struct {
	ID           int64        `json:"id"`
	State        string       `json:"state"`
	Action       string       `json:"action"`
	Version      int          `json:"version"`
	BreakID      *int64       `json:"break_id"`
	LetterID     *uuid.UUID   `json:"letter_id"`
	Job          *string      `json:"job"`
	Key          []string     `json:"key"`
	EventID      *string      `json:"event_id"`
	Group        *string      `json:"consumer_group"`
	Currency     string       `json:"currency"`
	Amount       string       `json:"amount"`
	Effect       []effectJSON `json:"effect"`
	Hash         string       `json:"hash"` // what an approval is bound to
	AskedBy      string       `json:"asked_by"`
	AskedAt      *time.Time   `json:"asked_at"`
	Reason       string       `json:"reason"`
	Checkers     int          `json:"checkers"`
	Approvals    int          `json:"approvals"`
	ApprovedAt   *time.Time   `json:"approved_at"`
	ExpiresAt    *time.Time   `json:"expires_at"`
	AttemptGroup int          `json:"attempt_group"`
	Tries        int          `json:"attempts"`
	DueAt        *time.Time   `json:"due_at"`
	PausedBy     *string      `json:"paused_by"`
	CancelBy     *string      `json:"cancel_by"`
	StartedAt    *time.Time   `json:"started_at"`
	FinishedAt   *time.Time   `json:"finished_at"`
	Why          *string      `json:"why"`
	ReplayID     *int64       `json:"replay_id"`
	VerifyRun    *int64       `json:"verify_run"`
}

// effectJSON is one call or statement as it will be made; secrets are masked.
type effectJSON struct {
	Step   string            `json:"step"`
	Kind   string            `json:"kind"`
	Method *string           `json:"method"`
	URL    *string           `json:"url"`
	Body   *string           `json:"body"`
	SQL    *string           `json:"sql"`
	Params map[string]string `json:"params"`
	Undo   *string           `json:"undone_by"`
}

func effectOf(e compensate.Effect) []effectJSON {
	all := make([]effectJSON, 0, len(e))
	for _, s := range e {
		params := map[string]string(s.Params)
		if params == nil {
			params = map[string]string{}
		}
		all = append(all, effectJSON{s.Step, string(s.Kind), known(s.Method), known(s.URL), known(s.Body), known(s.SQL), params, known(s.Undo)})
	}
	return all
}

func compensationOf(r compensate.Row) compensationJSON {
	return compensationJSON{
		ID: r.ID, State: compensationWord(r), Action: r.Action, Version: r.Version, BreakID: r.BreakID, LetterID: r.LetterID, Job: r.Job, Key: orEmpty(r.Key),
		EventID: r.EventID, Group: r.Group, Currency: r.Currency, Amount: r.Amount.String(), Effect: effectOf(r.Effect), Hash: hex.EncodeToString(r.Hash),
		AskedBy: r.AskedBy, AskedAt: instant(&r.AskedAt), Reason: r.Reason, Checkers: r.Checkers, Approvals: r.Approvals, ApprovedAt: instant(r.ApprovedAt),
		ExpiresAt: instant(r.ExpiresAt), AttemptGroup: r.AttemptGroup, Tries: r.Tries, DueAt: instant(r.DueAt), PausedBy: r.PausedBy, CancelBy: r.CancelBy,
		StartedAt: instant(r.StartedAt), FinishedAt: instant(r.FinishedAt), Why: r.Why, ReplayID: r.ReplayID, VerifyRun: r.VerifyRun,
	}
}

// compensationWord is the state as people and the API name it: what a proposal
// waits for, a step that is tried again, and an outcome that nobody knows have
// words of their own.
func compensationWord(r compensate.Row) string {
	switch {
	case r.State == compensate.Proposed:
		return "awaiting_approval"
	case r.PausedBy != nil && (r.State == compensate.Approved || r.State == compensate.Running):
		return "paused"
	case r.State == compensate.NeedsAttention && r.Unknown:
		return "outcome_unknown"
	case r.State == compensate.Running && r.Retrying:
		return "retrying"
	}
	return r.State.String()
}

// compensationStates are the values of the filter: single states, and what the
// tabs of the list hold.
var compensationStates = map[string][]compensate.State{
	"all": nil, "awaiting_approval": {compensate.Proposed}, "at_work": {compensate.Approved, compensate.Running, compensate.Verifying},
	"approved": {compensate.Approved}, "running": {compensate.Running}, "verifying": {compensate.Verifying}, "verified": {compensate.Verified},
	"not_needed": {compensate.NotNeeded}, "needs_attention": {compensate.NeedsAttention}, "rejected": {compensate.Rejected},
	"cancelled": {compensate.Cancelled}, "voided": {compensate.Voided}, "expired": {compensate.Expired},
	"ended": {compensate.Rejected, compensate.Cancelled, compensate.Voided, compensate.Expired, compensate.NotNeeded},
}

// compensationFilter takes the filters of a list of compensations.
func compensationFilter(q *query) compensate.Filter {
	f := compensate.Filter{
		Action: q.take("action"), Job: q.take("job"), Currency: q.take("currency"), AskedBy: q.take("asked_by"), BreakID: q.id("break_id", 64),
		EventID: q.take("event_id"), OlderThan: q.age("older_than"), Before: q.id("cursor", 64), Limit: 50,
	}
	if f.AskedBy == "me" {
		f.AskedBy = q.actor.User
	}
	if name := q.take("state"); name != "" {
		states, err := choice("state", name, compensationStates)
		q.keep(err)
		f.States = states
	}
	if text := q.take("letter_id"); text != "" {
		id, err := parseUUID("letter_id", text)
		q.keep(err)
		f.LetterID = id
	}
	if text := q.take("amount_min"); text != "" {
		amount, err := reconcile.ParseAmount(text)
		if err != nil {
			q.fail("amount_min", "is a decimal such as 100.00")
		}
		f.AmountMin = &amount
	}
	if text := q.take("limit"); text != "" {
		n, err := parseID("limit", text, 16)
		q.keep(err)
		f.Limit = int(min(n, 200))
	}
	return f
}

func (s *Server) apiCompensations(c echo.Context) error {
	q := parseQuery(c)
	f := compensationFilter(q)
	if err := q.done(); err != nil {
		return err
	}
	return s.answerCompensations(c, f)
}

func (s *Server) answerCompensations(c echo.Context, f compensate.Filter) error {
	all, more, err := s.Compensations.List(c.Request().Context(), f)
	if err != nil {
		return fmt.Errorf("list compensations: %w", err)
	}
	return answer(c, http.StatusOK, listOf(all, nextNumber(all, more, func(r compensate.Row) int64 { return r.ID }), compensationOf))
}

type compensationDetailJSON struct {
	compensationJSON
	ApprovedBy []agreedJSON           `json:"approved_by"`
	Attempts   []attemptJSON          `json:"tried"`
	Steps      []sagaStepJSON         `json:"steps"`
	Timeline   []compensationNoteJSON `json:"timeline"`
	Present    *presentJSON           `json:"present"` // null: it has begun, or ended
}

type agreedJSON struct {
	By     string     `json:"by"`
	At     *time.Time `json:"at"`
	Reason string     `json:"reason"`
	Hash   string     `json:"hash"`
}

type attemptJSON struct {
	ID      int64           `json:"id"`
	Step    string          `json:"step"`
	Op      string          `json:"op"`
	At      *time.Time      `json:"at"`
	TookMs  *int            `json:"took_ms"`
	Request json.RawMessage `json:"request"`
	Answer  json.RawMessage `json:"answer"` // null: not known yet
	Outcome *string         `json:"outcome"`
}

type compensationNoteJSON struct {
	At   *time.Time `json:"at"`
	By   string     `json:"by"`
	Kind string     `json:"kind"`
	Text string     `json:"text"`
}

// presentJSON is what would be done now, and what has changed since it was asked.
type presentJSON struct {
	Version int           `json:"version"`
	Changed bool          `json:"changed"`
	Problem *string       `json:"problem"`
	Effect  []effectJSON  `json:"effect"`
	Counted []countedJSON `json:"counted"`
}

type countedJSON struct {
	Step  string  `json:"step"`
	Rows  int64   `json:"rows"`
	Want  int64   `json:"expected"`
	Error *string `json:"error"`
}

func countedOf(counted []compensate.Counted) []countedJSON {
	all := make([]countedJSON, 0, len(counted))
	for _, n := range counted {
		all = append(all, countedJSON{n.Step, n.Rows, n.Want, known(n.Error)})
	}
	return all
}

var opNames = map[compensate.Op]string{compensate.Forward: "forward", compensate.Back: "compensate", compensate.Confirm: "confirm"}

func (s *Server) apiCompensation(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	return s.answerCompensation(c, id)
}

func (s *Server) answerCompensation(c echo.Context, id int64) error {
	story, err := storyOf(c.Request().Context(), s.Compensations, id)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, story.json())
}

// story is one compensation with all that happened to it.
type story struct {
	compensate.Row
	approvals []compensate.ApprovalRow
	attempts  []compensate.Attempt
	steps     []compensate.StepRow
	notes     []compensate.NoteRow
	present   *compensate.Present
}

func storyOf(ctx context.Context, all *compensate.Compensations, id int64) (t story, err error) {
	if t.Row, err = all.Summary(ctx, id); err != nil {
		return t, err
	}
	if t.approvals, err = all.Approvals(ctx, id); err != nil {
		return t, err
	}
	if t.attempts, err = all.Attempts(ctx, id); err != nil {
		return t, err
	}
	if t.steps, err = all.Steps(ctx, id); err != nil {
		return t, err
	}
	if t.notes, err = all.Notes(ctx, id); err != nil {
		return t, err
	}
	if t.State == compensate.Proposed || t.State == compensate.Approved {
		now, err := all.Present(ctx, &t.Compensation)
		if err != nil {
			return t, fmt.Errorf("look at compensation %d: %w", id, err)
		}
		t.present = &now
	}
	return t, nil
}

func (t story) json() compensationDetailJSON {
	out := compensationDetailJSON{compensationJSON: compensationOf(t.Row), ApprovedBy: []agreedJSON{}, Attempts: []attemptJSON{}, Steps: []sagaStepJSON{}, Timeline: []compensationNoteJSON{}}
	for _, a := range t.approvals {
		out.ApprovedBy = append(out.ApprovedBy, agreedJSON{a.By, instant(&a.At), a.Reason, hex.EncodeToString(a.Hash)})
	}
	for _, a := range t.attempts {
		out.Attempts = append(out.Attempts, attemptJSON{a.ID, t.stepName(a.No), opNames[a.Op], instant(&a.At), a.TookMs, a.Request, orNull(a.Answer), a.Outcome})
	}
	for _, r := range t.steps {
		out.Steps = append(out.Steps, sagaStepOf(r))
	}
	for _, n := range t.notes {
		out.Timeline = append(out.Timeline, compensationNoteJSON{instant(&n.At), n.By, n.Kind, n.Text})
	}
	if p := t.present; p != nil {
		out.Present = &presentJSON{p.Version, p.Changed, known(p.Problem), effectOf(p.Effect), countedOf(p.Counted)}
	}
	return out
}

func (t story) stepName(no int) string {
	for _, r := range t.steps {
		if r.No == no {
			return r.Step
		}
	}
	return fmt.Sprint(no)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// apiCompensationAct runs one command on one compensation and answers with it.
func (s *Server) apiCompensationAct(act compensationAct) echo.HandlerFunc {
	return func(c echo.Context) error {
		id, err := numberID(c, 64)
		if err != nil {
			return err
		}
		by, err := commander(c)
		if err != nil {
			return err
		}
		if err := act(c.Request().Context(), by, id); err != nil {
			return err
		}
		return s.answerCompensation(c, id)
	}
}

// compensationAct is a command on one compensation.
type compensationAct func(ctx context.Context, actor access.Actor, id int64) error

type hashJSON struct {
	Hash   string `json:"hash"` // of what was shown
	Reason string `json:"reason"`
}

func (s *Server) apiCompensationApprove(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	var body hashJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	hash, err := parseHash("hash", body.Hash)
	if err != nil {
		return err
	}
	if err := s.Compensations.Approve(c.Request().Context(), actorBecause(c, body.Reason), id, hash); err != nil {
		return err
	}
	return s.answerCompensation(c, id)
}

// parseHash reads a SHA-256 as the API writes it.
func parseHash(field, text string) ([]byte, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 32 {
		return nil, &fieldError{Field: field, Text: "is the compensation's hash: 64 hexadecimal digits", Status: http.StatusUnprocessableEntity}
	}
	return b, nil
}
