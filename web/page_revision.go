package web

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

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
