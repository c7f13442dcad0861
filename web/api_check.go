package web

import (
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/check"
	"oncemore/views/locale"
)

// findingJSON is the latest answer of one check about one object.
type findingJSON struct {
	Code      string     `json:"code"`
	Area      string     `json:"area"`
	Subject   string     `json:"subject"`
	Severity  string     `json:"severity"`
	Sentence  *string    `json:"sentence"`
	Meaning   *string    `json:"meaning"`
	Mend      *string    `json:"mend"`
	Evidence  []string   `json:"evidence"`
	CheckedAt *time.Time `json:"checked_at"`
	Since     *time.Time `json:"since"`
}

func findingOf(here locale.Locale) func(check.Finding) findingJSON {
	text := func(t check.Text) *string {
		args := make(map[string]any, len(t.Args))
		for name, value := range t.Args {
			args[name] = value
		}
		return localised(here, t.Key, args, t.En)
	}
	return func(f check.Finding) findingJSON {
		return findingJSON{Code: f.Code, Area: f.Area, Subject: f.Subject, Severity: f.Severity.String(),
			Sentence: text(f.Sentence), Meaning: text(f.Meaning), Mend: text(f.Mend), Evidence: orEmpty(f.Evidence),
			CheckedAt: instant(&f.CheckedAt), Since: instant(&f.Since)}
	}
}

func (s *Server) apiChecks(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	findings, err := check.NewStore(s.Pool).Findings(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list checks: %w", err)
	}
	return answer(c, http.StatusOK, listOf(findings, "", findingOf(localeOf(c))))
}
