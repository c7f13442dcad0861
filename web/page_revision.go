package web

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/dlq/bodydiff"
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

// editOf is the form as it stands, before anybody edits it.
func editOf(f dlq.Form) dlq.Edit {
	return dlq.Edit{Base: f.No, Key: f.Body.Key, Value: f.Body.Value, Document: f.Document, Headers: f.Body.Headers}
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

// valueKind is how the page edits a value: text whose lines end in one way, so
// that a browser gives them back, else hex.
func valueKind(f dlq.Form) string {
	if f.EditAs == dlq.EditText && !oneLineEnd(string(f.Body.Value)) {
		return string(dlq.EditBinary)
	}
	return string(f.EditAs)
}

// typeable reports whether a text field gives a value back as it is.
func typeable(b []byte) bool {
	return utf8.Valid(b) && oneLineEnd(string(b)) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' })
}

func oneLineEnd(s string) bool {
	pairs := strings.Count(s, "\r\n")
	return strings.Count(s, "\r") == pairs && (pairs == 0 || strings.Count(s, "\n") == pairs)
}

func valueText(kind string, e dlq.Edit) string {
	switch {
	case kind == string(dlq.EditBinary):
		return hexBlock(e.Value)
	case e.Document != nil:
		return string(e.Document)
	case kind == string(dlq.EditFramed):
		return ""
	}
	return string(e.Value)
}

// hexBlock is 32 bytes a line.
func hexBlock(b []byte) string {
	var out strings.Builder
	for at := 0; at < len(b); at += 32 {
		out.WriteString(hex.EncodeToString(b[at:min(at+32, len(b))]) + "\n")
	}
	return out.String()
}

// oneLine is a short value for a line of a form: text where base is text of one
// line, else hex.
func oneLine(value, base []byte) (text string, isHex bool) {
	if lineIsText(base) {
		return string(value), false
	}
	return hex.EncodeToString(value), true
}

func lineIsText(b []byte) bool {
	return utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' || r == 0x7f })
}

// oneLineBytes is the reverse of oneLine.
func oneLineBytes(text string, base []byte) ([]byte, error) {
	if lineIsText(base) {
		return []byte(text), nil
	}
	return hexBytes(text)
}

func hexBytes(text string) ([]byte, error) {
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \t\r\n:", r) {
			return -1
		}
		return r
	}, text)
	b, err := hex.DecodeString(clean)
	if err != nil {
		return nil, errBadHex
	}
	return b, nil
}

var errBadHex = errors.New("web: not hexadecimal")

// editOfForm reads what the form says over the form that was edited.
func editOfForm(c echo.Context, f dlq.Form) (dlq.Edit, error) {
	e := editOf(f)
	e.Sensitive, e.AsIs = c.FormValue("sensitive") != "", c.FormValue("as_is") != ""
	e.Seen, _ = strconv.Atoi(c.FormValue("seen")) // 0 is then overtaken, which is said
	if err := takeValue(c, f, &e); err != nil {
		return e, err
	}
	var err error
	switch {
	case c.FormValue("key_null") != "":
		e.Key = nil
	case hasField(c, "key") && (f.Body.Key != nil || c.FormValue("key") != ""):
		if e.Key, err = oneLineBytes(c.FormValue("key"), f.Body.Key); err != nil {
			return e, err
		}
	}
	e.Headers, err = headersOfForm(c, f)
	return e, err
}

func hasField(c echo.Context, name string) bool {
	_, there := c.Request().Form[name]
	return there
}

func takeValue(c echo.Context, f dlq.Form, e *dlq.Edit) error {
	kind := valueKind(f)
	if kind == string(dlq.EditText) && c.FormValue("as_hex") != "" {
		kind = string(dlq.EditBinary)
	}
	upload, err := uploaded(c)
	text := strings.ReplaceAll(c.FormValue("value"), "\r\n", "\n")
	switch {
	case err != nil:
		return err
	case kind == string(dlq.EditNot):
	case upload != nil && kind != string(dlq.EditFramed):
		e.Value = upload
	case c.FormValue("value_null") != "":
		e.Value = nil
	case !hasField(c, "value"):
	case kind == string(dlq.EditFramed) && f.Document != nil:
		e.Document = []byte(text)
	case kind == string(dlq.EditBinary):
		b, err := hexBytes(text)
		if err != nil {
			return err
		}
		if f.Body.Value != nil || len(b) > 0 {
			e.Value = b
		}
	case kind == string(dlq.EditText):
		if strings.Contains(string(f.Body.Value), "\r\n") {
			text = strings.ReplaceAll(text, "\n", "\r\n")
		}
		if f.Body.Value != nil || text != "" {
			e.Value = []byte(text)
		}
	}
	return nil
}

// uploaded is the file of the form; nil where none was chosen.
func uploaded(c echo.Context) ([]byte, error) {
	header, err := c.FormFile("upload")
	if errors.Is(err, http.ErrMissingFile) || errors.Is(err, http.ErrNotMultipart) || err == nil && header.Filename == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the uploaded file: %w", err)
	}
	file, err := header.Open()
	if err != nil {
		return nil, fmt.Errorf("open the uploaded file: %w", err)
	}
	defer file.Close()
	b, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("read the uploaded file: %w", err)
	}
	return append([]byte{}, b...), nil
}

func headersOfForm(c echo.Context, f dlq.Form) ([]dlq.Header, error) {
	var out []dlq.Header
	for i, h := range f.Fields {
		no := strconv.Itoa(i)
		if h.Class != dlq.Locked && c.FormValue("x"+no) != "" {
			continue
		}
		if h.Class != dlq.Locked && h.Value != nil && hasField(c, "h"+no) {
			value, err := oneLineBytes(c.FormValue("h"+no), h.Value)
			if err != nil {
				return nil, err
			}
			h.Value = value
		}
		out = append(out, h.Header)
	}
	if name := strings.TrimSpace(c.FormValue("new_name")); name != "" {
		out = append(out, typedAs(f.Body.Headers, dlq.Header{Name: name, Value: []byte(c.FormValue("new_value"))}))
	}
	return out, nil
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

// editDigest names what was previewed.
func editDigest(e dlq.Edit) string {
	return hexHash(fmt.Sprintf("%t%q|%t%q|%q", e.Key == nil, e.Key, e.Value == nil, e.Value, dlq.EncodeHeaders(e.Headers)))
}

func indentedText(s string) string {
	v := jsontext.Value(s)
	if v.Format(jsontext.AllowDuplicateNames(true), jsontext.PreserveRawStrings(true), jsontext.Multiline(true), jsontext.WithIndent("  ")) != nil {
		return s
	}
	return string(v)
}

func previewOf(here locale.Locale, f dlq.Form, p dlq.Proposal, digest string) *views.EditPreview {
	before, after := f.Body.Value, p.Edit.Value
	if p.Edit.Document != nil {
		before, after = f.Document, p.Edit.Document
	}
	out := &views.EditPreview{
		Changed: p.Changed, Digest: digest, Second: p.Sensitive, Value: diffView(here, before, after),
		Key: diffView(here, f.Body.Key, p.Edit.Key), Headers: diffView(here, headerLines(f.Body.Headers), headerLines(p.Edit.Headers)),
	}
	if p.Verdict != nil {
		own := p.Verdict.Own()
		out.Verdict, out.Reason = own.Verdict.String(), reasonText(here, own.Reason)
	}
	return out
}

// headerLines is one header a line, for comparing.
func headerLines(headers []dlq.Header) []byte {
	var out strings.Builder
	for _, h := range headers {
		value := "null"
		if h.Value != nil {
			value = strconv.Quote(h.Text())
		}
		out.WriteString(strings.ToValidUTF8(h.Name, "\uFFFD") + ": " + value + "\n")
	}
	return []byte(out.String())
}

// diffLines is how many lines of a diff a page shows.
const diffLines = 2000

func diffView(here locale.Locale, before, after []byte) views.DiffView {
	if (before == nil) != (after == nil) {
		v := diffLinesOf(before, after)
		v.Note = here.Text("diff.now_null")
		if before == nil {
			v.Note = here.Text("diff.was_null")
		}
		return v
	}
	d := bodydiff.Of(before, after)
	if d.Equal {
		return views.DiffView{}
	}
	v := diffLinesOf(before, after)
	if d.SameMeaning {
		v.Note = here.Text("diff.space_only")
	}
	return v
}

func diffLinesOf(before, after []byte) views.DiffView {
	var v views.DiffView
	n := 0
	for _, h := range bodydiff.Of(before, after).Hunks {
		var lines []views.DiffLine
		for _, l := range h.Lines {
			if n++; n > diffLines {
				break
			}
			line := views.DiffLine{Text: strings.ToValidUTF8(l.Text, "\uFFFD"), Old: positive(l.Old), New: positive(l.New)}
			switch l.Op {
			case '+':
				line.Op = "ins"
			case '-':
				line.Op = "del"
			}
			lines = append(lines, line)
		}
		v.Hunks = append(v.Hunks, lines)
	}
	return v
}

// revisionPage shows what a revision changed.
func (s *Server) revisionPage(c echo.Context) error {
	id, no, err := revisionID(c)
	if err != nil {
		return dlq.ErrNotFound
	}
	if err := noQuery(c); err != nil {
		return err
	}
	ctx, here, actor := c.Request().Context(), localeOf(c), actorOf(c)
	frame, list, err := s.editFrame(c, id)
	if err != nil {
		return err
	}
	if no > len(list) {
		return dlq.ErrNotFound
	}
	v := views.RevisionPage{Row: revisionRow(list[no-1]), EventID: frame.EventID, Back: frame.Back}
	title := here.Text("revisions.one", "no", strconv.Itoa(no))
	v.Frame = s.pageFrame(c, "letters", title, views.Crumb{Label: here.Text("nav.letters"), Href: "/letters"},
		views.Crumb{Label: orText(frame.EventID, here.Text("letter.no_event_id")), Href: frame.Back}, views.Crumb{Label: title})
	if !actor.May(access.ReadPayload) {
		v.Masked = here.Text("may.payload", "role", here.Text("role."+string(actor.Role)), "roles", rolesOf(here, access.ReadPayload))
		return render(c, http.StatusOK, views.ShowRevisionPage(v))
	}
	before, after, err := s.Revisions.Compare(ctx, actor, id, no)
	if err != nil {
		return fmt.Errorf("compare revision %d of letter %s: %w", no, id, err)
	}
	v.Diff = views.EditPreview{Value: diffView(here, before.Value, after.Value), Key: diffView(here, before.Key, after.Key),
		Headers: diffView(here, headerLines(before.Headers), headerLines(after.Headers))}
	return render(c, http.StatusOK, views.ShowRevisionPage(v))
}

func orText(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func revisionRow(r dlq.Revision) views.RevisionRow {
	return views.RevisionRow{No: r.No, Base: r.Base, By: r.CreatedBy, At: r.CreatedAt, Reason: r.Reason, Sensitive: r.Sensitive,
		Href: fmt.Sprintf("/letters/%s/revisions/%d", r.LetterID, r.No)}
}

// sendableForms are what a replay can send of a letter with so many revisions: the
// newest unless another is chosen.
func sendableForms(here locale.Locale, revisions int) (forms []ui.Option) {
	for no := revisions; no > 0; no-- {
		forms = append(forms, ui.Option{Value: strconv.Itoa(no), Label: here.Text("revisions.send", "no", strconv.Itoa(no))})
	}
	if revisions > 0 {
		forms = append(forms, ui.Option{Value: "0", Label: here.Text("revisions.send_arrived")})
	}
	return forms
}

// revisionsView is the card of a letter's page: its edited forms, and whether it
// is parked.
func (s *Server) revisionsView(c echo.Context, l dlq.LetterDetail) (views.Revisions, error) {
	ctx, here := c.Request().Context(), localeOf(c)
	v := views.Revisions{ID: l.ID.String()}
	actor := actorOf(c)
	if actor.May(access.EditLetter) && actor.May(access.ReadPayload) && (l.State == dlq.Open || l.State == dlq.Resolved) {
		v.Edit = "/letters/" + l.ID.String() + "/edit"
	}
	for _, r := range l.Revisions {
		v.Rows = append(v.Rows, revisionRow(r))
	}
	v.Forms = sendableForms(here, len(l.Revisions))
	parked, n, err := s.Replays.Parked(ctx, l.ID)
	if err != nil {
		return v, fmt.Errorf("look whether letter %s is parked: %w", l.ID, err)
	}
	if parked && l.State != dlq.Discarded {
		v.Parked, v.Unpark = here.Text("revisions.parked", "n", n), actor.May(access.PlanReplay)
	}
	return v, nil
}

// letterUnpark allows a parked letter to be replayed again.
func (s *Server) letterUnpark(c echo.Context) error {
	id, err := letterID(c)
	if err != nil {
		return dlq.ErrNotFound
	}
	reason := c.FormValue("reason")
	if why := badText(reason); why != "" {
		return invalid("reason", why)
	}
	at := "/letters/" + id.String()
	if err := s.Replays.Unpark(c.Request().Context(), actorBecause(c, reason), id); err != nil {
		return s.refuse(c, at, reason, fmt.Errorf("letter %s: %w", id, err))
	}
	return c.Redirect(http.StatusSeeOther, at)
}
