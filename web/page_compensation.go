package web

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

func (s *Server) compensationPage(c echo.Context) error { return s.showCompensation(c, refused{}) }

func (s *Server) showCompensation(c echo.Context, was refused) error {
	id, err := numberID(c, 64)
	if err != nil {
		return compensate.ErrNotFound
	}
	if err := noQuery(c); err != nil {
		return err
	}
	ctx, here := c.Request().Context(), localeOf(c)
	t, err := storyOf(ctx, s.Compensations, id)
	if err != nil {
		return err
	}
	v := s.compensationView(c, t, was)
	if v.Because, err = s.becauseOf(c, t); err != nil {
		return err
	}
	if v.Timeline, err = s.compensationTimeline(c, t); err != nil {
		return err
	}
	v.Verify = verificationOf(here, t)
	if v.Acts, err = s.compensationActs(c, t); err != nil {
		return err
	}
	return render(c, was.status(), views.CompensationPage(v))
}

func (s *Server) compensationView(c echo.Context, t story, was refused) views.Compensation {
	here, name := localeOf(c), "C-"+strconv.FormatInt(t.ID, 10)
	says := effectSays(here, t.Compensation)
	v := views.Compensation{
		Frame: s.pageFrame(c, "compensations", name+" · "+says, repairCrumbs(here, "compensations", name)...),
		ID:    t.ID, State: compensationWord(t.Row), Says: name + " · " + says, Action: t.Action, Version: t.Version, Reason: t.Reason,
		AskedBy: personName(here, t.AskedBy), AskedAt: t.AskedAt, Hash: hex.EncodeToString(t.Hash), Error: was.Text, ReasonText: was.Reason,
		Attempts: attemptRows(here, t), Steps: sagaRows(here, t, nil), Saga: t.isSaga(), Confirm: confirmOne(here, t),
	}
	v.StateSays, v.Hue = stateSays(here, t)
	var counted []compensate.Counted
	if p := t.present; p != nil {
		v.Checked, counted = true, p.Counted
		v.Changes = changesOf(here, t.Compensation, *p)
		if p.Changed && len(v.Changes) == 0 || p.Problem != "" {
			v.ChangeSays = here.Text("compensation.changed_break")
		}
	}
	v.Effects = effectViews(here, t.Effect, counted)
	v.Approvals = s.approvalsOf(c, t)
	return v
}

// isSaga: it has several steps, or has gone another way than forward.
func (t story) isSaga() bool {
	return len(t.Effect) > 1 || slices.ContainsFunc(t.steps, func(r compensate.StepRow) bool { return r.Op != compensate.Forward })
}

// stateSays is what the state means for whoever reads it.
func stateSays(here locale.Locale, t story) (text, hue string) {
	word := compensationWord(t.Row)
	why := deref(t.Why)
	switch word {
	case "awaiting_approval", "verified":
		return "", ""
	case "outcome_unknown", "needs_attention":
		hue = "ask"
	}
	if t.DueAt != nil && t.DueAt.After(here.Now) && (word == "approved" || word == "retrying") {
		return strings.TrimSpace(here.Text("compensation.says.later", "time", here.Short(*t.DueAt)) + here.Text("sentence.gap") + why), hue
	}
	text = here.Text("compensation.says." + word)
	if why != "" {
		text = strings.TrimSpace(text + here.Text("sentence.gap") + why)
	}
	return text, hue
}

func effectViews(here locale.Locale, e compensate.Effect, counted []compensate.Counted) []views.EffectView {
	var all []views.EffectView
	for _, s := range e {
		v := views.EffectView{Kind: string(s.Kind), Undo: s.Undo}
		if len(e) > 1 {
			v.Step = s.Step
		}
		switch s.Kind {
		case compensate.HTTP:
			v.Line, v.Body = s.Method+" "+s.URL, prettyJSON(s.Body)
		case compensate.SQL:
			v.Line, v.Body = here.Text("effect.statement"), strings.TrimSpace(s.SQL)
			for _, name := range sortedKeys(s.Params) {
				v.Params = append(v.Params, views.Param{Name: name, Value: s.Params[name]})
			}
		default:
			v.Line = here.Text("effect.replay")
		}
		for _, n := range counted {
			if n.Step == s.Step {
				v.Counted, v.Hue = countedSays(here, n)
			}
		}
		all = append(all, v)
	}
	return all
}

func countedSays(here locale.Locale, n compensate.Counted) (text, hue string) {
	switch {
	case n.Error != "":
		return here.Text("effect.not_counted", "why", n.Error), "hold"
	case n.Rows != n.Want:
		return here.Text("effect.rows_wrong", "n", n.Rows, "want", locale.Number(n.Want)), "ask"
	}
	return here.Text("effect.rows", "n", n.Rows), "go"
}

func prettyJSON(text string) string {
	var b bytes.Buffer
	if json.Indent(&b, []byte(text), "", "  ") != nil {
		return text
	}
	return b.String()
}

// changesOf compares what was asked for with what would be done now.
func changesOf(here locale.Locale, c compensate.Compensation, now compensate.Present) []views.ChangeRow {
	var rows []views.ChangeRow
	add := func(name, was, is string) {
		if was != is {
			rows = append(rows, views.ChangeRow{Name: name, Was: was, Is: is})
		}
	}
	add(here.Text("compensation.version"), strconv.Itoa(c.Version), strconv.Itoa(now.Version))
	names := map[string]bool{}
	for name := range c.Inputs {
		names[name] = true
	}
	for name := range now.Inputs {
		names[name] = true
	}
	for _, name := range sortedKeys(names) {
		add(name, c.Inputs[name], now.Inputs[name])
	}
	for i := range max(len(c.Effect), len(now.Effect)) {
		add(here.Text("compensation.effect")+" "+strconv.Itoa(i+1), effectLine(c.Effect, i), effectLine(now.Effect, i))
	}
	return rows
}

func effectLine(e compensate.Effect, i int) string {
	if i >= len(e) {
		return ""
	}
	return strings.TrimSpace(strings.Join([]string{e[i].Method, e[i].URL, e[i].Body, e[i].SQL}, " "))
}

// approvalsOf is who agreed, who still has to, and whether that is the reader.
func (s *Server) approvalsOf(c echo.Context, t story) views.CompensationApprovals {
	here, actor := localeOf(c), actorOf(c)
	v := views.CompensationApprovals{Have: t.Approvals, Need: t.Checkers, Hash: hex.EncodeToString(t.Hash), Automatic: t.Checkers == 0}
	agreed := false
	for _, a := range t.approvals {
		old := !bytes.Equal(a.Hash, t.Hash)
		agreed = agreed || !old && a.By == actor.User
		v.Rows = append(v.Rows, views.ApprovalLine{By: a.By, At: a.At, Reason: a.Reason, Old: old})
	}
	if !t.State.Ended() {
		v.Until = t.ExpiresAt
	}
	roles := rolesOf(here, access.ApproveCompensation)
	switch {
	case t.State != compensate.Proposed:
	case t.AskedBy == actor.User:
		v.Says = here.Text("compensation.yours", "roles", roles)
	case agreed:
		v.Says = here.Text("compensation.agreed", "roles", roles)
	case actor.May(access.ApproveCompensation):
		v.May = true
	default:
		v.Says = here.Text("may.approve_compensation", "roles", roles)
	}
	return v
}

// confirmOne is what approving means, in one sentence.
func confirmOne(here locale.Locale, t story) string {
	digest := hex.EncodeToString(t.Hash)
	return here.Text("compensation.confirm", "effect", strings.TrimSuffix(strings.TrimSuffix(effectSays(here, t.Compensation), "."), "。"), "digest", digest[:4]+"…"+digest[len(digest)-4:])
}

func attemptRows(here locale.Locale, t story) []views.AttemptRow {
	rows := make([]views.AttemptRow, 0, len(t.attempts))
	for i, a := range slices.Backward(t.attempts) {
		row := views.AttemptRow{No: i + 1, At: a.At, Outcome: deref(a.Outcome), Request: prettyJSON(string(a.Request)), Answer: prettyJSON(string(a.Answer))}
		if t.isSaga() {
			row.Step, row.Op = t.stepName(a.No), opNames[a.Op]
		}
		if a.TookMs != nil {
			row.Took = tookText(here, time.Duration(*a.TookMs)*time.Millisecond)
		}
		row.AnswerIs = answerSays(here, a.Answer)
		rows = append(rows, row)
	}
	return rows
}

// said is an answer as the attempt keeps it.
type said struct {
	Status  int    `json:"status"`
	Body    string `json:"body"`
	Error   string `json:"error"`
	Rows    *int64 `json:"rows"`
	Barrier string `json:"barrier"`
}

func readAnswer(raw json.RawMessage) (a said) {
	_ = json.Unmarshal(raw, &a) // what cannot be read is shown whole below
	return a
}

// answerSays is an answer in one line.
func answerSays(here locale.Locale, raw json.RawMessage) string {
	a := readAnswer(raw)
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return here.Text("attempt.none")
	case a.Status != 0 && a.Error != "":
		return "HTTP " + strconv.Itoa(a.Status) + ": " + a.Error
	case a.Status != 0:
		return "HTTP " + strconv.Itoa(a.Status)
	case a.Error != "":
		return a.Error
	case a.Rows != nil:
		return here.Text("effect.affected", "n", *a.Rows)
	}
	return a.Body
}

// becauseOf is what is repaired, with the values of both sides as they are now.
func (s *Server) becauseOf(c echo.Context, t story) (w views.CompensationWhy, err error) {
	here := localeOf(c)
	w.Label, w.Href = subjectOf(here, t.Compensation)
	w.Event, w.Group = deref(t.EventID), deref(t.Group)
	if t.BreakID == nil {
		w.Says = here.Text("compensation.why_letter")
		return w, nil
	}
	b, err := s.Reconcile.Breaks.Get(c.Request().Context(), *t.BreakID)
	if err != nil {
		return w, fmt.Errorf("get break %d: %w", *t.BreakID, err)
	}
	w.Type = string(b.Type)
	w.Says = here.Text("compensation.why_break", "amount", locale.Money(b.Amount.Abs().String(), b.Currency), "job", b.Job, "state", here.Inside(here.Text("state.break."+b.State.String())))
	if b.Amount.IsNegative() {
		w.Says = here.Text("compensation.why_excess", "amount", locale.Money(b.Amount.Abs().String(), b.Currency), "job", b.Job, "state", here.Inside(here.Text("state.break."+b.State.String())))
	}
	for p, side := range b.Sides {
		fact := views.Fact{Label: here.Text("side." + reconcile.Party(p).String()), Value: here.Text("word.none")}
		if side.Rows > 0 {
			fact.Value = locale.Money(side.Amount.String(), side.Currency)
		} else if reconcile.Party(p) == reconcile.Outbox {
			continue
		}
		w.Sides = append(w.Sides, fact)
	}
	return w, nil
}

func verificationOf(here locale.Locale, t story) views.CompensationVerify {
	v := views.CompensationVerify{}
	if t.VerifyRun != nil {
		id := strconv.FormatInt(*t.VerifyRun, 10)
		v.Href, v.Link = "/runs/"+id, here.Text("compensation.run", "id", id)
	}
	switch t.State {
	case compensate.Verified:
		v.Hue, v.Icon, v.Says = "go", "checks", here.Text("verify.equal")
		if t.VerifyRun == nil {
			v.Hue, v.Icon, v.Says = "hold", "shield-question", here.Text("verify.not_asked")
		}
	case compensate.Verifying:
		v.Hue, v.Icon, v.Says = "noop", "clock", here.Text("verify.running")
	case compensate.NeedsAttention:
		if t.VerifyRun != nil {
			v.Hue, v.Icon, v.Says = "bad", "equal-not", deref(t.Why)
		}
	}
	return v
}

// compensationActs are the buttons that the state and the reader's role allow.
func (s *Server) compensationActs(c echo.Context, t story) (a views.CompensationActs, err error) {
	here := localeOf(c)
	if t.State.Ended() {
		return a, nil
	}
	if !actorOf(c).May(access.ControlCompensation) {
		a.WhoMay = here.Text("may.compensation", "roles", rolesOf(here, access.ControlCompensation))
		return a, nil
	}
	paused := t.PausedBy != nil
	undoing := slices.ContainsFunc(t.steps, func(r compensate.StepRow) bool { return r.Op == compensate.Back })
	a.Pause = !paused && (t.State == compensate.Approved || t.State == compensate.Running)
	a.Resume = paused
	a.Cancel = t.State != compensate.Verifying && !undoing && t.CancelBy == nil
	a.Retry = t.State == compensate.NeedsAttention || t.State == compensate.Running && t.Retrying
	if t.State == compensate.NeedsAttention && t.Unknown {
		action, err := s.actionAt(c, t.Action, t.Version)
		if err != nil {
			return a, err
		}
		a.Check = action.CanCheck(t.steps)
	}
	return a, nil
}

func (s *Server) actionAt(c echo.Context, name string, version int) (*compensate.Action, error) {
	def, err := s.Compensations.Actions.Version(c.Request().Context(), name, version)
	if err != nil {
		return nil, err
	}
	return def.Parse()
}
