package web

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// jobTabs are the views of a job's page.
var jobTabs = []string{"runs", "trends", "definition", "preview"}

// jobQuery is what a job's address says.
type jobQuery struct {
	name    string
	tab     string
	version int
	state   string
	sign    string
	filter  reconcile.RunFilter
}

func jobQueryOf(c echo.Context) (jobQuery, error) {
	name, err := jobName(c)
	if err != nil {
		return jobQuery{}, err
	}
	q := parseQuery(c)
	j := jobQuery{name: name, tab: q.take("tab"), version: int(q.id("version", 31)), state: q.values.Get("state"), sign: q.values.Get("sign_off")}
	if j.tab == "" {
		j.tab = jobTabs[0]
	}
	if !slices.Contains(jobTabs, j.tab) {
		q.fail("tab", "is one of "+strings.Join(jobTabs, ", "))
	}
	j.filter, err = runFilter(q)
	j.filter.Job = name
	return j, err
}

func (j jobQuery) address(tab, cursor string) string {
	if tab == jobTabs[0] {
		return address(jobHref(j.name), "state", j.state, "sign_off", j.sign, "cursor", cursor)
	}
	return address(jobHref(j.name), "tab", tab)
}

func (s *Server) jobPage(c echo.Context) error { return s.showJob(c, refused{}) }

func (s *Server) showJob(c echo.Context, was refused) error {
	q, err := jobQueryOf(c)
	if err != nil {
		return err
	}
	all, err := s.jobStandings(c.Request().Context())
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(j jobStanding) bool { return j.summary.Name == q.name })
	if at < 0 {
		return fmt.Errorf("%w: %s", reconcile.ErrNoJob, q.name)
	}
	j := all[at]
	here := inZone(c, j.def.Zone)
	v := s.jobView(c, here, j, q)
	v.Error = was.Text
	switch q.tab {
	case "runs":
		err = s.fillRuns(c, &v, q)
	case "trends":
		v.Trends = trendViews(here, j)
	case "definition":
		err = s.fillDefinition(c, &v, q)
	case "preview":
		v.Preview = s.previewView(c, j.def)
	}
	if err != nil {
		return err
	}
	return render(c, was.status(), views.JobPage(v))
}

func (s *Server) jobView(c echo.Context, here locale.Locale, j jobStanding, q jobQuery) views.Job {
	actor := actorOf(c)
	v := views.Job{
		Frame: s.pageFrame(c, "reconciliations", q.name, financeCrumbs(here, q.name, "")...), Row: jobRow(here, j), Path: jobHref(q.name), Tab: q.tab,
		Facts: jobFacts(here, j), MayRun: actor.May(access.RunJob), WhoMay: here.Text("may.run_job", "roles", rolesOf(here, access.RunJob)),
		IsPaused: j.summary.PausedBy != nil, Run: runForm(here, j.def), Exports: exportLinks(here, jobHref(q.name)+"/export", nil),
	}
	if file := j.summary.File; file != nil && *file != j.summary.Version {
		v.FileDiffers = here.Text("jobform.file_differs", "n", "v"+strconv.Itoa(*file), "current", "v"+strconv.Itoa(j.summary.Version))
	}
	if actor.May(access.ProposeJob) {
		v.Change = jobHref(q.name) + "/change"
	}
	for _, tab := range jobTabs {
		v.Tabs = append(v.Tabs, ui.Tab{Label: here.Text("jobs.tab_" + tab), Href: jobQuery{name: q.name}.address(tab, ""), Current: tab == q.tab})
	}
	return v
}

// jobFacts are the figures over the tabs.
func jobFacts(here locale.Locale, j jobStanding) []views.Fact {
	row := jobRow(here, j)
	risk := views.Fact{Label: here.Text("jobs.at_risk"), Value: "0", Detail: here.Text("jobs.at_risk_sub")}
	for i, amount := range row.AtRisk {
		if i == 0 {
			risk.Value = amount
			continue
		}
		risk.Detail += here.Text("list.comma") + amount
	}
	matched := here.Text("jobs.matched_sub")
	if row.Unknown {
		matched = here.Text("jobs.matched_unknown")
	}
	facts := []views.Fact{
		{Label: here.Text("jobs.last"), Value: here.Text("jobs.never"), Detail: row.LastWindow},
		{Label: here.Text("run.matched"), Value: row.Matched, Detail: matched},
		risk,
		{Label: here.Text("jobs.open"), Value: row.Open, Detail: row.Oldest, Href: row.OpenHref},
		{Label: here.Text("jobs.signed_until"), Value: row.SignedUntil, Detail: row.Waiting},
		{Label: here.Text("jobs.definition"), Value: "v" + strconv.Itoa(j.summary.Version), Detail: shortHash(hex.EncodeToString(j.def.Hash[:])), Href: jobQuery{name: row.Name}.address("definition", "")},
	}
	if row.LastState != "" {
		facts[0].Value, facts[0].Href = here.Text("run.title", "id", strconv.FormatInt(j.summary.Last.ID, 10)), row.LastHref
	}
	return facts
}

func runForm(here locale.Locale, job *reconcile.Job) views.RunForm {
	from, to := job.LastWindow(here.Now)
	f := views.RunForm{From: fieldTime(here, from), To: fieldTime(here, to), Zone: job.Zone.String(), Key: job.Key,
		Rule: here.Text("jobs.run_rule", "grace", here.Duration(job.Window.Grace)), Plans: []ui.Option{{Label: here.Text("plan.kind.auto")}}}
	for _, plan := range []string{reconcile.PlanMerge, reconcile.PlanJoin} {
		f.Plans = append(f.Plans, ui.Option{Value: plan, Label: here.Text("plan.kind." + plan)})
	}
	return f
}

// fieldTime is an instant as a field for date and time holds it.
func fieldTime(here locale.Locale, t time.Time) string {
	return t.In(here.Zone).Format("2006-01-02T15:04")
}

func (s *Server) fillRuns(c echo.Context, v *views.Job, q jobQuery) error {
	here := localeOf(c)
	runs, more, err := s.Reconcile.Runs.List(c.Request().Context(), q.filter)
	if err != nil {
		return err
	}
	for _, r := range runs {
		v.Runs = append(v.Runs, runRow(here, r))
	}
	states := ui.Choice{Name: "state", Label: here.Text("letter.state"), Value: q.state}
	for _, state := range []string{"queued", "running", "complete", "partial", "failed"} {
		states.Options = append(states.Options, ui.Option{Value: state, Label: here.Text("state.run." + state)})
	}
	signs := ui.Choice{Name: "sign_off", Label: here.Text("sign.title"), Value: q.sign}
	for _, sign := range []string{"waiting", "signed", "reopened", "superseded"} {
		signs.Options = append(signs.Options, ui.Option{Value: sign, Label: here.Text("state.run." + sign)})
	}
	v.Filter = views.FilterBar{Action: jobHref(q.name), Choices: []ui.Choice{states, signs}}
	v.Empty = views.Empty{Text: here.Text("jobs.no_runs")}
	if q.state != "" || q.sign != "" {
		v.Filter.Clear = jobHref(q.name)
		v.Empty = views.Empty{Text: here.Text("jobs.no_runs_match"), Href: v.Filter.Clear, Link: here.Text("filter.clear")}
	}
	next := nextNumber(runs, more, func(r reconcile.Run) int64 { return r.ID })
	v.Pager = firstPager(here, q.address("runs", ""), cursorText(q.filter.Before), next, func(cursor string) string { return q.address("runs", cursor) })
	return nil
}

func runRow(here locale.Locale, r reconcile.Run) views.RunRow {
	row := views.RunRow{ID: r.ID, Href: runHref(r.ID), Kind: here.Text("run.kind." + runKinds[r.Kind]), State: runStateWord(r), By: byWord(here, r.AskedBy),
		Window: windowText(here, r.From, r.To), Matched: "–", Took: "–", Asked: here.Short(r.AskedAt)}
	if r.Kind == reconcile.OfKeys {
		row.Window = keysText(here, r.Keys)
	} else if r.State.Finished() {
		row.Matched, _ = matchedText(here, r)
	}
	if r.StartedAt != nil && r.FinishedAt != nil {
		row.Took = tookText(here, r.FinishedAt.Sub(*r.StartedAt))
	}
	if r.State == reconcile.Failed || r.State == reconcile.Partial {
		row.Why = deref(r.Error)
	}
	for _, currency := range currencies(r.AtRisk) {
		row.AtRisk = append(row.AtRisk, money(r.AtRisk[currency].Amount, currency))
	}
	return row
}

func (s *Server) fillDefinition(c echo.Context, v *views.Job, q jobQuery) error {
	here := localeOf(c)
	all, err := s.Reconcile.Jobs.Versions(c.Request().Context(), q.name)
	if err != nil {
		return err
	}
	current, err := s.Reconcile.Jobs.Current(c.Request().Context(), q.name)
	if err != nil {
		return err
	}
	if q.version == 0 {
		q.version = current.Version
	}
	for i, d := range all {
		name := "v" + strconv.Itoa(d.Version)
		v.Versions = append(v.Versions, views.VersionRow{Name: name, Hash: hex.EncodeToString(d.Hash), By: byLoader(here, d.LoadedBy), At: here.Short(d.LoadedAt),
			Href: address(jobHref(q.name), "tab", "definition", "version", strconv.Itoa(d.Version)), Current: d.Version == current.Version, Shown: d.Version == q.version})
		if d.Version == q.version {
			v.Shown = versionView(here, d, all[i+1:])
		}
	}
	if v.Shown == nil {
		return fmt.Errorf("%w: %s has no version %d", reconcile.ErrNoJob, q.name, q.version)
	}
	return nil
}

// byLoader is who brought a version: a person, or the folder of files.
func byLoader(here locale.Locale, name string) string {
	if name == access.System().User {
		return here.Text("jobs.by_file")
	}
	return name
}

// versionView is a version and what it changed of the one before.
func versionView(here locale.Locale, d reconcile.Definition, before []reconcile.Definition) *views.VersionView {
	v := &views.VersionView{Title: here.Text("jobs.version", "n", "v"+strconv.Itoa(d.Version)), Lines: codeLines(d.Text)}
	if len(before) > 0 {
		v.Since = here.Text("jobs.changed_since", "n", "v"+strconv.Itoa(before[0].Version))
		v.Diff = diffLinesOf([]byte(before[0].Text), []byte(d.Text))
	}
	return v
}

// codeLines numbers the lines of a text.
func codeLines(text string) []views.CodeLine {
	var lines []views.CodeLine
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		lines = append(lines, views.CodeLine{No: strconv.Itoa(i + 1), Tokens: []views.Token{{Text: line}}})
	}
	return lines
}

// jobPause stops a job's schedule by a form, or lets it go on.
func (s *Server) jobPause(paused bool) echo.HandlerFunc {
	return func(c echo.Context) error {
		name, err := jobName(c)
		if err != nil {
			return err
		}
		reason := c.FormValue("reason")
		if why := badText(reason); why != "" {
			return invalid("reason", why)
		}
		if err := s.Reconcile.Jobs.Pause(c.Request().Context(), actorBecause(c, reason), name, paused); err != nil {
			return s.refuseFinance(c, jobHref(name), reason, err)
		}
		return c.Redirect(http.StatusSeeOther, jobHref(name))
	}
}
