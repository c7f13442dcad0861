package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// triage does what the forms of lists, faults and letters ask for beyond replays.
func (s *Server) triage(c echo.Context) error {
	form, err := c.FormParams()
	if err != nil {
		return fmt.Errorf("read form: %w", err)
	}
	for _, field := range []string{"why", "owner", "note", "comment"} {
		if why := badText(form.Get(field)); why != "" {
			return invalid(field, why)
		}
	}
	next, err := s.doTriage(c, form)
	if err != nil {
		return s.refuse(c, form.Get("from"), form.Get("reason"), fmt.Errorf("triage: %w", err))
	}
	return c.Redirect(http.StatusSeeOther, next)
}

func (s *Server) doTriage(c echo.Context, form url.Values) (next string, err error) {
	ctx, actor, back := c.Request().Context(), actorBecause(c, form.Get("why")), backTo(form.Get("from"))
	faults, err := faultIDs(form["fault_id"])
	if err != nil {
		return "", err
	}
	switch do := form.Get("do"); do {
	case "discard", "restore":
		return s.bulkForm(c, form, map[string]bulkCommand{"discard": s.Bulks.Discard, "restore": s.Bulks.Restore}[do])
	case "assign":
		if err := s.checkOwnerName(ctx, form.Get("owner")); err != nil {
			return "", err
		}
		if len(faults) > 0 {
			return back, s.Faults.Assign(ctx, actor, faults, form.Get("owner"))
		}
		return s.bulkForm(c, form, s.Bulks.Assign)
	case "mute":
		until, err := muteUntil(localeOf(c), form.Get("until"))
		if err != nil {
			return "", err
		}
		return back, s.Faults.Mute(ctx, actor, faults, until)
	case "unmute":
		return back, s.Faults.Mute(ctx, actor, faults, nil)
	}
	return s.remarkForm(c, form, faults, back)
}

// remarkForm is what people write about a fault or a letter.
func (s *Server) remarkForm(c echo.Context, form url.Values, faults []int32, back string) (string, error) {
	ctx, actor := c.Request().Context(), actorOf(c)
	switch do := form.Get("do"); {
	case do == "note" && len(faults) == 1:
		return back, s.Faults.Note(ctx, actor, faults[0], strings.TrimSpace(form.Get("note")))
	case do == "comment" && len(faults) == 1:
		return back, s.Faults.Comment(ctx, actor, faults[0], form.Get("comment"))
	case do == "comment":
		ids, err := letterIDs(form["letter_id"])
		if err != nil || len(ids) != 1 {
			return "", invalid("letter_id", "is one letter")
		}
		return back, s.Letters.Comment(ctx, actor, ids[0], form.Get("comment"))
	case do == "note":
		return "", invalid("fault_id", "is one fault")
	}
	return "", ErrNoSuchButton
}

func faultIDs(texts []string) ([]int32, error) {
	var ids []int32
	for _, text := range texts {
		id, err := parseID("fault_id", text, 32)
		if err != nil {
			return nil, err
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// muteUntil reads an age from now, such as 24h or 7d, or the morning of a day.
func muteUntil(here locale.Locale, text string) (*time.Time, error) {
	if age, err := parseAge(text); err == nil {
		t := here.Now.Add(age)
		return &t, nil
	}
	t, err := time.ParseInLocation(time.DateOnly, text, here.Zone)
	if err != nil {
		return nil, &dlq.ErrBadTriage{Field: "until", Reason: "is an age such as 24h, or a day such as 2026-12-31"}
	}
	return &t, nil
}

type bulkCommand = func(context.Context, access.Actor, dlq.BulkRequest) (dlq.Bulk, error)

// bulkForm runs one command for each selection and leads to what it did.
func (s *Server) bulkForm(c echo.Context, form url.Values, do bulkCommand) (next string, err error) {
	selections, err := selectionsOf(c, form)
	if err != nil {
		return "", err
	}
	if len(selections) == 0 {
		return "", dlq.ErrBadSelection
	}
	age, err := olderThan(form.Get("older_than"))
	if err != nil {
		return "", err
	}
	var made dlq.Bulk
	for i, selection := range selections {
		if age > 0 && selection.FaultID > 0 {
			selection = dlq.Selection{Filter: &dlq.LetterFilter{FaultID: selection.FaultID, Until: localeOf(c).Now.Add(-age).Truncate(time.Second)}}
		}
		request := dlq.BulkRequest{Selection: selection, Owner: form.Get("owner")}
		if key := cutKey(form.Get("request_key")); key != "" {
			request.RequestKey = key + "/" + form.Get("do") + "/" + strconv.Itoa(i)
		}
		if made, err = do(c.Request().Context(), actorBecause(c, form.Get("why")), request); err != nil {
			return "", err
		}
	}
	if len(selections) > 1 {
		return "/commands", nil
	}
	return address("/commands/"+strconv.FormatInt(made.ID, 10), "from", backTo(form.Get("from"))), nil
}

func olderThan(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	age, err := parseAge(text)
	if err != nil {
		return 0, &dlq.ErrBadTriage{Field: "older_than", Reason: "is an age such as 36h or 7d"}
	}
	return age, nil
}

func (s *Server) commandPage(c echo.Context) error { return s.showCommand(c, refused{}) }

func (s *Server) showCommand(c echo.Context, was refused) error {
	q := parseQuery(c)
	from := q.take("from")
	if err := q.done(); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	b, err := s.Bulks.Get(c.Request().Context(), id)
	if err != nil {
		return fmt.Errorf("get command %d: %w", id, err)
	}
	here := localeOf(c)
	v := views.Command{
		Frame: s.pageFrame(c, "letters", commandTitle(here, b), letterSectionCrumbs(here, commandTitle(here, b))...),
		Row:   commandRow(here, b), Back: backTo(from), Error: was.Text, May: actorOf(c).May(access.DiscardLetters),
		WhoMay: here.Text("may.discard", "roles", rolesOf(here, access.DiscardLetters)),
	}
	if from == "" {
		v.Back = "/letters"
	}
	if b.State != dlq.BulkDone {
		v.LiveURL = fmt.Sprintf("/commands/%d/events", b.ID)
	}
	if keep := s.Retention.Keep(); keep > 0 && b.Kind == dlq.BulkDiscard {
		v.UndoFor = here.Text("command.undo_for", "duration", here.Duration(keep))
	}
	return render(c, was.status(), views.CommandPage(v))
}

func letterSectionCrumbs(here locale.Locale, last string) []views.Crumb {
	return append(crumbs(here, "letters", ""), views.Crumb{Label: last})
}

// commandTitle has no number until the set is whole.
func commandTitle(here locale.Locale, b dlq.Bulk) string {
	switch {
	case b.State == dlq.BulkFreezing && b.Undoes != nil:
		return here.Text("command.title.undo")
	case b.State == dlq.BulkFreezing:
		return here.Text("command.title." + b.Kind.String())
	}
	if b.Undoes != nil {
		return here.Text("command.undo_title", "n", b.Total)
	}
	return here.Text("command."+b.Kind.String(), "n", b.Total)
}

func commandRow(here locale.Locale, b dlq.Bulk) views.CommandRow {
	row := views.CommandRow{
		ID: b.ID, Title: commandTitle(here, b), Kind: b.Kind.String(), State: b.State.String(), Total: int(b.Total), Changed: int(b.Changed), PassedOver: int(b.PassedOver),
		Reason: b.Reason, By: b.CreatedBy, At: b.CreatedAt, FinishedAt: b.FinishedAt, Owner: deref(b.Owner),
		Says: commandSays(here, b), Undoable: b.Kind == dlq.BulkDiscard && b.State == dlq.BulkDone && b.UndoneBy == nil && b.Changed > 0,
	}
	if b.UndoneBy != nil {
		row.UndoneBy = *b.UndoneBy
	}
	if b.Undoes != nil {
		row.Undoes = *b.Undoes
	}
	if b.FaultID != nil {
		row.FaultID = *b.FaultID
	}
	return row
}

// commandSays is where the command stands, in one sentence.
func commandSays(here locale.Locale, b dlq.Bulk) string {
	switch b.State {
	case dlq.BulkFreezing:
		return here.Text("command.says_freezing", "n", b.Total)
	case dlq.BulkRunning:
		return here.Text("command.says_running", "done", b.Changed+b.PassedOver, "n", b.Total)
	}
	text := here.Text("command.says_"+b.Kind.String(), "n", b.Changed)
	if b.PassedOver > 0 {
		text += " " + here.Text("command.says_passed", "n", b.PassedOver)
	}
	return text
}

func (s *Server) commandEvents(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	return s.stream(c, func(ctx context.Context) (string, templ.Component, bool, error) {
		b, err := s.Bulks.Get(ctx, id)
		if err != nil {
			return "", nil, false, fmt.Errorf("get command %d: %w", id, err)
		}
		return fmt.Sprint(b.State, b.Total, b.Changed, b.PassedOver), views.CommandProgress(commandRow(localeOf(c), b)), b.State == dlq.BulkDone, nil
	})
}

func (s *Server) commandUndo(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return dlq.ErrNotFound
	}
	if why := badText(c.FormValue("why")); why != "" {
		return invalid("why", why)
	}
	b, err := s.Bulks.Undo(c.Request().Context(), actorBecause(c, c.FormValue("why")), id)
	if err != nil {
		return s.refuse(c, fmt.Sprintf("/commands/%d", id), "", fmt.Errorf("undo command %d: %w", id, err))
	}
	return c.Redirect(http.StatusSeeOther, address(fmt.Sprintf("/commands/%d", b.ID), "from", backTo(c.FormValue("from"))))
}

func (s *Server) commandListPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	all, err := s.Bulks.Latest(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list commands: %w", err)
	}
	here := localeOf(c)
	v := views.CommandList{Frame: s.pageFrame(c, "letters", here.Text("commands.title"), letterSectionCrumbs(here, here.Text("commands.title"))...)}
	for _, b := range all {
		v.Rows = append(v.Rows, commandRow(here, b))
	}
	return render(c, http.StatusOK, views.CommandListPage(v))
}

// triageForm is what selections, faults and letters offer beyond replays.
func (s *Server) triageForm(c echo.Context) (views.TriageForm, error) {
	here, actor := localeOf(c), actorOf(c)
	f := views.TriageForm{May: actor.May(access.DiscardLetters), WhoMay: here.Text("may.discard", "roles", rolesOf(here, access.DiscardLetters)),
		MayComment: actor.May(access.Comment)}
	names, err := s.accounts.Names(c.Request().Context())
	if err != nil {
		return f, err
	}
	if i := slices.Index(names, actor.User); i > 0 { // oneself first
		names = slices.Insert(slices.Delete(names, i, i+1), 0, actor.User)
	}
	for _, n := range names {
		f.Owners = append(f.Owners, ui.Option{Value: n, Label: n})
	}
	return f, nil
}

func (s *Server) retentionPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	months, err := s.Retention.Months(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list months: %w", err)
	}
	here := localeOf(c)
	v := views.Retention{Frame: s.pageFrame(c, "letters", here.Text("retention.title"), letterSectionCrumbs(here, here.Text("retention.title"))...)}
	v.Keep = here.Text("retention.forever")
	if keep := s.Retention.Keep(); keep > 0 {
		v.Keep = here.Text("retention.keep", "duration", here.Duration(keep))
	}
	for _, m := range slices.Backward(months) {
		row := views.RetentionMonth{Month: m.Month.Format("2006-01"), Letters: int(m.Letters), About: m.Letters > dlq.CountLimit, DropAt: m.DropAt, Kept: m.Why != "", FoundAt: m.FoundAt}
		switch {
		case m.Why != "" && m.OpenN > 0:
			row.Why = here.Text("retention.kept_open", "n", m.OpenN)
			row.Href = address("/letters", "state", "open", "since", rfc(m.Month), "until", rfc(m.Month.AddDate(0, 1, 0)))
		case m.Why != "":
			row.Why = here.Text("retention.kept_bytes")
		}
		v.Months = append(v.Months, row)
	}
	return render(c, http.StatusOK, views.RetentionPage(v))
}
