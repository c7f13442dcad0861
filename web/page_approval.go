package web

import (
	"context"
	"fmt"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/compensate"
	"oncemore/dlq"
	"oncemore/internal/access"
	"oncemore/internal/outboxes"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

// approvalsListed is how many of a kind the page lists; the rest is counted.
const approvalsListed = 10

// approvalsRead bounds how many of a kind are read.
const approvalsRead = 200

// approvalsPage is everything that waits for the reader to decide.
func (s *Server) approvalsPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	here := localeOf(c)
	v := views.Approvals{Frame: s.pageFrame(c, "approvals", here.Text("approvals.title"), views.Crumb{Label: here.Text("approvals.title")})}
	for _, find := range []func(echo.Context, *views.Approvals) error{s.compensationsToApprove, s.skipsToApprove, s.replaysToApprove, s.outboxToApprove, s.runsToSign, s.jobsToApprove} {
		if err := find(c, &v); err != nil {
			return err
		}
	}
	v.Empty = views.Empty{Text: here.Text("approvals.none")}
	return render(c, 200, views.ApprovalsPage(v))
}

// fileTask puts a task where its reader finds it: with what they asked for
// themselves, or with what they may decide about.
func fileTask(v *views.Approvals, g *views.ApprovalGroup, actor access.Actor, by string, decide access.Act, t views.Task) {
	switch {
	case by == actor.User:
		v.Asked = append(v.Asked, t)
	case actor.May(decide):
		g.Tasks = append(g.Tasks, t)
	}
}

func (s *Server) compensationsToApprove(c echo.Context, v *views.Approvals) error {
	here, actor := localeOf(c), actorOf(c)
	b, err := s.Compensations.Batch(c.Request().Context(), actor, compensate.Filter{})
	if err != nil {
		return fmt.Errorf("compensations to approve: %w", err)
	}
	for _, r := range b.Own[:min(len(b.Own), approvalsListed)] {
		v.Asked = append(v.Asked, compensationTask(here, r))
	}
	if !actor.May(access.ApproveCompensation) || len(b.Yours) == 0 {
		return nil
	}
	g := views.ApprovalGroup{Title: here.Text("approvals.compensations", "n", len(b.Yours), "amounts", totalsText(here, b.Totals)), All: "/compensations?state=awaiting_approval", Link: here.Text("approvals.all")}
	for _, r := range b.Yours {
		g.Tasks = append(g.Tasks, compensationTask(here, r))
	}
	if len(b.Yours) > 1 {
		g.Bulk, g.Label = address("/compensations/approve", "all", "1", "filter", "state=awaiting_approval"), here.Text("approvals.bulk", "n", len(b.Yours))
	}
	v.Add(g, approvalsListed)
	return nil
}

func compensationTask(here locale.Locale, r compensate.Row) views.Task {
	row := compensationRow(here, r)
	return views.Task{
		Icon: "arrow-back-up", Title: row.Name + " · " + row.Effect, Href: row.Href, Link: here.Text("overview.review"),
		Detail: here.Text("approvals.asked", "by", row.AskedBy, "time", here.Relative(r.AskedAt), "reason", r.Reason),
	}
}

// skipsToApprove are steps of sagas that somebody else asked to leave out.
func (s *Server) skipsToApprove(c echo.Context, v *views.Approvals) error {
	here, actor := localeOf(c), actorOf(c)
	waiting, _, err := s.Compensations.Skips(c.Request().Context(), approvalsRead)
	if err != nil {
		return err
	}
	g := views.ApprovalGroup{Title: here.Text("approvals.skips"), All: "/compensations?state=needs_attention", Link: here.Text("approvals.all")}
	for _, skip := range waiting {
		fileTask(v, &g, actor, skip.By, access.ApproveCompensation, skipTask(here, skip))
	}
	v.Add(g, approvalsListed)
	return nil
}

func skipTask(here locale.Locale, skip compensate.Skip) views.Task {
	id := strconv.FormatInt(skip.Compensation, 10)
	return views.Task{
		Icon: "user-check", Title: here.Text("approvals.skip", "id", id, "step", skip.Step), Href: "/sagas/" + id, Link: here.Text("overview.review"),
		Detail: here.Text("saga.skip_asked", "by", skip.By, "reason", skip.Reason),
	}
}

// jobsToApprove are changes of jobs that somebody else proposed.
func (s *Server) jobsToApprove(c echo.Context, v *views.Approvals) error {
	here, actor := localeOf(c), actorOf(c)
	waiting, _, err := s.proposals().List(c.Request().Context(), reconcile.ProposalFilter{State: reconcile.ProposalWaiting, Limit: approvalsRead})
	if err != nil {
		return fmt.Errorf("changes of jobs to approve: %w", err)
	}
	g := views.ApprovalGroup{Title: here.Text("approvals.jobs"), All: "/reconciliations", Link: here.Text("nav.reconciliations")}
	for _, p := range waiting {
		task := views.Task{
			Icon: "user-check", Title: here.Text("overview.job_change", "job", p.Job), Href: proposalHref(p.ID), Link: here.Text("overview.review"),
			Detail: here.Text("approvals.asked", "by", p.MadeBy, "time", here.Relative(p.MadeAt), "reason", p.Reason),
		}
		fileTask(v, &g, actor, p.MadeBy, access.ApproveJob, task)
	}
	v.Add(g, approvalsRead) // there is no other list of them
	return nil
}

func (s *Server) replaysToApprove(c echo.Context, v *views.Approvals) error {
	here, actor := localeOf(c), actorOf(c)
	if s.Replays == nil {
		return nil
	}
	page, err := s.Replays.List(c.Request().Context(), dlq.ReplayFilter{State: dlq.AwaitingApproval}, dlq.Page{Limit: approvalsRead})
	if err != nil {
		return fmt.Errorf("replays to approve: %w", err)
	}
	g := views.ApprovalGroup{Title: here.Text("approvals.replays"), All: "/replays?state=awaiting_approval", Link: here.Text("approvals.all")}
	for _, r := range page.Items {
		fileTask(v, &g, actor, r.CreatedBy, access.ApproveReplay, approvalTask(here, r))
	}
	v.Add(g, approvalsListed)
	return nil
}

// outboxToApprove are rows that somebody else asked to skip.
func (s *Server) outboxToApprove(c echo.Context, v *views.Approvals) error {
	here, actor := localeOf(c), actorOf(c)
	if s.Outboxes == nil {
		return nil
	}
	g := views.ApprovalGroup{Title: here.Text("approvals.outbox"), All: "/outbox", Link: here.Text("nav.outbox")}
	for _, box := range s.Outboxes.All() {
		open, err := s.Outboxes.Open(c.Request().Context(), box.Name())
		if err != nil {
			return fmt.Errorf("skips of %s: %w", box.Name(), err)
		}
		for _, command := range open {
			if command.State != outboxes.Asked {
				continue
			}
			task := outboxTask(here, command)
			fileTask(v, &g, actor, command.AskedBy, access.ApproveOutbox, task)
		}
	}
	v.Add(g, approvalsListed)
	return nil
}

func outboxTask(here locale.Locale, command outboxes.Command) views.Task {
	return views.Task{
		Icon: "send", Title: here.Text("approvals.skip_row", "event", command.EventID), Href: address("/outbox", "outbox", command.Outbox), Link: here.Text("overview.review"),
		Detail: here.Text("approvals.asked", "by", command.AskedBy, "time", here.Relative(command.AskedAt), "reason", command.Reason),
	}
}

// runsToSign are runs that somebody else prepared.
func (s *Server) runsToSign(c echo.Context, v *views.Approvals) error {
	here, actor := localeOf(c), actorOf(c)
	if !actor.May(access.SignOff) {
		return nil
	}
	waiting, _, err := s.Reconcile.Runs.List(c.Request().Context(), reconcile.RunFilter{
		States: []reconcile.RunState{reconcile.Complete}, Signs: []reconcile.SignState{reconcile.SignWaiting, reconcile.SignReopened}, Limit: approvalsRead})
	if err != nil {
		return fmt.Errorf("runs to sign: %w", err)
	}
	g := views.ApprovalGroup{Title: here.Text("approvals.runs"), All: "/reconciliations", Link: here.Text("nav.reconciliations")}
	for _, r := range waiting {
		if r.AskedBy == actor.User {
			continue
		}
		id := strconv.FormatInt(r.ID, 10)
		g.Tasks = append(g.Tasks, views.Task{Icon: "signature", Title: here.Text("approvals.run", "id", id, "job", r.Job), Href: "/runs/" + id + "#sign-off", Link: here.Text("overview.review"),
			Detail: here.Text("approvals.window", "from", here.Short(r.From), "to", here.Short(r.To))})
	}
	v.Add(g, approvalsListed)
	return nil
}

// waitingCompensations is what the navigation counts: what needs attention, and
// what waits for an approval.
func (s *Server) waitingCompensations(ctx context.Context) (attention, waiting *int) {
	if s.Compensations == nil {
		return nil, nil
	}
	for state, into := range map[compensate.State]**int{compensate.NeedsAttention: &attention, compensate.Proposed: &waiting} {
		n, err := s.Compensations.Count(ctx, compensate.Filter{States: []compensate.State{state}})
		if err != nil {
			s.Logger.Warn("count compensations for the navigation", "error", err)
			return nil, nil
		}
		*into = &n
	}
	return attention, waiting
}
