package web

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

func (s *Server) settingsEvidencePage(c echo.Context) error {
	q := parseQuery(c)
	group, event, connection := q.take("group"), q.take("event_id"), q.take("connection")
	if err := q.done(); err != nil {
		return err
	}
	ctx, here, actor := c.Request().Context(), localeOf(c), actorOf(c)
	v := views.SettingsEvidence{Frame: s.settingsFrame(c, here.Text("settings.evidence")), Tabs: settingsBar(here, "evidence")}
	for _, g := range s.Groups {
		v.Groups = append(v.Groups, evidenceRow(here, g))
	}
	try, err := s.tryEvidence(ctx, here, group, event)
	if err != nil {
		return err
	}
	v.Try = try
	v.Find = views.EvidenceFind{May: actor.May(access.Configure), WhoMay: here.Text("may.configure", "roles", rolesOf(here, access.Configure)), Connection: connection}
	for _, name := range s.Connections {
		v.Find.Connections = append(v.Find.Connections, ui.Option{Value: name, Label: name})
	}
	if connection != "" {
		if err := actor.Check(access.Configure); err != nil {
			return err
		}
		s.findEvidence(ctx, here, &v.Find)
	}
	return render(c, http.StatusOK, views.SettingsEvidencePage(v))
}

func evidenceRow(here locale.Locale, g dlq.Group) views.EvidenceRow {
	row := views.EvidenceRow{Group: g.Name, Cluster: g.Cluster, Ours: g.Ours, Effect: string(cmp.Or(g.Effect, dlq.EffectLocal))}
	if g.OrderSet {
		row.Order = "none"
	}
	if g.OrderKey {
		row.Order = "key"
	}
	if g.Window > 0 {
		row.Window = here.Duration(g.Window)
	}
	e := g.Evidence
	if e == nil {
		return row
	}
	row.Connection, row.Table, row.Where = e.Connection, e.Table, e.Where
	for _, column := range []string{e.EventID, e.ConsumerGroup, e.ConsumedAt} {
		if column != "" {
			row.Columns += column + " "
		}
	}
	if e.GroupValue != "" {
		row.Columns += "(" + e.ConsumerGroup + " = " + e.GroupValue + ")"
	}
	if !e.CompleteSince.IsZero() {
		row.Since = &e.CompleteSince
	}
	if e.Retention > 0 {
		row.Kept = here.Duration(e.Retention)
	}
	return row
}

// tryEvidence looks one event up. Errors: a group without evidence.
func (s *Server) tryEvidence(ctx context.Context, here locale.Locale, group, event string) (views.EvidenceTry, error) {
	try := views.EvidenceTry{Group: group, Event: event}
	var evidence *dlq.Evidence
	for _, g := range s.Groups {
		if g.Evidence != nil {
			try.Groups = append(try.Groups, ui.Option{Value: g.Name, Label: g.Name})
		}
		if g.Name == group {
			evidence = g.Evidence
		}
	}
	if group == "" && event == "" {
		return try, nil
	}
	if evidence == nil {
		return try, invalid("group", "names no group with evidence")
	}
	if why := badText(event); event == "" || why != "" {
		return try, invalid("event_id", cmp.Or(why, "is missing"))
	}
	a := evidence.Ask(ctx, event, group)
	try.Verdict, try.Text = answerWords(here, a)
	try.Took = here.Text("settings.took", "took", a.Took.Round(time.Millisecond).String(), "time", here.Exact(s.Clock()))
	return try, nil
}

func answerWords(here locale.Locale, a dlq.EvidenceAnswer) (hue, text string) {
	switch {
	case a.Failed != nil:
		return "hold", reasonText(here, *a.Failed)
	case !a.Found:
		return "go", here.Text("settings.no_record")
	case !a.Exact:
		return "ask", here.Text("settings.other_record", "found", a.EventID)
	case a.ConsumedAt == nil:
		return "noop", here.Text("settings.record")
	}
	return "noop", here.Text("settings.record_at", "at", here.Exact(*a.ConsumedAt))
}

// findEvidence asks the schema; a database that does not answer is said on the page.
func (s *Server) findEvidence(ctx context.Context, here locale.Locale, v *views.EvidenceFind) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	found, err := s.FindEvidence(ctx, v.Connection)
	if err != nil {
		s.Logger.Warn("look for evidence", "connection", v.Connection, "error", err)
		v.Error = here.Text("settings.find_failed", "connection", v.Connection)
		return
	}
	for _, p := range found {
		v.Proposals = append(v.Proposals, proposalView(here, p, s.Clock()))
	}
}

func proposalView(here locale.Locale, p dlq.EvidenceProposal, now time.Time) views.EvidenceProposal {
	v := views.EvidenceProposal{Table: p.Table, Unique: p.Unique, YAML: p.YAML(now)}
	say := func(key string, args ...any) { v.Facts = append(v.Facts, here.Text(key, args...)) }
	if p.Rows > 0 { // 0: the database has no statistics of it
		say("settings.rows", "n", p.Rows)
	}
	if p.Unique {
		say("settings.unique")
	} else {
		say("settings.not_unique")
	}
	switch {
	case p.Sample == "":
		say("settings.empty_table")
	case p.Answer.Failed != nil:
		v.Facts = append(v.Facts, reasonText(here, *p.Answer.Failed))
	default:
		say("settings.tried", "event", p.Sample, "took", p.Answer.Took.Round(time.Millisecond).String())
	}
	return v
}
