package web

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// editLimit is the longest request that carries an edit: a value as hex, and the
// rest of the form.
const editLimit = 3*dlq.MaxRevisionBytes + bodyLimit

// editsLetter reports the two routes that take whole values.
func editsLetter(path string) bool {
	return strings.HasPrefix(path, "/letters/") && strings.HasSuffix(path, "/edit") ||
		strings.HasPrefix(path, "/api/v1/letters/") && strings.HasSuffix(path, "/revisions")
}

func (s *Server) editPage(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return dlq.ErrNotFound
	}
	q := parseQuery(c)
	form := q.take("revision")
	if err := q.done(); err != nil {
		return err
	}
	v, list, err := s.editFrame(c, id)
	if err != nil || !v.May {
		return renderOr(c, err, v)
	}
	base := len(list)
	if form != "" {
		if base, err = strconv.Atoi(form); err != nil || base < 0 || base > len(list) {
			return &fieldError{Field: "revision", Text: "is a revision of the letter, or 0"}
		}
	}
	read, err := s.Revisions.Form(c.Request().Context(), actorOf(c), id, base)
	if err != nil {
		return fmt.Errorf("edit letter %s: %w", id, err)
	}
	v.fill(localeOf(c), read, editOf(read))
	v.forms(localeOf(c), len(list))
	if err := s.refuseEdit(c, v, id); err != nil {
		return err
	}
	return render(c, http.StatusOK, views.EditLetterPage(v.EditPage))
}

func renderOr(c echo.Context, err error, v *editView) error {
	if err != nil {
		return err
	}
	return render(c, http.StatusForbidden, views.EditLetterPage(v.EditPage))
}

// editView is the page while it is filled.
type editView struct {
	views.EditPage
	detail dlq.LetterDetail
}

func (s *Server) editFrame(c echo.Context, id uuid.UUID) (*editView, []dlq.Revision, error) {
	ctx, here := c.Request().Context(), localeOf(c)
	detail, err := s.Letters.Get(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("get letter %s: %w", id, err)
	}
	list, err := s.Revisions.List(ctx, id)
	if err != nil {
		return nil, nil, fmt.Errorf("list revisions of letter %s: %w", id, err)
	}
	name := deref(detail.EventID)
	if name == "" {
		name = here.Text("letter.no_event_id")
	}
	back := "/letters/" + id.String()
	actor := actorOf(c)
	v := &editView{detail: detail, EditPage: views.EditPage{
		Frame: s.pageFrame(c, "letters", here.Text("edit.title"),
			views.Crumb{Label: here.Text("nav.letters"), Href: "/letters"}, views.Crumb{Label: name, Href: back}, views.Crumb{Label: here.Text("edit.title")}),
		LetterID: id.String(), EventID: deref(detail.EventID), Back: back, Newest: len(list),
		May:    actor.May(access.EditLetter) && actor.May(access.ReadPayload),
		WhoMay: here.Text("may.edit", "roles", rolesOf(here, access.EditLetter)), RequestKey: hexHash(string(randomBytes(16))),
	}}
	return v, list, nil
}

// refuseEdit says at once what could only be refused later: the event has a
// record, or the letter is in a state that takes no edit.
func (s *Server) refuseEdit(c echo.Context, v *editView, id uuid.UUID) error {
	here := localeOf(c)
	if v.detail.State == dlq.Replaying || v.detail.State == dlq.Discarded {
		v.Refused = here.Text("edit.refused_state", "state", here.Inside(here.Text("state.letter."+v.detail.State.String())))
		return nil
	}
	why, err := s.Revisions.Refused(c.Request().Context(), id)
	if err != nil {
		return fmt.Errorf("judge an edit of letter %s: %w", id, err)
	}
	v.Refused = reasonText(here, why)
	return nil
}

func (v *editView) forms(here locale.Locale, n int) {
	for no := range n + 1 {
		label := here.Text("edit.arrived")
		if no > 0 {
			label = here.Text("revisions.one", "no", strconv.Itoa(no))
		}
		v.Forms = append(v.Forms, ui.Tab{Label: label, Href: address("/letters/"+v.LetterID+"/edit", "revision", strconv.Itoa(no)), Current: no == v.Base})
	}
}

// fill shows an edit of a form.
func (v *editView) fill(here locale.Locale, f dlq.Form, e dlq.Edit) {
	v.Base, v.Kind, v.From = f.No, valueKind(f), here.Text("edit.from_"+f.From, "no", strconv.Itoa(f.No))
	v.ValueNull, v.KeyNull = e.Value == nil, e.Key == nil
	if v.Kind == string(dlq.EditText) && !typeable(e.Value) {
		v.Kind = string(dlq.EditBinary) // uploaded
	}
	v.Value = valueText(v.Kind, e)
	switch {
	case f.EditAs == dlq.EditNot:
		v.NoEdit = here.Text("reason.edit.not_carried")
	case f.EditAs == dlq.EditFramed && f.Document == nil:
		v.NoEdit = here.Text("reason.edit.framed", "error", f.Why)
	}
	v.Key, v.KeyHex = oneLine(e.Key, f.Body.Key)
	v.KeyLocked = v.EventID != "" && strings.TrimSpace(string(f.Body.Key)) == v.EventID
	for i, h := range f.Fields {
		row := views.EditHeader{No: i, Name: strings.ToValidUTF8(h.Name, "\uFFFD"), Class: string(h.Class), Why: h.Why, Null: h.Value == nil}
		row.Value, row.Hex = oneLine(h.Value, h.Value)
		v.Headers = append(v.Headers, row)
	}
	v.Sensitive, v.AsIs = e.Sensitive, e.AsIs
}

// editLetter previews, formats or keeps an edit.
func (s *Server) editLetter(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return dlq.ErrNotFound
	}
	ctx, here := c.Request().Context(), localeOf(c)
	if _, err := c.FormParams(); err != nil {
		return fmt.Errorf("read form: %w", err)
	}
	reason := c.FormValue("reason")
	if why := badText(reason); why != "" {
		return invalid("reason", why)
	}
	v, list, err := s.editFrame(c, id)
	if err != nil || !v.May {
		return renderOr(c, err, v)
	}
	base, err := strconv.Atoi(c.FormValue("base"))
	if err != nil || base < 0 {
		return invalid("base", "is a revision's number, or 0")
	}
	f, err := s.Revisions.Form(ctx, actorOf(c), id, base)
	if err != nil {
		return fmt.Errorf("edit letter %s: %w", id, err)
	}
	e, err := editOfForm(c, f)
	v.fill(here, f, e)
	v.forms(here, len(list))
	v.retype(c)
	v.Reason = reason
	if errors.Is(err, errBadHex) {
		v.Value = c.FormValue("value")
		return v.refuse(c, http.StatusUnprocessableEntity, here.Text("edit.bad_hex"))
	}
	if err != nil {
		return err
	}
	return s.editAct(c, v, id, f, e)
}

// retype keeps what was typed in the headers.
func (v *editView) retype(c echo.Context) {
	for i := range v.Headers {
		no := strconv.Itoa(v.Headers[i].No)
		if v.Headers[i].Class != string(dlq.Locked) && hasField(c, "h"+no) {
			v.Headers[i].Value = c.FormValue("h" + no)
		}
		v.Headers[i].Removed = c.FormValue("x"+no) != ""
	}
	v.New = views.EditHeader{Name: c.FormValue("new_name"), Value: c.FormValue("new_value")}
}

func (v *editView) refuse(c echo.Context, status int, text string) error {
	v.Error = text
	return render(c, status, views.EditLetterPage(v.EditPage))
}

func (s *Server) editAct(c echo.Context, v *editView, id uuid.UUID, f dlq.Form, e dlq.Edit) error {
	ctx, here, actor := c.Request().Context(), localeOf(c), actorBecause(c, c.FormValue("reason"))
	action := c.FormValue("action")
	if action == "format" {
		v.Value = indentedText(v.Value)
		return render(c, http.StatusOK, views.EditLetterPage(v.EditPage))
	}
	proposal, err := s.Revisions.Propose(ctx, actor, id, e)
	if err != nil {
		return s.editRefused(c, v, err)
	}
	seen := editDigest(proposal.Edit)
	v.Preview = previewOf(here, f, proposal, seen)
	if action == "preview" || c.FormValue("previewed") != seen { // what was not seen is not kept
		return render(c, http.StatusOK, views.EditLetterPage(v.EditPage))
	}
	made, err := s.Revisions.Create(ctx, actor, id, e)
	if err != nil {
		return s.editRefused(c, v, err)
	}
	if action != "plan" {
		return c.Redirect(http.StatusSeeOther, v.Back+"#revisions")
	}
	plan, err := s.Replays.Plan(ctx, actor, dlq.PlanRequest{Selection: dlq.Selection{LetterIDs: []uuid.UUID{id}}, Target: editTarget(proposal),
		Revisions: map[uuid.UUID]int{id: made.No}, RequestKey: cutKey(c.FormValue("request_key"))})
	if err != nil {
		return fmt.Errorf("plan revision %d of letter %s: %w", made.No, id, err)
	}
	return c.Redirect(http.StatusSeeOther, fmt.Sprintf("/replays/%d/plan", plan.ID))
}

// editTarget is the target that a replay of the edited form goes to by itself.
func editTarget(p dlq.Proposal) dlq.Target {
	if p.Verdict != nil && p.Verdict.Route != nil && p.Verdict.Route.Group == "" {
		return dlq.ToOrigin
	}
	return dlq.ToGroup
}

func (s *Server) editRefused(c echo.Context, v *editView, err error) error {
	here := localeOf(c)
	if bad, ok := errors.AsType[*dlq.ErrBadEdit](err); ok {
		return v.refuse(c, http.StatusUnprocessableEntity, reasonText(here, bad.Reason))
	}
	if errors.Is(err, access.ErrReasonRequired) {
		return v.refuse(c, http.StatusUnprocessableEntity, here.Text("form.reason"))
	}
	return err
}
