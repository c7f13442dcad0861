package web

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/reconcile"
)

type breakJSON struct {
	ID          int64                    `json:"id"`
	Job         string                   `json:"job"`
	Key         []string                 `json:"key"`
	Type        string                   `json:"type"`
	EventID     *string                  `json:"event_id"`
	State       string                   `json:"state"`
	Currency    string                   `json:"currency"`
	Amount      string                   `json:"amount"` // missing in effect; with a minus: too much
	Sides       map[string]breakSideJSON `json:"sides"`
	OpenedAt    *time.Time               `json:"opened_at"`
	OpenedRun   int64                    `json:"opened_run"`
	SeenAt      *time.Time               `json:"seen_at"`
	SeenRun     int64                    `json:"seen_run"`
	ClosedAt    *time.Time               `json:"closed_at"`
	ClosedRun   *int64                   `json:"closed_run"`
	ClosedHow   *string                  `json:"closed_how"`
	Returns     int                      `json:"returns"`
	Owner       *string                  `json:"owner"`
	ReasonCode  *string                  `json:"reason_code"`
	Explanation *string                  `json:"explanation"`
	ExplainedBy *string                  `json:"explained_by"`
}

type breakSideJSON struct {
	Rows     int        `json:"rows"`
	Amount   string     `json:"amount"`
	Currency string     `json:"currency"`
	First    *time.Time `json:"first"`
	Last     *time.Time `json:"last"`
}

func breakOf(b reconcile.Break) breakJSON {
	out := breakJSON{
		ID: b.ID, Job: b.Job, Key: b.Key, Type: string(b.Type), EventID: b.EventID, State: b.State.String(), Currency: b.Currency, Amount: b.Amount.String(),
		Sides: map[string]breakSideJSON{}, OpenedAt: instant(&b.OpenedAt), OpenedRun: b.OpenedRun, SeenAt: instant(&b.SeenAt), SeenRun: b.SeenRun,
		ClosedAt: instant(b.ClosedAt), ClosedRun: b.ClosedRun, ClosedHow: b.ClosedHow, Returns: b.Returns, Owner: b.Owner,
		ReasonCode: b.ReasonCode, Explanation: b.Explanation, ExplainedBy: b.ExplainedBy,
	}
	for p, side := range b.Sides {
		if side.Rows > 0 {
			out.Sides[reconcile.Party(p).String()] = breakSideJSON{side.Rows, side.Amount.String(), side.Currency, instant(&side.First), instant(&side.Last)}
		}
	}
	return out
}

var breakTypes = map[string]reconcile.Type{
	"missing_effect": reconcile.MissingEffect, "effect_without_record": reconcile.EffectWithoutRecord, "amount_mismatch": reconcile.AmountMismatch,
	"duplicate_effect": reconcile.DuplicateEffect, "published_not_consumed": reconcile.PublishedNotConsumed, "timing": reconcile.Timing,
}

// outstanding are the states that a list shows where nobody asks for another.
var outstanding = []reconcile.BreakState{reconcile.Open, reconcile.Assigned, reconcile.Compensating, reconcile.Reopened}

// breakFilter reads the filters of a list of breaks.
func breakFilter(q *query) (f reconcile.BreakFilter, err error) {
	f = reconcile.BreakFilter{Job: q.take("job"), Run: q.id("run", 64), Currency: q.take("currency"), EventID: q.take("event_id"), Key: q.take("key"), Before: q.id("cursor", 64), Limit: 50}
	if n := q.id("limit", 16); n > 0 {
		f.Limit = int(min(n, 200))
	}
	if name := q.take("type"); name != "" {
		f.Type, err = choice("type", name, breakTypes)
		q.keep(err)
	}
	f.States = breakStates(q)
	f.ByAmount = byAmount(q)
	if f.Owner = q.take("owner"); f.Owner == "me" {
		f.Owner = q.actor.User
	}
	f.OlderThan = q.age("older_than")
	if text := q.take("amount_min"); text != "" {
		amount, err := reconcile.ParseAmount(text)
		if err != nil {
			q.fail("amount_min", "is a decimal such as 100.00")
		}
		f.AmountMin = &amount
	}
	return f, q.done()
}

// byAmount reads sort: the newest first, or the largest without signs.
func byAmount(q *query) bool {
	switch sort := q.take("sort"); sort {
	case "", "-id":
		return false
	case "-amount":
		return true
	}
	q.fail("sort", "is one of -id, -amount")
	return false
}

// breakStates reads state: one of them, all, or by itself what is outstanding.
func breakStates(q *query) []reconcile.BreakState {
	switch name := q.take("state"); name {
	case "", "outstanding":
		return outstanding
	case "all":
		return nil
	default:
		state, ok := reconcile.ParseBreakState(name)
		if !ok {
			q.fail("state", "is one of all, outstanding, open, assigned, explained, compensating, verified, closed, reopened")
		}
		return []reconcile.BreakState{state}
	}
}

func (s *Server) apiBreaks(c echo.Context) error {
	f, err := breakFilter(parseQuery(c))
	if err != nil {
		return err
	}
	return s.answerBreaks(c, f)
}

func (s *Server) answerBreaks(c echo.Context, f reconcile.BreakFilter) error {
	all, more, err := s.Reconcile.Breaks.List(c.Request().Context(), f, s.Clock())
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(all, nextNumber(all, more, func(b reconcile.Break) int64 { return b.ID }), breakOf))
}

// apiRunBreaks lists what one run said of breaks, whatever became of them since.
func (s *Server) apiRunBreaks(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	q := parseQuery(c)
	f := reconcile.BreakFilter{Run: id, Before: q.id("cursor", 64), Limit: 50}
	if n := q.id("limit", 16); n > 0 {
		f.Limit = int(min(n, 200))
	}
	if err := q.done(); err != nil {
		return err
	}
	if _, err := s.Reconcile.Runs.Get(c.Request().Context(), id); err != nil {
		return err
	}
	return s.answerBreaks(c, f)
}

type breakNoteJSON struct {
	At   *time.Time `json:"at"`
	By   string     `json:"by"`
	Kind string     `json:"kind"`
	Text string     `json:"text"`
}

type breakFileJSON struct {
	ID        int64      `json:"id"`
	At        *time.Time `json:"at"`
	By        string     `json:"by"`
	Name      string     `json:"name"`
	MediaType string     `json:"media_type"`
	SHA256    string     `json:"sha256"`
	Bytes     int64      `json:"bytes"`
}

type saidJSON struct {
	Run    int64      `json:"run"`
	What   string     `json:"what"` // new, still_there, whole, came_back, explained
	Amount string     `json:"amount"`
	At     *time.Time `json:"at"`
}

type breakDetailJSON struct {
	breakJSON
	Timeline []breakNoteJSON `json:"timeline"`
	Runs     []saidJSON      `json:"runs"`
	Files    []breakFileJSON `json:"files"`
}

var saidNames = [...]string{"", "new", "still_there", "whole", "came_back", "explained"}

func (s *Server) apiBreak(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	return s.answerBreak(c, id)
}

func (s *Server) answerBreak(c echo.Context, id int64) error {
	ctx := c.Request().Context()
	b, err := s.Reconcile.Breaks.Get(ctx, id)
	if err != nil {
		return err
	}
	notes, err := s.Reconcile.Breaks.Notes(ctx, id)
	if err != nil {
		return err
	}
	said, err := s.Reconcile.Breaks.Said(ctx, id)
	if err != nil {
		return err
	}
	files, err := s.Reconcile.Breaks.Files(ctx, id)
	if err != nil {
		return err
	}
	out := breakDetailJSON{breakJSON: breakOf(b), Timeline: []breakNoteJSON{}, Runs: []saidJSON{}, Files: []breakFileJSON{}}
	for _, n := range notes {
		out.Timeline = append(out.Timeline, breakNoteJSON{instant(&n.At), n.By, n.Kind, n.Text})
	}
	for _, r := range said {
		out.Runs = append(out.Runs, saidJSON{r.Run, saidNames[r.What], r.Amount.String(), instant(&r.At)})
	}
	for _, f := range files {
		out.Files = append(out.Files, breakFileJSON{f.ID, instant(&f.At), f.By, f.Name, f.MediaType, hex.EncodeToString(f.SHA256), f.Bytes})
	}
	return answer(c, http.StatusOK, out)
}

type breaksJSON struct {
	IDs        []int64 `json:"ids"`
	Owner      string  `json:"owner"`       // of assign
	ReasonCode string  `json:"reason_code"` // of explain
	Reason     string  `json:"reason"`
}

// apiBreakCommand runs a command on the breaks that the body names.
func (s *Server) apiBreakCommand(do func(echo.Context, breaksJSON) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := noQuery(c); err != nil {
			return err
		}
		var body breaksJSON
		if err := decode(c, &body); err != nil {
			return err
		}
		if len(body.IDs) == 0 || len(body.IDs) > 10_000 {
			return &fieldError{Field: "ids", Text: "names 1 to 10,000 breaks", Status: http.StatusUnprocessableEntity}
		}
		if err := do(c, body); err != nil {
			return err
		}
		return c.NoContent(http.StatusNoContent)
	}
}

func (s *Server) assignBreaks(c echo.Context, b breaksJSON) error {
	if b.Owner == "" {
		return &fieldError{Field: "owner", Text: "is missing", Status: http.StatusUnprocessableEntity}
	}
	return s.Reconcile.Breaks.Assign(c.Request().Context(), actorBecause(c, b.Reason), b.IDs, b.Owner)
}

func (s *Server) explainBreaks(c echo.Context, b breaksJSON) error {
	return s.Reconcile.Breaks.Explain(c.Request().Context(), actorBecause(c, b.Reason), b.IDs, b.ReasonCode)
}

type breakTextJSON struct {
	Text string `json:"text"`
}

func (s *Server) apiBreakComment(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	var body breakTextJSON
	if err := decode(c, &body); err != nil {
		return err
	}
	if err := s.Reconcile.Breaks.Comment(c.Request().Context(), actorOf(c), id, body.Text); err != nil {
		return err
	}
	return s.answerBreak(c, id)
}

func (s *Server) apiBreakUnexplain(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	by, err := commander(c)
	if err != nil {
		return err
	}
	if err := s.Reconcile.Breaks.Unexplain(c.Request().Context(), by, id); err != nil {
		return err
	}
	return s.answerBreak(c, id)
}

// apiBreakRecheck asks for a run of the break's key alone.
func (s *Server) apiBreakRecheck(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	run, err := s.recheckBreak(c, id)
	if err != nil {
		return err
	}
	return s.answerRun(c, http.StatusAccepted, run)
}

func (s *Server) recheckBreak(c echo.Context, id int64) (int64, error) {
	b, err := s.Reconcile.Breaks.Get(c.Request().Context(), id)
	if err != nil {
		return 0, err
	}
	return s.Reconcile.Runs.Ask(c.Request().Context(), actorOf(c), reconcile.Request{Job: b.Job, Keys: [][]string{b.Key}})
}
