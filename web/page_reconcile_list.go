package web

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// jobStanding is a job as list and page show it.
type jobStanding struct {
	summary reconcile.JobSummary
	stands  reconcile.Standing // zero where its file is gone
	def     *reconcile.Job     // nil: it does not load any more
	signed  time.Time          // zero: nothing is
	trend   []reconcile.Point
}

// jobStandings reads all jobs with what is known of each.
func (s *Server) jobStandings(ctx context.Context) ([]jobStanding, error) {
	all, err := s.Reconcile.Jobs.List(ctx, s.Reconcile.Runs)
	if err != nil {
		return nil, err
	}
	stands, err := s.Reconcile.Jobs.Standings(ctx)
	if err != nil {
		return nil, err
	}
	signed, err := s.Reconcile.Jobs.SignedUntil(ctx)
	if err != nil {
		return nil, err
	}
	byName := map[string]reconcile.Standing{}
	for _, st := range stands {
		byName[st.Job] = st
	}
	var jobs []jobStanding
	for _, j := range all {
		one := jobStanding{summary: j, stands: byName[j.Name], signed: signed[j.Name]}
		if one.def, _, err = s.jobAt(ctx, j.Name, 0); err != nil {
			return nil, err
		}
		if one.trend, err = s.Reconcile.Jobs.Trend(ctx, j.Name, trendLength); err != nil {
			return nil, err
		}
		jobs = append(jobs, one)
	}
	return jobs, nil
}

func (s *Server) jobListPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	here := localeOf(c)
	all, err := s.jobStandings(c.Request().Context())
	if err != nil {
		return err
	}
	v := views.JobList{
		Frame: s.pageFrame(c, "reconciliations", here.Text("jobs.title"), financeCrumbs(here)...),
		Empty: here.Text("jobs.none"), Headline: jobsHeadline(here, all),
	}
	if actorOf(c).May(access.ProposeJob) {
		v.New = "/reconciliations/new"
		v.Templates = []views.OutLink{{Label: here.Text("jobs.new"), Href: v.New}}
	}
	for _, j := range all {
		v.Rows = append(v.Rows, jobRow(here, j))
	}
	return render(c, http.StatusOK, views.JobListPage(v))
}

// jobsHeadline is the answer: which are broken, late or wait, else that none is.
func jobsHeadline(here locale.Locale, all []jobStanding) string {
	var failed, late, waiting, unknown int
	for _, j := range all {
		switch {
		case j.summary.Last == nil:
			unknown++
		case j.summary.Last.State == reconcile.Failed, j.summary.Last.State == reconcile.Partial:
			failed++
		}
		if j.stands.Overdue(here.Now) > overdueSlack {
			late++
		}
		waiting += int(j.summary.Waiting)
	}
	var parts []string
	for _, p := range []struct {
		key string
		n   int
	}{{"jobs.says_failed", failed}, {"jobs.says_late", late}, {"jobs.says_waiting", waiting}, {"jobs.says_unknown", unknown}} {
		if p.n > 0 {
			parts = append(parts, here.Text(p.key, "n", p.n))
		}
	}
	switch {
	case len(all) == 0:
		return here.Text("jobs.says_none")
	case len(parts) == 0:
		return here.Text("jobs.says_calm", "n", len(all))
	}
	return joined(here, parts)
}

// joined puts sentences one after the other.
func joined(here locale.Locale, sentences []string) string {
	text := ""
	for i, s := range sentences {
		if i > 0 {
			text += here.Text("sentence.gap")
		}
		text += s
	}
	return text
}

// overdueSlack is how late a run may be before anybody calls it late: it has to
// be carried out, too.
const overdueSlack = time.Minute

// jobRow is one job, its times in its own zone.
func jobRow(here locale.Locale, j jobStanding) views.JobRow {
	here.Zone = j.def.Zone
	row := views.JobRow{
		Name: j.summary.Name, Href: jobHref(j.summary.Name), Schedule: scheduleText(here, j.def), Open: locale.Number(j.summary.Open),
		OpenHref: address("/breaks", "job", j.summary.Name), SignedUntil: here.Text("jobs.signed_nothing"), Matched: here.Text("run.not_known"), Unknown: true,
	}
	row.Next, row.NextBad = nextText(here, j)
	if j.summary.PausedBy != nil {
		row.Paused = here.Text("jobs.paused_by", "name", *j.summary.PausedBy)
	}
	if j.summary.GoneAt != nil {
		row.Gone = here.Text("jobs.gone", "time", here.Short(*j.summary.GoneAt))
	}
	if !j.signed.IsZero() {
		row.SignedUntil = here.Short(j.signed)
	}
	if j.summary.Waiting > 0 {
		row.Waiting = here.Text("jobs.waiting", "n", j.summary.Waiting)
	}
	for _, currency := range currencies(j.stands.AtRisk) {
		row.AtRisk = append(row.AtRisk, money(j.stands.AtRisk[currency].Amount, currency))
	}
	if j.stands.Oldest != nil {
		row.Oldest = here.Text("jobs.oldest", "age", ageText(here, here.Now.Sub(*j.stands.Oldest)))
	}
	if j.summary.Last != nil {
		lastRun(here, &row, *j.summary.Last)
	}
	for _, p := range j.trend[max(0, len(j.trend)-24):] {
		if p.Keys > 0 {
			row.Spark = append(row.Spark, int(p.Matched*10_000/p.Keys))
		}
	}
	return row
}

func lastRun(here locale.Locale, row *views.JobRow, r reconcile.Run) {
	row.LastHref, row.LastState, row.LastWindow = runHref(r.ID), runStateWord(r), windowText(here, r.From, r.To)
	if r.State == reconcile.Failed || r.State == reconcile.Partial {
		row.LastWhy = deref(r.Error)
	}
	if r.State == reconcile.Complete {
		row.Matched, row.Unknown = matchedText(here, r)
	}
}

// matchedText is the matched share. Only a complete run knows it.
func matchedText(here locale.Locale, r reconcile.Run) (text string, unknown bool) {
	if r.State != reconcile.Complete || r.Tally == nil {
		return here.Text("run.not_known"), true
	}
	if share := locale.Share(r.Tally.Matched, r.Tally.Matched+r.Tally.Wrong()); share != "" {
		return share, false
	}
	return "–", false
}

func scheduleText(here locale.Locale, job *reconcile.Job) string {
	if job.Schedule == "" {
		return here.Text("jobs.by_hand", "zone", job.Zone.String())
	}
	return here.Text("jobs.schedule", "cron", job.Schedule, "zone", job.Zone.String())
}

// nextText is when the next run is due; true: it is late.
func nextText(here locale.Locale, j jobStanding) (string, bool) {
	switch due := j.stands.DueAt; {
	case j.def.Schedule == "":
		return here.Text("jobs.next_by_hand"), false
	case due == nil:
		return "–", false
	case j.stands.Overdue(here.Now) > overdueSlack:
		return here.Text("jobs.overdue", "duration", here.Duration(j.stands.Overdue(here.Now).Truncate(time.Minute))), true
	default:
		return here.Text("jobs.next_at", "time", here.Short(*due)), false
	}
}
