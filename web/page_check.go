package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/internal/check"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// checkFilter narrows the page. Zero values do not filter.
type checkFilter struct {
	severity, area, state string
	code, subject         string // whose history is shown
	ran                   bool
}

var (
	checkAreas  = []string{"console", "connection", "evidence", "topic", "consumer", "source", "retention"}
	checkStates = []string{"open", "muted", "passed"}
	checkUntils = []struct {
		name string
		days int
	}{{"1d", 1}, {"7d", 7}, {"30d", 30}, {"90d", 90}}
)

func parseCheckFilter(c echo.Context) (checkFilter, error) {
	q := parseQuery(c)
	f := checkFilter{severity: q.take("severity"), area: q.take("area"), state: q.take("state"), code: q.take("code"), subject: q.take("subject"), ran: q.take("ran") != ""}
	if f.severity != "" && new(check.Severity).UnmarshalText([]byte(f.severity)) != nil {
		q.fail("severity", "is one of critical, warning, not_checked, note, passed")
	}
	if f.area != "" && !slices.Contains(checkAreas, f.area) {
		q.fail("area", "is one of console, connection, evidence, topic, consumer, source, retention")
	}
	if f.state != "" && !slices.Contains(checkStates, f.state) {
		q.fail("state", "is one of open, muted, passed")
	}
	return f, q.done()
}

func (f checkFilter) takes(finding check.Finding, state string) bool {
	return (f.severity == "" || f.severity == finding.Severity.String()) && (f.area == "" || f.area == finding.Area) && (f.state == "" || f.state == state)
}

func checkState(f check.Finding, now time.Time) string {
	switch {
	case f.Severity == check.Passed:
		return "passed"
	case f.Muted(now):
		return "muted"
	}
	return "open"
}

// checkListPage shows the latest answers; it asks nothing anew.
func (s *Server) checkListPage(c echo.Context) error { return s.showChecks(c, checkForm{}) }

// checkForm is a form that was refused, and whose it is.
type checkForm struct {
	refused
	code, subject string
}

func (s *Server) showChecks(c echo.Context, was checkForm) error {
	f, err := parseCheckFilter(c)
	if err != nil {
		return err
	}
	here, store := localeOf(c), check.NewStore(s.Pool)
	findings, err := store.Findings(c.Request().Context())
	if err != nil {
		return fmt.Errorf("list checks: %w", err)
	}
	v := s.checkList(c, f, was)
	for i, finding := range findings {
		state := checkState(finding, s.Clock())
		if !f.takes(finding, state) {
			continue
		}
		row := checkRow(here, f, finding, s.Clock())
		row.ID = "check-" + strconv.Itoa(i)
		row.History += "#" + row.ID
		if was.code == finding.Code && was.subject == finding.Subject {
			row.Reason = was.Reason
		}
		if f.code == finding.Code && f.subject == finding.Subject {
			if row.Changes, err = checkChanges(c.Request().Context(), here, store, finding); err != nil {
				return err
			}
			v.Filtered = v.Filtered || state != "open" // the list that it stands in is unfolded
		}
		to := map[string]*[]views.CheckRow{"open": &v.Open, "muted": &v.Muted, "passed": &v.Passed}[state]
		*to = append(*to, row)
	}
	v.Worst, v.Summary = worstOpen(findings, s.Clock()).String(), checkSummary(here, findings, s.Clock())
	return render(c, was.status(), views.CheckListPage(v))
}

func (s *Server) checkList(c echo.Context, f checkFilter, was checkForm) views.CheckList {
	here, actor := localeOf(c), actorOf(c)
	v := views.CheckList{
		Frame: s.pageFrame(c, "checks", here.Text("checks.title"), views.Crumb{Label: here.Text("nav.system")}, views.Crumb{Label: here.Text("checks.title")}),
		May:   actor.May(access.RunChecks) && actor.May(access.MuteCheck), WhoMay: here.Text("may.checks", "roles", rolesOf(here, access.RunChecks)), CanRun: s.RunChecks != nil,
		Error: was.Text, Filtered: f.severity != "" || f.area != "" || f.state != "",
	}
	if f.ran {
		v.Said = here.Text("checks.ran")
	}
	for _, u := range checkUntils {
		v.Untils = append(v.Untils, ui.Option{Value: u.name, Label: here.Text("checks.until." + u.name)})
	}
	v.Filter = checkFilterBar(here, f)
	return v
}

func checkFilterBar(here locale.Locale, f checkFilter) views.FilterBar {
	severities := ui.Choice{Name: "severity", Label: here.Text("checks.severity"), Value: f.severity}
	for s := check.Critical; s <= check.Passed; s++ {
		severities.Options = append(severities.Options, ui.Option{Value: s.String(), Label: here.Text("state.check." + s.String())})
	}
	areas := ui.Choice{Name: "area", Label: here.Text("checks.area"), Value: f.area}
	for _, a := range checkAreas {
		areas.Options = append(areas.Options, ui.Option{Value: a, Label: here.Text("checks.area." + a)})
	}
	states := ui.Choice{Name: "state", Label: here.Text("checks.state"), Value: f.state}
	for _, st := range checkStates {
		states.Options = append(states.Options, ui.Option{Value: st, Label: here.Text("checks.state." + st)})
	}
	bar := views.FilterBar{Action: "/checks", Choices: []ui.Choice{severities, areas, states}}
	if f.severity != "" || f.area != "" || f.state != "" {
		bar.Clear = "/checks"
	}
	return bar
}

func checkRow(here locale.Locale, filter checkFilter, f check.Finding, now time.Time) views.CheckRow {
	row := views.CheckRow{
		Code: f.Code, Severity: f.Severity.String(), Subject: f.Subject, Sentence: checkText(here, f.Sentence), Meaning: checkText(here, f.Meaning),
		Mend: checkText(here, f.Mend), Evidence: f.Evidence, CheckedAt: f.CheckedAt, Since: f.Since,
		History: address("/checks", "severity", filter.severity, "area", filter.area, "state", filter.state, "code", f.Code, "subject", f.Subject),
	}
	if f.Muted(now) {
		row.Muted = here.Text("checks.muted", "until", here.Short(f.Mute.Until), "by", f.Mute.By, "reason", f.Mute.Reason)
	}
	return row
}

// checkHistory is how many changes of one check are shown.
const checkHistory = 50

func checkChanges(ctx context.Context, here locale.Locale, store *check.Store, f check.Finding) ([]views.CheckChange, error) {
	changes, err := store.History(ctx, f.Code, f.Subject, checkHistory)
	if err != nil {
		return nil, err
	}
	rows := []views.CheckChange{}
	for _, ch := range changes {
		rows = append(rows, views.CheckChange{Severity: ch.Severity.String(), Sentence: checkText(here, ch.Sentence), At: ch.At})
	}
	return rows, nil
}

func checkText(here locale.Locale, t check.Text) string {
	args := make(map[string]any, len(t.Args))
	for name, value := range t.Args {
		args[name] = value
	}
	return sentence(here, t.Key, args, t.En)
}

// worstOpen is the worst severity that nobody has muted.
func worstOpen(findings []check.Finding, now time.Time) check.Severity {
	return check.Worst(slices.DeleteFunc(slices.Clone(findings), func(f check.Finding) bool { return f.Muted(now) }))
}

// checkSummary says that all passed only where every single one did: what could
// not be looked at, or is muted, has not passed.
func checkSummary(here locale.Locale, findings []check.Finding, now time.Time) string {
	if len(findings) == 0 {
		return ""
	}
	at, n, muted := findings[0].CheckedAt, map[check.Severity]int{}, 0
	for _, f := range findings {
		if f.Muted(now) {
			muted++
		} else {
			n[f.Severity]++
		}
		if f.CheckedAt.Before(at) {
			at = f.CheckedAt
		}
	}
	switch open := openChecks(findings, now); {
	case open > 0:
		return here.Text("checks.open", "n", open, "unchecked", n[check.NotChecked], "at", here.Short(at))
	case n[check.Note] > 0 || muted > 0:
		return here.Text("checks.none_open", "passed", n[check.Passed], "notes", n[check.Note]+muted, "at", here.Short(at))
	}
	return here.Text("checks.all_passed", "n", len(findings), "at", here.Short(at))
}

// openChecks counts what somebody has to look at. A note is no objection, and
// neither is what somebody has muted.
func openChecks(findings []check.Finding, now time.Time) int {
	n := 0
	for _, f := range findings {
		if f.Severity < check.Note && !f.Muted(now) {
			n++
		}
	}
	return n
}

// checkTime bounds a run that somebody waits for.
const checkTime = time.Minute

// runChecks looks at everything, where this process can. Errors: access.ErrForbidden.
func (s *Server) runChecks(c echo.Context, actor access.Actor) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), checkTime)
	defer cancel()
	if err := actor.Check(access.RunChecks); err != nil {
		return err
	}
	if s.RunChecks == nil {
		return echo.ErrNotFound
	}
	if err := check.NewStore(s.Pool).Ran(ctx, actor); err != nil {
		return err
	}
	if err := s.RunChecks(ctx); err != nil {
		return fmt.Errorf("run checks: %w", err)
	}
	return nil
}

func (s *Server) checksRun(c echo.Context) error {
	if err := s.runChecks(c, actorOf(c)); err != nil {
		return err
	}
	return c.Redirect(http.StatusSeeOther, "/checks?ran=1")
}

func (s *Server) checkMute(c echo.Context) error {
	code, subject, reason := c.FormValue("code"), c.FormValue("subject"), c.FormValue("reason")
	if why := badText(reason); why != "" {
		return invalid("reason", why)
	}
	i := slices.IndexFunc(checkUntils, func(u struct {
		name string
		days int
	}) bool {
		return u.name == c.FormValue("for")
	})
	if i < 0 {
		return invalid("for", "is one of 1d, 7d, 30d, 90d")
	}
	now := s.Clock()
	err := check.NewStore(s.Pool).Mute(c.Request().Context(), actorBecause(c, reason), code, subject, now.AddDate(0, 0, checkUntils[i].days), now)
	if errors.Is(err, access.ErrReasonRequired) {
		return s.showChecks(c, checkForm{refused{Status: http.StatusUnprocessableEntity, Text: localeOf(c).Text("form.reason"), Reason: reason}, code, subject})
	}
	if err != nil {
		return fmt.Errorf("mute check %s: %w", code, err)
	}
	return c.Redirect(http.StatusSeeOther, "/checks")
}

func (s *Server) checkUnmute(c echo.Context) error {
	code, subject := c.FormValue("code"), c.FormValue("subject")
	if err := check.NewStore(s.Pool).Unmute(c.Request().Context(), actorOf(c), code, subject); err != nil {
		return fmt.Errorf("unmute check %s: %w", code, err)
	}
	return c.Redirect(http.StatusSeeOther, "/checks")
}
