package web

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"oncemore/internal/access"
	"oncemore/reconcile"
)

// registerProposalAPI registers changes of jobs and decisions about them.
func (s *Server) registerProposalAPI(g *echo.Group) {
	g.GET("/job-proposals", s.apiProposals, s.allow(access.Read))
	g.POST("/job-proposals", s.apiPropose, s.allow(access.ProposeJob))
	g.GET("/job-proposals/:id", s.apiProposal, s.allow(access.Read))
	g.POST("/job-proposals/:id/approve", s.apiDecide(s.approveProposal), s.allow(access.ApproveJob))
	g.POST("/job-proposals/:id/reject", s.apiDecide(s.rejectProposal), s.allow(access.ApproveJob))
	g.POST("/job-proposals/:id/withdraw", s.apiDecide(s.withdrawProposal), s.allow(access.ProposeJob))
}

type jobProposalJSON struct {
	ID         int64      `json:"id"`
	Job        string     `json:"job"`
	Base       *int       `json:"base"` // the version that it changes; null: a new job
	Hash       string     `json:"hash"` // SHA-256 of the definition, in hex
	Definition string     `json:"definition"`
	State      string     `json:"state"`
	MadeBy     string     `json:"made_by"`
	MadeAt     *time.Time `json:"made_at"`
	Reason     string     `json:"reason"`
	DecidedBy  *string    `json:"decided_by"`
	DecidedAt  *time.Time `json:"decided_at"`
	Decision   *string    `json:"decision"`
	Version    *int       `json:"version"` // what it became
}

func jobProposalOf(p reconcile.Proposal) jobProposalJSON {
	return jobProposalJSON{
		ID: p.ID, Job: p.Job, Base: p.Base, Hash: hex.EncodeToString(p.Hash), Definition: p.Text, State: p.State.String(), MadeBy: p.MadeBy, MadeAt: instant(&p.MadeAt),
		Reason: p.Reason, DecidedBy: p.DecidedBy, DecidedAt: instant(p.DecidedAt), Decision: p.Decision, Version: p.Version,
	}
}

var proposalStates = map[string]reconcile.ProposalState{
	"waiting": reconcile.ProposalWaiting, "approved": reconcile.ProposalApproved, "rejected": reconcile.ProposalRejected, "withdrawn": reconcile.ProposalWithdrawn,
}

func (s *Server) apiProposals(c echo.Context) error {
	q := parseQuery(c)
	f := reconcile.ProposalFilter{Job: q.take("job"), Before: q.id("cursor", 64)}
	if name := q.take("state"); name != "" {
		var err error
		f.State, err = choice("state", name, proposalStates)
		q.keep(err)
	}
	if f.Limit = q.page().Limit; f.Limit == 0 {
		f.Limit = 50
	}
	if err := q.done(); err != nil {
		return err
	}
	found, more, err := s.proposals().List(c.Request().Context(), f)
	if err != nil {
		return err
	}
	return answer(c, http.StatusOK, listOf(found, nextNumber(found, more, func(p reconcile.Proposal) int64 { return p.ID }), jobProposalOf))
}

func (s *Server) apiProposal(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	id, err := numberID(c, 64)
	if err != nil {
		return err
	}
	return s.answerProposal(c, http.StatusOK, id)
}

func (s *Server) answerProposal(c echo.Context, status int, id int64) error {
	p, err := s.proposals().Get(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return answer(c, status, jobProposalOf(*p))
}

func (s *Server) apiPropose(c echo.Context) error {
	if err := noQuery(c); err != nil {
		return err
	}
	var body struct {
		Job        string `json:"job"` // "": a new one
		Definition string `json:"definition"`
		Reason     string `json:"reason"`
	}
	if err := decode(c, &body); err != nil {
		return err
	}
	if len(body.Definition) > mostDefinition {
		return invalid("definition", "has to be text of up to 64 KiB")
	}
	id, err := s.proposals().Make(c.Request().Context(), actorBecause(c, body.Reason), body.Job, body.Definition)
	if err != nil {
		return err
	}
	return s.answerProposal(c, http.StatusCreated, id)
}

// decisionJSON is a decision; hash only where it approves.
type decisionJSON struct {
	Hash   string `json:"hash"`
	Reason string `json:"reason"`
}

func (s *Server) apiDecide(decide func(c echo.Context, id int64, d decisionJSON) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := noQuery(c); err != nil {
			return err
		}
		id, err := numberID(c, 64)
		if err != nil {
			return err
		}
		var body decisionJSON
		if err := decodeOptional(c, &body); err != nil {
			return err
		}
		if err := decide(c, id, body); err != nil {
			return err
		}
		return s.answerProposal(c, http.StatusOK, id)
	}
}

func (s *Server) approveProposal(c echo.Context, id int64, d decisionJSON) error {
	hash, err := hex.DecodeString(d.Hash)
	if err != nil || len(hash) == 0 {
		return invalid("hash", "is the proposal's, in hex: an approval is bound to the text that was seen")
	}
	return s.proposals().Approve(c.Request().Context(), actorBecause(c, d.Reason), id, hash)
}

func (s *Server) rejectProposal(c echo.Context, id int64, d decisionJSON) error {
	return s.proposals().Reject(c.Request().Context(), actorBecause(c, d.Reason), id)
}

func (s *Server) withdrawProposal(c echo.Context, id int64, d decisionJSON) error {
	return s.proposals().Withdraw(c.Request().Context(), actorBecause(c, d.Reason), id)
}
