package web

import (
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"oncemore/internal/check"
	"oncemore/views"
	"oncemore/views/locale"
)

// checkListPage shows the latest answers; it asks nothing anew.
func (s *Server) checkListPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	here := localeOf(c)
	findings, err := check.NewStore(s.Pool).Findings(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list checks: %w", err)
	}
	v := views.CheckList{Frame: s.pageFrame(c, "checks", here.Text("checks.title"),
		views.Crumb{Label: here.Text("nav.system")}, views.Crumb{Label: here.Text("checks.title")})}
	for _, f := range findings {
		if f.Severity == check.Passed {
			v.Passed = append(v.Passed, checkRow(here, f))
			continue
		}
		v.Open = append(v.Open, checkRow(here, f))
	}
	v.Worst, v.Summary = check.Worst(findings).String(), checkSummary(here, findings)
	return render(c, http.StatusOK, views.CheckListPage(v))
}

func checkRow(here locale.Locale, f check.Finding) views.CheckRow {
	return views.CheckRow{
		Severity: f.Severity.String(), Subject: f.Subject, Sentence: checkText(here, f.Sentence), Meaning: checkText(here, f.Meaning),
		Mend: checkText(here, f.Mend), Evidence: f.Evidence, CheckedAt: f.CheckedAt, Since: f.Since,
	}
}

func checkText(here locale.Locale, t check.Text) string {
	args := make(map[string]any, len(t.Args))
	for name, value := range t.Args {
		args[name] = value
	}
	return sentence(here, t.Key, args, t.En)
}

// checkSummary says that all passed only where every single one did: what could
// not be looked at has not passed.
func checkSummary(here locale.Locale, findings []check.Finding) string {
	if len(findings) == 0 {
		return ""
	}
	at, n := findings[0].CheckedAt, map[check.Severity]int{}
	for _, f := range findings {
		n[f.Severity]++
		if f.CheckedAt.Before(at) {
			at = f.CheckedAt
		}
	}
	switch open := openChecks(findings); {
	case open > 0:
		return here.Text("checks.open", "n", open, "unchecked", n[check.NotChecked], "at", here.Short(at))
	case n[check.Note] > 0:
		return here.Text("checks.none_open", "passed", n[check.Passed], "notes", n[check.Note], "at", here.Short(at))
	}
	return here.Text("checks.all_passed", "n", len(findings), "at", here.Short(at))
}

// openChecks counts what somebody has to look at. A note is no objection.
func openChecks(findings []check.Finding) int {
	n := 0
	for _, f := range findings {
		if f.Severity < check.Note {
			n++
		}
	}
	return n
}
