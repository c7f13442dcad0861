package web

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"github.com/labstack/echo/v4"

	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
	"oncemore/views/ui"
)

// runFacts is all that a run's page reads.
type runFacts struct {
	run      *reconcile.Run
	job      *reconcile.Job
	before   *reconcile.Run // nil: the first of its job
	by       *reconcile.Run // that superseded it; nil: none
	figures  []reconcile.RunFigure
	segments []reconcile.Segment
	log      []reconcile.LogLine
	signed   []reconcile.Signature
	events   []reconcile.EventRisk
	letters  []dlq.EventLetter // of those events
}

func (s *Server) runPage(c echo.Context) error { return s.showRun(c, refused{}) }

func (s *Server) showRun(c echo.Context, was refused) error {
	id, err := numberID(c, 64)
	if err != nil {
		return reconcile.ErrNoRun
	}
	q, err := runQueryOf(parseQuery(c), id)
	if err != nil {
		return err
	}
	f, err := s.runFacts(c.Request().Context(), id)
	if err != nil {
		return err
	}
	here := inZone(c, f.job.Zone)
	v := s.runView(c, here, f)
	v.Error = was.Text
	if f.run.State.Finished() {
		if err := s.fillRun(c, &v, f, q); err != nil {
			return err
		}
	}
	v.Sign = s.signOffView(here, actorOf(c), f, was)
	return render(c, was.status(), views.RunPage(v))
}

func (s *Server) runFacts(ctx context.Context, id int64) (f runFacts, err error) {
	if f.run, err = s.Reconcile.Runs.Get(ctx, id); err != nil {
		return f, err
	}
	if f.job, _, err = s.jobAt(ctx, f.run.Job, f.run.Version); err != nil {
		return f, err
	}
	if f.segments, err = s.Reconcile.Runs.Segments(ctx, id); err != nil {
		return f, err
	}
	if f.log, err = s.Reconcile.Runs.Log(ctx, id); err != nil {
		return f, err
	}
	if !f.run.State.Finished() {
		return f, nil
	}
	if f.signed, err = s.Reconcile.Runs.Signatures(ctx, id); err != nil {
		return f, err
	}
	if f.figures, err = s.Reconcile.Breaks.Figures(ctx, id); err != nil {
		return f, err
	}
	if f.run.SupersededBy != nil {
		if f.by, err = s.Reconcile.Runs.Get(ctx, *f.run.SupersededBy); err != nil {
			return f, err
		}
	}
	if f.before, err = s.Reconcile.Runs.Before(ctx, f.run); errors.Is(err, reconcile.ErrNoRun) {
		err = nil
	}
	if err != nil {
		return f, err
	}
	return f, s.addLetters(ctx, &f)
}

// addLetters finds the letters of the events whose breaks the run found open.
func (s *Server) addLetters(ctx context.Context, f *runFacts) (err error) {
	if f.events, err = s.Reconcile.Breaks.Events(ctx, f.run.ID); err != nil || len(f.events) == 0 {
		return err
	}
	ids := make([]string, len(f.events))
	for i, e := range f.events {
		ids[i] = e.EventID
	}
	f.letters, err = s.Letters.OfEvents(ctx, ids)
	return err
}

func (s *Server) runView(c echo.Context, here locale.Locale, f runFacts) views.Run {
	r, number := f.run, strconv.FormatInt(f.run.ID, 10)
	v := views.Run{
		Frame: s.pageFrame(c, "reconciliations", here.Text("run.title", "id", number), financeCrumbs(here, r.Job, jobHref(r.Job), here.Text("run.title", "id", number), "")...),
		ID:    r.ID, Job: r.Job, JobHref: jobHref(r.Job), State: runStateWord(*r), Says: joined(here, runSentences(here, f)), Banner: runBanner(here, f),
		MayRun: actorOf(c).May(access.RunJob), Segments: segmentRows(here, f.segments),
	}
	for _, l := range f.log {
		v.Log = append(v.Log, views.LogRow{At: l.At, Text: l.Text})
	}
	if !r.State.Finished() {
		v.Progress = ptr(runProgress(here, r, f.segments))
		return v
	}
	if r.Kind != reconcile.OfKeys && r.Sign != reconcile.Signed {
		v.Again = &views.RunAgain{Action: jobHref(r.Job) + "/runs", From: r.From.UTC().Format(time.RFC3339Nano), To: r.To.UTC().Format(time.RFC3339Nano)}
	}
	v.Exports = exportLinks(here, runHref(r.ID)+"/export", nil)
	return v
}

// runSentences are the facts under the title.
func runSentences(here locale.Locale, f runFacts) []string {
	r := f.run
	var all []string
	if r.Kind == reconcile.OfKeys {
		all = append(all, here.Text("run.fact_keys", "n", len(r.Keys), "keys", keysText(here, r.Keys)))
	} else {
		all = append(all, here.Text("run.fact_window", "window", windowText(here, r.From, r.To), "zone", here.Zone.String()))
	}
	asked := here.Text("run.fact_asked", "id", strconv.FormatInt(r.ID, 10), "kind", here.Text("run.kind."+runKinds[r.Kind]), "by", byWord(here, r.AskedBy), "time", here.Short(r.AskedAt))
	if r.StartedAt != nil && r.FinishedAt != nil {
		asked += here.Text("sentence.gap") + here.Text("run.fact_took", "time", r.StartedAt.In(here.Zone).Format("15:04:05"), "duration", tookText(here, r.FinishedAt.Sub(*r.StartedAt)))
	}
	all = append(all, asked, here.Text("run.fact_plan", "version", r.Version, "plan", r.Plan, "why", planWhy(here, r.PlanReason)))
	if r.Seal != nil {
		all = append(all, here.Text("run.fact_seal", "hash", shortHash(hex.EncodeToString(r.Seal))))
	}
	return all
}

// byWord is the name of who asked; the console itself is the schedule.
func byWord(here locale.Locale, name string) string {
	if name == access.System().User {
		return here.Text("run.by_schedule")
	}
	return name
}

func keysText(here locale.Locale, keys [][]string) string {
	var all []string
	for _, key := range keys[:min(len(keys), 5)] {
		all = append(all, strings.Join(key, " · "))
	}
	if len(keys) > 5 {
		all = append(all, "…")
	}
	return strings.Join(all, here.Text("list.comma"))
}

// runBanner is what has to be known before any number of the run.
func runBanner(here locale.Locale, f runFacts) *views.RunBanner {
	r := f.run
	switch {
	case r.State == reconcile.Failed:
		return &views.RunBanner{Hue: "bad", Icon: "circle-x", Text: here.Text("run.banner_failed"), Own: deref(r.Error)}
	case r.State == reconcile.Partial:
		return &views.RunBanner{Hue: "hold", Icon: "alert-triangle", Text: partialText(here, f), Own: deref(r.Error)}
	case f.by != nil:
		return &views.RunBanner{Hue: "a", Icon: "history", Text: supersededText(here, f), Href: runHref(f.by.ID), Link: here.Text("run.open", "id", strconv.FormatInt(f.by.ID, 10))}
	case r.RecheckOf != nil:
		id := strconv.FormatInt(*r.RecheckOf, 10)
		return &views.RunBanner{Icon: "refresh", Text: here.Text("run.banner_recheck", "id", id), Href: runHref(*r.RecheckOf), Link: here.Text("run.open", "id", id)}
	}
	return nil
}

// partialText says how much is missing.
func partialText(here locale.Locale, f runFacts) string {
	missing, cut := missingSegments(f.segments)
	switch {
	case missing > 0:
		return here.Text("run.banner_partial", "n", missing, "all", len(f.segments))
	case cut > 0:
		return here.Text("run.banner_cut", "n", cut, "limit", f.job.Limits.Breaks)
	}
	return here.Text("run.banner_partial_other")
}

func missingSegments(all []reconcile.Segment) (missing, cut int) {
	for _, s := range all {
		if s.State != 1 {
			missing++
		} else if s.Cut {
			cut++
		}
	}
	return missing, cut
}

// supersededText names what changed and by how much.
func supersededText(here locale.Locale, f runFacts) string {
	var changes []string
	for p := range f.run.Tally.Control {
		was, is := f.run.Tally.Control[p], f.by.Tally.Control[p]
		for _, currency := range currencies(was, is) {
			rows, amount := is[currency].Rows-was[currency].Rows, is[currency].Amount.Sub(was[currency].Amount)
			if rows != 0 || !amount.IsZero() {
				changes = append(changes, here.Text("run.change", "side", here.Text("side."+reconcile.Party(p).String()), "rows", signed(locale.Number(rows)), "amount", signed(money(amount, currency))))
			}
		}
	}
	if len(changes) == 0 {
		changes = append(changes, here.Text("run.change_lines"))
	}
	return here.Text("run.banner_superseded", "id", strconv.FormatInt(f.by.ID, 10), "changes", strings.Join(changes, here.Text("list.comma")))
}

// signed puts a plus before what has no minus.
func signed(number string) string {
	if strings.HasPrefix(number, "−") {
		return number
	}
	return "+" + number
}

func segmentRows(here locale.Locale, all []reconcile.Segment) []views.SegmentRow {
	var rows []views.SegmentRow
	for _, s := range all {
		row := views.SegmentRow{No: strconv.Itoa(s.No + 1), Window: windowText(here, s.From, s.To), Tries: s.Tries, Why: deref(s.Error), Took: "–"}
		row.State = here.Text([...]string{"segment.waiting", "segment.done", "segment.given_up"}[s.State])
		if s.Cut {
			row.State = here.Text("segment.cut")
		}
		if s.TookMs != nil {
			row.Took = tookText(here, time.Duration(*s.TookMs)*time.Millisecond)
		}
		rows = append(rows, row)
	}
	return rows
}

func runProgress(here locale.Locale, r *reconcile.Run, segments []reconcile.Segment) views.RunProgress {
	p := views.RunProgress{Path: runHref(r.ID), State: r.State.String(), All: len(segments), UpdatedAt: here.Now, Plan: here.Text("run.plan", "plan", r.Plan, "why", planWhy(here, r.PlanReason))}
	for _, s := range segments {
		switch s.State {
		case 1:
			p.Done++
		case 2:
			p.GivenUp++
		}
	}
	switch {
	case r.State == reconcile.Queued:
		p.Says = here.Text("run.says_queued")
	case p.Done == p.All:
		p.Says = here.Text("run.says_last")
	default:
		p.Says = here.Text("run.says_running", "done", p.Done, "n", p.All)
	}
	if p.GivenUp > 0 {
		p.Says += here.Text("sentence.gap") + here.Text("run.says_given_up", "n", p.GivenUp)
	}
	return p
}

// runEvents streams the progress of a run at work; its end loads the page anew.
func (s *Server) runEvents(c echo.Context) error {
	id, err := s.runOf(c)
	if err != nil {
		return err
	}
	here := localeOf(c)
	return s.stream(c, func(ctx context.Context) (string, templ.Component, bool, error) {
		r, err := s.Reconcile.Runs.Get(ctx, id)
		if err != nil {
			return "", nil, false, err
		}
		segments, err := s.Reconcile.Runs.Segments(ctx, id)
		if err != nil {
			return "", nil, false, err
		}
		now := here
		now.Now = s.Clock()
		p := runProgress(now, r, segments)
		return fmt.Sprint(r.State, p.Done, p.GivenUp), views.RunProgressCard(p), r.State.Finished(), nil
	})
}

// runAsk asks for a run by a form: the window of a run once more, or one that
// was typed in the job's zone.
func (s *Server) runAsk(c echo.Context) error {
	name, err := jobName(c)
	if err != nil {
		return err
	}
	job, _, err := s.jobAt(c.Request().Context(), name, 0)
	if err != nil {
		return err
	}
	q, err := runRequest(c, job)
	var id int64
	if err == nil {
		id, err = s.Reconcile.Runs.Ask(c.Request().Context(), actorOf(c), q)
	}
	if err != nil {
		return s.refuseFinance(c, jobHref(name), "", err)
	}
	return c.Redirect(http.StatusSeeOther, runHref(id))
}

// runRequest is a run of one key, or of a window.
func runRequest(c echo.Context, job *reconcile.Job) (q reconcile.Request, err error) {
	form, err := c.FormParams()
	if err != nil {
		return q, err
	}
	q = reconcile.Request{Job: job.Name, Plan: form.Get("plan")}
	if key := form["key"]; len(key) > 0 {
		for _, part := range key {
			if why := badText(part); why != "" || part == "" {
				return q, invalid("key", "has to be text of up to 2,000 bytes in every column")
			}
		}
		if len(key) != len(job.Key) {
			return q, invalid("key", "has as many parts as the job's key")
		}
		q.Keys = [][]string{key}
		return q, nil
	}
	if q.From, err = formInstant("from", form.Get("from"), job.Zone); err == nil {
		q.To, err = formInstant("to", form.Get("to"), job.Zone)
	}
	return q, err
}

// formInstant reads what a form's field for date and time holds, by the zone's
// clock, or an instant with an offset.
func formInstant(field, text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, invalid(field, "is a date and time such as 2026-11-30T13:00")
	}
	return t, nil
}

// refuseFinance shows the form's page again with what was wrong, else the
// error's own page.
func (s *Server) refuseFinance(c echo.Context, from, reason string, err error) error {
	here := localeOf(c)
	was, ok := refusal(here, err)
	if !ok {
		was, ok = financeRefusal(here, err, "")
	}
	if !ok {
		return err
	}
	return s.refuseAs(c, from, reason, was, err)
}

func runTabs(here locale.Locale, q runQuery, figures []reconcile.RunFigure) []ui.Tab {
	open, fresh, explained, closed := int64(0), int64(0), int64(0), int64(0)
	types := map[string]int64{}
	for _, f := range figures {
		switch f.What {
		case reconcile.SaidWhole:
			closed += f.Items
			continue
		case reconcile.SaidExplained:
			explained += f.Items
			continue
		}
		open += f.Items
		types[string(f.Type)] += f.Items
		if f.What != reconcile.SaidThere {
			fresh += f.Items
		}
	}
	tab := func(label, what, kind string, n int64) ui.Tab {
		return ui.Tab{Label: label, Count: locale.Number(n), Href: q.with(what, kind).address("") + "#breaks", Current: q.what == what && q.kind == kind}
	}
	tabs := []ui.Tab{tab(here.Text("run.tab_open"), "open", "", open), tab(here.Text("run.tab_new"), "new", "", fresh)}
	for _, kind := range ui.BreakTypes {
		if types[kind] > 0 {
			tabs = append(tabs, tab(here.Text("break.type."+kind), "open", kind, types[kind]))
		}
	}
	return append(tabs, tab(here.Text("state.break.explained"), "explained", "", explained), tab(here.Text("run.tab_closed"), "closed", "", closed))
}
