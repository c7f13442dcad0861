package web

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// finance is what the first page says of money.
type finance struct {
	jobs  []jobStanding
	sign  []reconcile.Run      // that this person may sign
	props []reconcile.Proposal // changes of jobs that this person may decide about
	mine  []reconcile.Break
	more  bool // of mine
	risks map[string]reconcile.Line
	open  int64
}

// mostWaiting bounds how many things of a kind the first page lists.
const mostWaiting = 20

func (s *Server) finance(ctx context.Context, actor access.Actor) (f finance, err error) {
	if f.jobs, err = s.jobStandings(ctx); err != nil {
		return f, fmt.Errorf("read jobs: %w", err)
	}
	f.risks = map[string]reconcile.Line{}
	for _, j := range f.jobs {
		f.open += j.stands.Open()
		for currency, line := range j.stands.AtRisk {
			have := f.risks[currency]
			f.risks[currency] = reconcile.Line{Keys: have.Keys + line.Keys, Amount: have.Amount.Add(line.Amount)}
		}
	}
	if actor.May(access.SignOff) {
		waiting, _, err := s.Reconcile.Runs.List(ctx, reconcile.RunFilter{
			States: []reconcile.RunState{reconcile.Complete}, Signs: []reconcile.SignState{reconcile.SignWaiting, reconcile.SignReopened}, Limit: mostWaiting,
		})
		if err != nil {
			return f, fmt.Errorf("list runs that wait: %w", err)
		}
		f.sign = slices.DeleteFunc(waiting, func(r reconcile.Run) bool { return r.AskedBy == actor.User })
	}
	if actor.May(access.ApproveJob) {
		waiting, _, err := s.proposals().List(ctx, reconcile.ProposalFilter{State: reconcile.ProposalWaiting, Limit: mostWaiting})
		if err != nil {
			return f, err
		}
		f.props = slices.DeleteFunc(waiting, func(p reconcile.Proposal) bool { return p.MadeBy == actor.User })
	}
	f.mine, f.more, err = s.Reconcile.Breaks.List(ctx, reconcile.BreakFilter{
		Owner: actor.User, States: []reconcile.BreakState{reconcile.Open, reconcile.Assigned, reconcile.Reopened}, Limit: 99,
	}, s.Clock())
	if err != nil {
		return f, fmt.Errorf("list breaks of %s: %w", actor.User, err)
	}
	return f, nil
}

// notKnown counts jobs of which nobody knows whether they agree: never run, not
// whole the last time, or late.
func (f finance) notKnown(here locale.Locale) (n int) {
	for _, j := range f.jobs {
		if j.summary.Last == nil || j.summary.Last.State != reconcile.Complete || j.stands.Overdue(here.Now) > overdueSlack {
			n++
		}
	}
	return n
}

// oldest is the age of the oldest open break in words.
func (f finance) oldest(here locale.Locale) string {
	var age string
	var most int64
	for _, j := range f.jobs {
		if at := j.stands.Oldest; at != nil && int64(here.Now.Sub(*at)) >= most {
			most, age = int64(here.Now.Sub(*at)), ageText(here, here.Now.Sub(*at))
		}
	}
	return age
}

// unreconciledAnswer shows the first currency large; the others are never added
// to it. It is green only where every job is known to agree.
func unreconciledAnswer(here locale.Locale, f finance) views.Answer {
	a := views.Answer{Label: here.Text("overview.unreconciled"), Href: "/breaks", Hue: "go", Icon: "circle-check", Value: "0", Unit: here.Text("overview.breaks_unit", "n", 0)}
	unknown := f.notKnown(here)
	of := currencies(f.risks)
	switch {
	case len(of) > 0:
		first := of[0]
		a.Hue, a.Icon, a.Value, a.Unit = "ask", "scale", amountText(f.risks[first].Amount, first), first
		a.Evidence = here.Text("overview.unreconciled_evidence", "n", f.open, "age", f.oldest(here))
		for _, c := range of[1:] {
			a.Evidence = here.Text("overview.unreconciled_more", "amount", money(f.risks[c].Amount, c)) + here.Text("list.comma") + a.Evidence
		}
	case len(f.jobs) == 0:
		a.Hue, a.Icon, a.Value, a.Unit, a.Href = "hold", "help", here.Text("overview.lost_yet"), "", "/reconciliations"
		a.Evidence = here.Text("overview.unreconciled_none_yet")
	case unknown > 0:
		a.Hue, a.Icon, a.Value, a.Unit, a.Href = "hold", "help", here.Text("run.not_known"), "", "/reconciliations"
		a.Evidence = here.Text("overview.unreconciled_unknown", "n", unknown)
	default:
		a.Evidence = here.Text("overview.unreconciled_calm", "n", len(f.jobs))
	}
	if len(of) > 0 && unknown > 0 {
		a.Evidence += here.Text("list.clause") + here.Text("overview.unreconciled_unknown", "n", unknown)
	}
	return a
}

// financeTasks are sign-offs and breaks that wait for this person.
func financeTasks(here locale.Locale, f finance, actor access.Actor) []views.Task {
	var tasks []views.Task
	for _, r := range f.sign {
		tasks = append(tasks, signTask(here, f, r))
	}
	for _, p := range f.props {
		tasks = append(tasks, views.Task{
			Icon: "user-check", Title: here.Text("overview.job_change", "job", p.Job), Href: proposalHref(p.ID), Link: here.Text("overview.review"),
			Detail: here.Text("overview.job_change_detail", "by", p.MadeBy, "time", here.Relative(p.MadeAt)),
		})
	}
	if n := len(f.mine); n > 0 {
		count := strconv.Itoa(n)
		if f.more {
			count += "+"
		}
		tasks = append(tasks, views.Task{
			Icon: "unlink", Title: here.Text("overview.mine", "n", n, "count", count), Href: address("/breaks", "owner", actor.User),
			Link: here.Text("overview.review"), Detail: here.Text("overview.mine_detail", "amounts", moneyList(here, grossOf(f.mine))),
		})
	}
	return tasks
}

func signTask(here locale.Locale, f finance, r reconcile.Run) views.Task {
	id := strconv.FormatInt(r.ID, 10)
	for _, j := range f.jobs { // finance counts by the job's zone
		if j.summary.Name == r.Job && j.def != nil {
			here.Zone = j.def.Zone
		}
	}
	detail := here.Text("overview.sign_detail", "window", windowText(here, r.From, r.To), "zone", here.Zone.String(), "by", r.AskedBy)
	if len(r.AtRisk) > 0 {
		detail += here.Text("list.clause") + here.Text("overview.sign_risk", "amounts", moneyList(here, r.AtRisk))
	}
	return views.Task{
		Icon: "signature", Title: here.Text("overview.sign", "id", id, "job", r.Job), Href: runHref(r.ID), Link: here.Text("overview.review"), Detail: detail,
	}
}

// grossOf sums up breaks without signs, by currency.
func grossOf(breaks []reconcile.Break) map[string]reconcile.Line {
	lines := map[string]reconcile.Line{}
	for _, b := range breaks {
		have := lines[b.Currency]
		lines[b.Currency] = reconcile.Line{Keys: have.Keys + 1, Amount: have.Amount.Add(b.Amount.Abs())}
	}
	return lines
}

// mostJobs bounds the first page's card.
const mostJobs = 8

func jobCard(here locale.Locale, f finance) (rows []views.JobRow) {
	for _, j := range f.jobs[:min(len(f.jobs), mostJobs)] {
		if j.def != nil {
			rows = append(rows, jobRow(here, j))
		}
	}
	return rows
}
