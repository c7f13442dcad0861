package web

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// trendViews are the lines over a job's last runs: matched share, open money in
// each currency, duration.
func trendViews(here locale.Locale, j jobStanding) []views.Trend {
	if len(j.trend) == 0 {
		return nil
	}
	all := []views.Trend{matchedTrend(here, j.trend)}
	risks := map[string]bool{}
	for _, p := range j.trend {
		for currency := range p.AtRisk {
			risks[currency] = true
		}
	}
	for _, currency := range currencies(risks) {
		all = append(all, riskTrend(here, j.trend, currency))
	}
	return append(all, durationTrend(here, j.trend))
}

func trendPoint(here locale.Locale, p reconcile.Point) views.TrendPoint {
	id := strconv.FormatInt(p.Run, 10)
	return views.TrendPoint{Run: id, Href: runHref(p.Run), Window: here.Text("jobs.until", "time", here.Short(p.To)), Partial: p.State == reconcile.Partial}
}

func matchedTrend(here locale.Locale, points []reconcile.Point) views.Trend {
	t := views.Trend{Title: here.Text("run.matched"), Top: "100%", Low: 100, High: 100}
	for _, p := range points {
		point := trendPoint(here, p)
		if p.Keys == 0 {
			point.Unknown, point.Text = true, "–"
		} else {
			point.Value, point.Text = 100*float64(p.Matched)/float64(p.Keys), locale.Share(p.Matched, p.Keys)
			t.Low = min(t.Low, point.Value)
		}
		t.Points = append(t.Points, point)
	}
	t.Bottom = locale.Share(int64(t.Low*100), 10_000)
	return lastOf(t)
}

func riskTrend(here locale.Locale, points []reconcile.Point, currency string) views.Trend {
	t := views.Trend{Title: here.Text("jobs.trend_risk", "currency", currency)}
	for _, p := range points {
		point := trendPoint(here, p)
		line := p.AtRisk[currency]
		point.Value, point.Text = line.Amount.InexactFloat64(), amountText(line.Amount, currency)
		if point.Value >= t.High {
			t.High, t.Top = point.Value, money(line.Amount, currency)
		}
		t.Points = append(t.Points, point)
	}
	t.Bottom = "0"
	return lastOf(t)
}

func durationTrend(here locale.Locale, points []reconcile.Point) views.Trend {
	t := views.Trend{Title: here.Text("jobs.trend_duration"), Bottom: "0"}
	for _, p := range points {
		point := trendPoint(here, p)
		point.Value, point.Text = p.Duration.Seconds(), tookText(here, p.Duration)
		if point.Value >= t.High {
			t.High, t.Top = point.Value, point.Text
		}
		t.Points = append(t.Points, point)
	}
	return lastOf(t)
}

func lastOf(t views.Trend) views.Trend {
	t.Last = t.Points[len(t.Points)-1].Text
	return t
}

// previewPatience bounds what a page waits for a preview.
const previewPatience = 15 * time.Second

// previewView asks the databases what the definition would read.
func (s *Server) previewView(c echo.Context, job *reconcile.Job) *views.PreviewView {
	here, actor := localeOf(c), actorOf(c)
	ctx, cancel := context.WithTimeout(c.Request().Context(), previewPatience)
	defer cancel()
	p, err := s.Reconcile.Runs.Preview(ctx, job)
	if err != nil {
		v := &views.PreviewView{Error: err.Error()}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			v.Error = here.Text("break.rows_slow", "duration", here.Duration(previewPatience))
		case !actor.May(access.RunJob):
			v.Error = here.Text("break.rows_failed")
		}
		return v
	}
	v := &views.PreviewView{Plan: here.Text("run.plan", "plan", p.Plan, "why", planWhy(here, p.Reason))}
	masked := !actor.May(access.ReadPayload)
	for _, side := range p.Sides {
		v.Sides = append(v.Sides, previewSide(here, side, job, masked))
	}
	if masked {
		v.Masked = here.Text("break.masked_says", "role", here.Text("role."+string(actor.Role)), "roles", rolesOf(here, access.ReadPayload))
	}
	return v
}

// previewSide masks values but amounts and times for those who read no payloads.
func previewSide(here locale.Locale, side reconcile.SidePreview, job *reconcile.Job, masked bool) views.PreviewSide {
	v := views.PreviewSide{Name: sideWord(here, side.Party), Connection: job.Side(side.Party).Connection, Columns: side.Columns}
	for _, w := range side.Warnings {
		v.Warnings = append(v.Warnings, views.PreviewWarning{Title: here.Text("job.warning." + w.Code), Text: warningText(here, w)})
	}
	for _, row := range side.Rows {
		cells := make([]views.LiveCell, len(row))
		for i, value := range row {
			cells[i] = liveCell(value, masked && isKey(job, side.Columns[i]))
		}
		v.Rows = append(v.Rows, cells)
	}
	for _, line := range side.Explain {
		v.Explain = append(v.Explain, views.CodeLine{Tokens: []views.Token{{Text: line}}})
	}
	return v
}

// warningText is a warning in the reader's language, else as it was said.
func warningText(here locale.Locale, w reconcile.Warning) string {
	key := "job.warning_says." + w.Code
	if !locale.Has(key) {
		return w.Text
	}
	return here.Text(key, "column", w.Column, "type", w.Type)
}

func isKey(job *reconcile.Job, column string) bool {
	for _, k := range job.Key {
		if k == column {
			return true
		}
	}
	return false
}
