package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// previewsShown is how many of a selection the page shows; all are rendered and
// added up.
const previewsShown = 50

// subjects is what somebody wants to repair: breaks or letters.
type subjects struct {
	breaks  []int64
	letters []uuid.UUID
	more    bool     // a filter found more than one command takes
	query   []string // name, value, …: as the page's address has them
}

func (s *Server) compensationNewPage(c echo.Context) error {
	return s.showCompensationNew(c, refused{})
}

func (s *Server) showCompensationNew(c echo.Context, was refused) error {
	values := c.QueryParams()
	action := values.Get("action")
	subject, err := s.subjectsOf(c, values)
	if err != nil {
		return err
	}
	here := localeOf(c)
	v := views.CompensationNew{
		Frame: s.pageFrame(c, "compensations", here.Text("compensation.new"), repairCrumbs(here, "compensations", here.Text("compensation.new"))...),
		What:  subjectsSay(here, subject), May: actorOf(c).May(access.ProposeCompensation), WhoMay: here.Text("may.propose", "roles", rolesOf(here, access.ProposeCompensation)),
		Error: was.Text, Reason: was.Reason, Field: "break",
	}
	if len(subject.letters) > 0 {
		v.Field = "letter"
	}
	choices, err := s.actionsFor(c, subject, action)
	if err != nil {
		return err
	}
	if action == "" && len(choices) == 1 { // there is nothing to choose
		action, choices[0].Current = choices[0].Name, true
	}
	v.Actions, v.Action = choices, action
	if action != "" && v.May {
		if err := s.fillPreviews(c, &v, subject); err != nil {
			return err
		}
	}
	return render(c, was.status(), views.CompensationNewPage(v))
}

// subjectsOf reads what is to be repaired: breaks, letters, or what a list of
// breaks holds.
func (s *Server) subjectsOf(c echo.Context, values url.Values) (f subjects, err error) {
	for _, id := range values["break"] {
		f.query = append(f.query, "break", id)
	}
	for _, id := range values["letter"] {
		f.query = append(f.query, "letter", id)
	}
	switch {
	case len(values["break"])+len(values["letter"]) > proposeLimit:
		return f, &fieldError{Field: "break", Text: fmt.Sprintf("names at most %d", proposeLimit)}
	case len(values["letter"]) > 0:
		f.letters, err = letterIDs(values["letter"])
		return f, err
	case len(values["break"]) > 0:
		f.breaks, err = parseIDs("break", values["break"])
		slices.Sort(f.breaks)
		f.breaks = slices.Compact(f.breaks)
		return f, err
	}
	raw := url.Values{}
	for name, all := range values {
		if name != "action" && len(all) > 0 {
			raw[name] = all
			f.query = append(f.query, name, all[0])
		}
	}
	if len(raw) == 0 {
		return f, &fieldError{Field: "break", Text: "names no break: begin at a break, a letter or a list of breaks"}
	}
	filter, err := breakFilter(queryFrom(c, raw.Encode()))
	if err != nil {
		return f, err
	}
	f.breaks, f.more, err = s.findBreaks(c, filter)
	return f, err
}

func (f subjects) address(action string) string {
	return address("/compensations/new", append(slices.Clone(f.query), "action", action)...)
}

func subjectsSay(here locale.Locale, f subjects) string {
	if len(f.letters) > 0 {
		return here.Text("compensation.new_letters", "n", len(f.letters))
	}
	return here.Text("compensation.new_breaks", "n", len(f.breaks))
}

// actionsFor lists the actions that may repair one of them at least.
func (s *Server) actionsFor(c echo.Context, f subjects, chosen string) ([]views.ActionChoice, error) {
	ctx, here := c.Request().Context(), localeOf(c)
	types, err := s.typesOf(ctx, f)
	if err != nil {
		return nil, err
	}
	all, err := s.Compensations.Actions.List(ctx)
	if err != nil {
		return nil, err
	}
	parsed, undo := make([]*compensate.Action, len(all)), map[string]bool{}
	for i, d := range all {
		if parsed[i], err = d.Parse(); err != nil {
			return nil, fmt.Errorf("action %s: %w", d.Action, err)
		}
		for _, step := range parsed[i].Steps {
			undo[step.Compensate] = true
		}
	}
	var choices []views.ActionChoice
	for i, a := range parsed {
		if suits(a, types, undo[a.Name]) {
			choices = append(choices, views.ActionChoice{Name: a.Name, Version: all[i].Version, Says: actionSays(here, a), Href: f.address(a.Name), Current: a.Name == chosen})
		}
	}
	return choices, nil
}

// typesOf are the types of what is to be repaired.
func (s *Server) typesOf(ctx context.Context, f subjects) (map[reconcile.Type]bool, error) {
	types := map[reconcile.Type]bool{}
	if len(f.letters) > 0 {
		types[compensate.Letters] = true
		return types, nil
	}
	for _, id := range f.breaks {
		b, err := s.Reconcile.Breaks.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		types[b.Type] = true
	}
	return types, nil
}

// suits: an action that says nothing is for everything, but for one that undoes a
// step of another.
func suits(a *compensate.Action, types map[reconcile.Type]bool, undoes bool) bool {
	if len(a.AppliesTo) == 0 {
		return !undoes
	}
	return slices.ContainsFunc(a.AppliesTo, func(t reconcile.Type) bool { return types[t] })
}

// actionSays is what an action is, in one line.
func actionSays(here locale.Locale, a *compensate.Action) string {
	parts := []string{here.Text("action.kind."+string(a.Kind), "n", len(a.Steps))}
	if a.Group != "" {
		parts = append(parts, a.Group)
	}
	parts = append(parts, here.Text("action.checkers", "n", a.Approval.Checkers))
	return strings.Join(parts, " · ")
}

// fillPreviews renders what the action would do about each, and what it adds up to.
func (s *Server) fillPreviews(c echo.Context, v *views.CompensationNew, f subjects) error {
	ctx, here, actor := c.Request().Context(), localeOf(c), actorOf(c)
	def, err := s.Compensations.Actions.Current(ctx, v.Action)
	if err != nil {
		return err
	}
	a, err := def.Parse()
	if err != nil {
		return err
	}
	var previews []compensate.Preview
	if len(f.letters) > 0 {
		previews, err = s.Compensations.PreviewLetters(ctx, actor, v.Action, f.letters, previewsShown)
	} else {
		previews, err = s.Compensations.Preview(ctx, actor, v.Action, f.breaks, previewsShown)
	}
	if err != nil {
		return err
	}
	var good []compensate.Preview
	checkers, left := 0, 0
	for _, p := range previews {
		if p.Problem == nil {
			if a.Limits.PerBatch > 0 && len(good) == a.Limits.PerBatch {
				left++
				continue
			}
			good, checkers = append(good, p), max(checkers, p.Checkers)
			v.Good = append(v.Good, subjectID(p))
		}
	}
	slices.SortStableFunc(previews, func(x, y compensate.Preview) int { return problemsFirst(x) - problemsFirst(y) })
	for _, p := range previews {
		v.Previews = append(v.Previews, previewRow(here, v.Action, p))
	}
	v.Shown, v.GoodN, v.GoodSum = min(len(previews), previewsShown), len(good), totalRows(previewTotals(good))
	if len(good) > 0 {
		v.Checkers = here.Text("compensation.needs", "n", checkers, "roles", rolesOf(here, access.ApproveCompensation))
		v.Limits = limitsSay(here, a)
	}
	v.Rest = restSays(here, len(previews)-len(good)-left, left, f.more)
	v.Button = here.Text("compensation.propose", "n", len(good), "amounts", totalsText(here, previewTotals(good)))
	return nil
}

func problemsFirst(p compensate.Preview) int {
	if p.Problem != nil {
		return 0
	}
	return 1
}

func subjectID(p compensate.Preview) string {
	if p.LetterID != nil {
		return p.LetterID.String()
	}
	return strconv.FormatInt(p.Break.ID, 10)
}

func totalRows(totals []compensate.Total) []views.TotalRow {
	rows := make([]views.TotalRow, 0, len(totals))
	for _, t := range totals {
		rows = append(rows, views.TotalRow{Currency: t.Currency, Items: int(t.Items), Amount: locale.Money(t.Amount.String(), t.Currency)})
	}
	return rows
}

func limitsSay(here locale.Locale, a *compensate.Action) string {
	var parts []string
	if a.Limits.PerBatch > 0 {
		parts = append(parts, here.Text("action.per_batch", "n", a.Limits.PerBatch))
	}
	if a.Limits.AmountPerDay != nil {
		parts = append(parts, here.Text("action.per_day", "amount", locale.Amount(a.Limits.AmountPerDay.String(), "")))
	}
	return strings.Join(parts, here.Text("sentence.gap"))
}

// restSays is what is left out, and why.
func restSays(here locale.Locale, bad, left int, more bool) string {
	var parts []string
	if bad > 0 {
		parts = append(parts, here.Text("compensation.rest_bad", "n", bad))
	}
	if left > 0 {
		parts = append(parts, here.Text("compensation.rest_limit", "n", left))
	}
	if more {
		parts = append(parts, here.Text("compensation.rest_more", "n", proposeLimit))
	}
	return strings.Join(parts, here.Text("sentence.gap"))
}

func previewRow(here locale.Locale, action string, p compensate.Preview) views.PreviewRow {
	c := compensate.Compensation{Action: action, Effect: p.Effect, EventID: p.EventID, Currency: p.Currency, Amount: p.Amount, LetterID: p.LetterID}
	if p.LetterID == nil {
		c.BreakID = &p.Break.ID
	}
	row := views.PreviewRow{Event: deref(p.EventID), Effects: effectViews(here, p.Effect, p.Counted)}
	row.Label, row.Href = subjectOf(here, c)
	if row.Event != "" {
		row.Label += " · " + row.Event
	}
	if hasAmount(c) {
		row.Amount = locale.Money(p.Amount.String(), p.Currency)
	}
	if p.Problem != nil {
		why, _ := financeRefusal(here, p.Problem, "")
		switch row.Problem = why.Text; {
		case errors.Is(p.Problem, compensate.ErrNotFor) && p.LetterID == nil:
			row.Problem = here.Text("compensation.not_for", "action", action, "type", here.Inside(here.Text("break.type."+string(p.Break.Type))), "state", here.Inside(here.Text("state.break."+p.Break.State.String())))
		case row.Problem == "":
			row.Problem = plainText(p.Problem)
		}
		if p.Already != 0 {
			row.Problem, row.ProblemHref = here.Text("compensation.already", "id", strconv.FormatInt(p.Already, 10)), "/compensations/"+strconv.FormatInt(p.Already, 10)
		}
		return row
	}
	row.Says = effectSays(here, c)
	for _, n := range p.Counted {
		row.Counted, row.Hue = countedSays(here, n)
	}
	return row
}

// compensationPropose asks for what the page has shown: all of it or nothing.
func (s *Server) compensationPropose(c echo.Context) error {
	form, err := c.FormParams()
	if err != nil {
		return fmt.Errorf("read form: %w", err)
	}
	reason, err := reasonOf(c)
	if err != nil {
		return err
	}
	ids, err := s.proposeRepairs(c, form, actorBecause(c, reason))
	if err != nil {
		was, ok := financeRefusal(localeOf(c), err, reason)
		if !ok {
			return err
		}
		return s.newAgain(c, form, was)
	}
	if len(ids) == 1 {
		return c.Redirect(http.StatusSeeOther, "/compensations/"+strconv.FormatInt(ids[0], 10))
	}
	return c.Redirect(http.StatusSeeOther, address("/compensations", "state", "awaiting_approval", "did", "proposed", "n", strconv.Itoa(len(ids))))
}

func (s *Server) proposeRepairs(c echo.Context, form url.Values, actor access.Actor) ([]int64, error) {
	ctx, action := c.Request().Context(), form.Get("action")
	if len(form["letter"]) > 0 {
		letters, err := letterIDs(form["letter"])
		if err != nil {
			return nil, err
		}
		return s.Compensations.ProposeLetters(ctx, actor, action, letters)
	}
	breaks, err := parseIDs("break", form["break"])
	if err == nil && len(breaks) == 0 {
		err = invalid("break", "names nothing to repair")
	}
	if err != nil {
		return nil, err
	}
	return s.Compensations.Propose(ctx, actor, action, breaks)
}

// newAgain shows the form's page with what was wrong, looked at anew.
func (s *Server) newAgain(c echo.Context, form url.Values, was refused) error {
	query := url.Values{"action": form["action"], "break": form["break"], "letter": form["letter"]}
	r := c.Request().Clone(c.Request().Context())
	r.Method, r.URL = http.MethodGet, &url.URL{Path: "/compensations/new", RawQuery: query.Encode()}
	c.SetRequest(r)
	return s.showCompensationNew(c, was)
}
