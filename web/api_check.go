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
	Code      string         `json:"code"`
	Area      string         `json:"area"`
	Subject   string         `json:"subject"`
	Severity  string         `json:"severity"`
	Sentence  *string        `json:"sentence"`
	Meaning   *string        `json:"meaning"`
	Mend      *string        `json:"mend"`
	Evidence  []string       `json:"evidence"`
	CheckedAt *time.Time     `json:"checked_at"`
	Since     *time.Time     `json:"since"`
	Mute      *checkMuteJSON `json:"mute"` // null: nobody has muted it
}

// checkMuteJSON is who wants to hear nothing of a finding, until when and why.
type checkMuteJSON struct {
	Until  *time.Time `json:"until"`
	Reason string     `json:"reason"`
	By     string     `json:"by"`
	At     *time.Time `json:"at"`
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
		var mute *checkMuteJSON
		if m := f.Mute; m != nil {
			mute = &checkMuteJSON{Until: instant(&m.Until), Reason: m.Reason, By: m.By, At: instant(&m.At)}
		}
		return findingJSON{Mute: mute, Code: f.Code, Area: f.Area, Subject: f.Subject, Severity: f.Severity.String(),
			Sentence: text(f.Sentence), Meaning: text(f.Meaning), Mend: text(f.Mend), Evidence: orEmpty(f.Evidence),
			CheckedAt: instant(&f.CheckedAt), Since: instant(&f.Since)}
	}
}

func (s *Server) apiChecks(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	return s.answerChecks(c)
}

func (s *Server) answerChecks(c echo.Context) error {
	findings, err := check.NewStore(s.Pool).Findings(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list checks: %w", err)
	}
	return answer(c, http.StatusOK, listOf(findings, "", findingOf(localeOf(c))))
}

// apiChecksRun looks at everything and answers with what was found.
func (s *Server) apiChecksRun(c echo.Context) error {
	by, err := commander(c)
	if err != nil {
		return err
	}
	if err := s.runChecks(c, by); err != nil {
		return err
	}
	return s.answerChecks(c)
}

// apiCheckMute mutes one finding until a time.
func (s *Server) apiCheckMute(c echo.Context) error {
	var body struct {
		Code    string    `json:"code"`
		Subject string    `json:"subject"`
		Until   time.Time `json:"until"`
		Reason  string    `json:"reason"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	err := check.NewStore(s.Pool).Mute(c.Request().Context(), actorBecause(c, body.Reason), body.Code, body.Subject, body.Until, s.Clock())
	if err != nil {
		return fmt.Errorf("mute check %s: %w", body.Code, err)
	}
	return s.answerChecks(c)
}

// apiCheckUnmute takes a mute back.
func (s *Server) apiCheckUnmute(c echo.Context) error {
	var body struct {
		Code    string `json:"code"`
		Subject string `json:"subject"`
		Reason  string `json:"reason"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if err := check.NewStore(s.Pool).Unmute(c.Request().Context(), actorBecause(c, body.Reason), body.Code, body.Subject); err != nil {
		return fmt.Errorf("unmute check %s: %w", body.Code, err)
	}
	return s.answerChecks(c)
}
