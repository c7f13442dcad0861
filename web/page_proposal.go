package web

import (
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/reconcile"
	"oncemore/views"
	"oncemore/views/locale"
)

func proposalHref(id int64) string { return "/job-proposals/" + strconv.FormatInt(id, 10) }

func (s *Server) proposalPage(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	return s.showProposal(c, refused{})
}

func (s *Server) showProposal(c echo.Context, was refused) error {
	id, err := numberID(c, 64)
	if err != nil {
		return reconcile.ErrNoProposal
	}
	p, err := s.proposals().Get(c.Request().Context(), id)
	if err != nil {
		return err
	}
	v, err := s.proposalView(c, p)
	if err != nil {
		return err
	}
	v.Error, v.Reason = was.Text, was.Reason
	return render(c, was.status(), views.ProposalPage(v))
}

func (s *Server) proposalView(c echo.Context, p *reconcile.Proposal) (views.Proposal, error) {
	here, actor := localeOf(c), actorOf(c)
	title := here.Text("proposal.title", "job", p.Job)
	v := views.Proposal{
		Title: title,
		ID:    p.ID, State: p.State.String(), MadeBy: p.MadeBy, MadeAt: p.MadeAt, Why: p.Reason, Hash: hex.EncodeToString(p.Hash), Lines: codeLines(p.Text),
		DecidedBy: deref(p.DecidedBy), DecidedAt: p.DecidedAt, Decision: deref(p.Decision),
	}
	current, err := s.Reconcile.Jobs.Current(c.Request().Context(), p.Job)
	if err != nil && !errors.Is(err, reconcile.ErrNoJob) {
		return v, err
	}
	if err == nil {
		v.JobHref = jobHref(p.Job)
	}
	v.Frame = s.pageFrame(c, "reconciliations", title, financeCrumbs(here, p.Job, v.JobHref, title, "")...)
	if p.Base != nil {
		base, err := s.Reconcile.Jobs.Version(c.Request().Context(), p.Job, *p.Base)
		if err != nil {
			return v, err
		}
		v.Base, v.Diff = here.Text("proposal.changes", "n", "v"+strconv.Itoa(*p.Base)), diffLinesOf([]byte(base.Text), []byte(p.Text))
	}
	if p.State != reconcile.ProposalWaiting {
		return v, nil
	}
	v.Stale = p.Base != nil && current.Version != *p.Base || p.Base == nil && current.Version != 0
	s.proposalActs(here, actor, p, &v)
	if v.MayDecide {
		if job, err := reconcile.ParseJob(p.Job+".yaml", []byte(p.Text)); err == nil {
			v.Preview = s.previewView(c, job)
		}
	}
	return v, nil
}

// proposalActs says what this person may do: nobody decides about their own.
func (s *Server) proposalActs(here locale.Locale, actor access.Actor, p *reconcile.Proposal, v *views.Proposal) {
	switch {
	case p.MadeBy == actor.User:
		v.MayWithdraw, v.Says = true, here.Text("proposal.own")
	case !actor.May(access.ApproveJob):
		v.Says = here.Text("may.approve_job", "roles", rolesOf(here, access.ApproveJob))
	default:
		v.MayDecide = true
	}
}

func (s *Server) proposalDecide(c echo.Context) error {
	id, err := numberID(c, 64)
	if err != nil {
		return reconcile.ErrNoProposal
	}
	reason := c.FormValue("reason")
	if why := badText(reason); why != "" {
		return invalid("reason", why)
	}
	ctx, actor := c.Request().Context(), actorBecause(c, reason)
	switch do := c.FormValue("do"); do {
	case "approve":
		hash, hexErr := hex.DecodeString(c.FormValue("hash"))
		if hexErr != nil {
			return invalid("hash", "is hexadecimal")
		}
		err = s.proposals().Approve(ctx, actor, id, hash)
	case "reject":
		err = s.proposals().Reject(ctx, actor, id)
	case "withdraw":
		err = s.proposals().Withdraw(ctx, actor, id)
	default:
		return invalid("do", "is one of approve, reject, withdraw")
	}
	if err == nil {
		return c.Redirect(http.StatusSeeOther, proposalHref(id))
	}
	was, ok := financeRefusal(localeOf(c), err, "")
	if !ok {
		return err
	}
	was.Reason = reason
	return s.showProposal(c, was)
}
