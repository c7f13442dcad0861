package web

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/labstack/echo/v4"

	"oncemore/internal/audit"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// auditedActions are the choices of the filter, in the order of the list.
var auditedActions = []string{
	"replay.planned", "replay.started", "replay.approved", "replay.rejected", "replay.paused", "replay.resumed", "replay.canceled",
	"consumer.paused", "consumer.resumed", "outbox.retried", "outbox.skip_asked", "outbox.skip_approved", "outbox.skip_rejected", "letter.downloaded", "session.started", "session.ended", "session.refused", "access.refused",
	"user.created", "user.disabled", "user.enabled", "user.role_set", "user.password_set", "token.created", "token.revoked",
	"run.asked", "run.signed", "run.auto_signed", "run.sent_back", "run.reopened", "break.assigned", "break.commented", "break.explained", "break.unexplained", "break.file_added",
	"breaks.exported", "runs.exported", "job.paused", "job.resumed",
}

func (s *Server) auditPage(c echo.Context) error {
	q := parseQuery(c)
	filter := audit.Filter{Actor: q.take("actor"), Action: q.take("action"), Target: q.take("target")}
	page := q.page()
	if err := q.done(); err != nil {
		return err
	}
	found, err := audit.List(c.Request().Context(), s.Pool, filter, page.Limit, page.Cursor)
	if err != nil {
		return fmt.Errorf("list audit: %w", err)
	}
	here := localeOf(c)
	at := func(cursor string) string {
		return address("/audit", "actor", filter.Actor, "action", filter.Action, "target", filter.Target, "cursor", cursor)
	}
	v := views.Audit{
		Frame:  s.pageFrame(c, "audit", here.Text("audit.title"), views.Crumb{Label: here.Text("nav.system")}, views.Crumb{Label: here.Text("audit.title")}),
		Filter: auditFilterBar(here, filter), Pager: firstPager(here, at(""), page.Cursor, found.Next, at),
		Empty: views.Empty{Text: here.Text("audit.none")},
	}
	if filter != (audit.Filter{}) {
		v.Empty = views.Empty{Text: here.Text("audit.none_match"), Href: "/audit", Link: here.Text("filter.clear")}
	}
	for _, r := range found.Items {
		v.Rows = append(v.Rows, auditRow(here, r))
	}
	return render(c, 200, views.AuditPage(v))
}

func auditFilterBar(here locale.Locale, f audit.Filter) views.FilterBar {
	actions := ui.Choice{Name: "action", Label: here.Text("filter.action"), Value: f.Action}
	for _, a := range auditedActions {
		actions.Options = append(actions.Options, ui.Option{Value: a, Label: here.Text("audit.action." + a)})
	}
	actions.Options = withChosen(actions.Options, f.Action)
	bar := views.FilterBar{Action: "/audit", Search: &views.Search{Name: "target", Value: f.Target, Label: here.Text("filter.what")},
		Fields: []views.Search{{Name: "actor", Value: f.Actor, Label: here.Text("filter.who")}}, Choices: []ui.Choice{actions}}
	if f != (audit.Filter{}) {
		bar.Clear = "/audit"
	}
	return bar
}

func auditRow(here locale.Locale, r audit.Row) views.AuditRow {
	row := views.AuditRow{ID: r.ID, At: r.At, Who: r.Actor, Via: r.Via, From: r.From, Action: r.Action, Did: r.Action,
		Target: r.Target, Href: auditHref(r.Target), Why: r.Reason}
	if key := "audit.action." + r.Action; locale.Has(key) {
		row.Did = here.Text(key)
	}
	if detail := bytes.TrimSpace(r.Detail); len(detail) > 0 && !bytes.Equal(detail, []byte("{}")) {
		row.Detail = jsonLines(detail)
	}
	return row
}

// auditPlaces are the targets that have a page.
var auditPlaces = map[string]string{"replay": "/replays/", "letter": "/letters/", "fault": "/faults/", "consumer": "/consumers/",
	"run": "/runs/", "break": "/breaks/", "job": "/reconciliations/"}

func auditHref(target string) string {
	kind, id, ok := strings.Cut(target, "/")
	if place := auditPlaces[kind]; ok && place != "" {
		return place + pathSegment(id)
	}
	return ""
}
