package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/views"
	"oncemore/views/locale"
)

// noteLooks are the icons of a compensation's timeline, by the note's kind.
var noteLooks = map[string][2]string{
	"proposed": {"list-details", "hold"}, "approved": {"user-check", "go"}, "started": {"player-play", "noop"}, "executed": {"send", "noop"},
	"verified": {"checks", "go"}, "not_needed": {"circle-check", "hold"}, "needs_attention": {"alert-triangle", "bad"}, "rejected": {"x", "bad"},
	"cancelled": {"ban", "hold"}, "voided": {"git-compare", "hold"}, "expired": {"hourglass-off", "hold"}, "undoing": {"arrow-back-up", "ask"},
	"confirming": {"checks", "noop"}, "paused": {"player-pause", "ask"}, "resumed": {"player-play", "noop"}, "retried": {"refresh", "noop"},
	"checked": {"search", "noop"}, "cancel_asked": {"ban", "ask"}, "skip_asked": {"user-check", "ask"}, "skipped": {"ban", "hold"}, "replayed": {"repeat", "noop"},
}

// compensationTimeline tells a repair from the break or letter on.
func (s *Server) compensationTimeline(c echo.Context, t story) ([]views.TimelineRow, error) {
	here := localeOf(c)
	rows, err := s.timelineBegins(c, t)
	if err != nil {
		return nil, err
	}
	for _, n := range t.notes {
		rows = append(rows, noteLine(here, t.Row, n))
	}
	slices.SortStableFunc(rows, func(a, b views.TimelineRow) int { return deref(a.At).Compare(deref(b.At)) })
	return rows, nil
}

// timelineBegins is where the break or the letter comes from.
func (s *Server) timelineBegins(c echo.Context, t story) ([]views.TimelineRow, error) {
	here := localeOf(c)
	label, href := subjectOf(here, t.Compensation)
	row := views.TimelineRow{Icon: "scale", Hue: "ask", Href: href}
	switch {
	case t.BreakID != nil:
		b, err := s.Reconcile.Breaks.Get(c.Request().Context(), *t.BreakID)
		if err != nil {
			return nil, fmt.Errorf("get break %d: %w", *t.BreakID, err)
		}
		row.At, row.Text = ptr(b.OpenedAt), here.Text("compensation.timeline.break", "what", label, "run", strconv.FormatInt(b.OpenedRun, 10))
	case t.LetterID != nil && s.Letters != nil:
		row.Icon, row.At, row.Text = "inbox", ptr(time.Unix(t.LetterID.Time().UnixTime())), here.Text("compensation.timeline.letter")
	default:
		return nil, nil
	}
	return []views.TimelineRow{row}, nil
}

func noteLine(here locale.Locale, r compensate.Row, n compensate.NoteRow) views.TimelineRow {
	look, known := noteLooks[n.Kind]
	if !known {
		look = [2]string{"info-circle", "hold"}
	}
	row := views.TimelineRow{Icon: look[0], Hue: look[1], At: &n.At, Text: n.Kind, Detail: n.Text}
	if key := "compensation.timeline." + n.Kind; locale.Has(key) {
		row.Text = here.Text(key, "by", personName(here, n.By))
	}
	switch n.Kind {
	case "replayed":
		var detail struct {
			Replay int64 `json:"replay"`
		}
		if json.Unmarshal(n.Detail, &detail) == nil && detail.Replay != 0 {
			row.Href, row.Detail = "/replays/"+strconv.FormatInt(detail.Replay, 10), strings.TrimSpace("R-"+strconv.FormatInt(detail.Replay, 10)+" "+row.Detail)
		}
	case "verified":
		if r.VerifyRun != nil {
			row.Href = "/runs/" + strconv.FormatInt(*r.VerifyRun, 10)
		}
	}
	return row
}
