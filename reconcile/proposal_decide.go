package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
)

// Approve makes a proposal the current version of its job, and its schedule the
// job's. hash is that of the text as the approver has seen it. Errors:
// ErrOwnProposal, ErrProposalState, ErrNoProposal, access.ErrReasonRequired,
// access.ErrForbidden.
func (p *Proposals) Approve(ctx context.Context, actor access.Actor, id int64, hash []byte) error {
	return p.decide(ctx, actor, id, access.ApproveJob, func(tx pgx.Tx, q *Proposal) error {
		switch {
		case q.MadeBy == actor.User:
			return fmt.Errorf("%w: %s made proposal %d", ErrOwnProposal, actor.User, id)
		case !bytes.Equal(q.Hash, hash):
			return fmt.Errorf("%w: proposal %d has another text than the one that was shown", ErrProposalState, id)
		}
		version, err := p.take(ctx, tx, actor, q)
		if err != nil {
			return err
		}
		return p.settle(ctx, tx, actor, q, ProposalApproved, &version)
	})
}

// take makes the proposal's text the job's, unless the job has changed meanwhile.
func (p *Proposals) take(ctx context.Context, tx pgx.Tx, actor access.Actor, q *Proposal) (int, error) {
	if _, err := tx.Exec(ctx, sqlLockJobs); err != nil {
		return 0, err
	}
	var now *int
	var version int
	var gone bool
	switch err := tx.QueryRow(ctx, sqlJobVersion, pgx.NamedArgs{"job": q.Job}).Scan(&version, &gone); {
	case err == nil:
		now = &version
	case !errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("query job %s: %w", q.Job, err)
	}
	if (now == nil) != (q.Base == nil) || now != nil && *now != *q.Base {
		return 0, fmt.Errorf("%w: job %s has changed since proposal %d was made", ErrProposalState, q.Job, q.ID)
	}
	j, err := ParseJob(fileOf(q.Job), []byte(q.Text))
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDefinition, err)
	}
	if version, err = p.runs.jobs.Keep(ctx, tx, j, q.Text, actor.User); err != nil {
		return 0, err
	}
	return version, p.runs.planJob(ctx, tx, j)
}

// Reject turns a proposal down, for a reason. Errors as of Approve.
func (p *Proposals) Reject(ctx context.Context, actor access.Actor, id int64) error {
	return p.decide(ctx, actor, id, access.ApproveJob, func(tx pgx.Tx, q *Proposal) error {
		if q.MadeBy == actor.User {
			return fmt.Errorf("%w: %s made proposal %d", ErrOwnProposal, actor.User, id)
		}
		return p.settle(ctx, tx, actor, q, ProposalRejected, nil)
	})
}

// Withdraw takes one's own proposal back.
func (p *Proposals) Withdraw(ctx context.Context, actor access.Actor, id int64) error {
	if actor.Reason == "" {
		actor.Reason = "withdrawn"
	}
	return p.decide(ctx, actor, id, access.ProposeJob, func(tx pgx.Tx, q *Proposal) error {
		if q.MadeBy != actor.User {
			return fmt.Errorf("%w: proposal %d is %s's", access.ErrForbidden, id, q.MadeBy)
		}
		return p.settle(ctx, tx, actor, q, ProposalWithdrawn, nil)
	})
}

const (
	proposalColumns = ` id, job, base, hash, definition, state, made_by, made_at, reason, decided_by, decided_at, decision, version`
	sqlProposal     = `SELECT` + proposalColumns + ` FROM reconcile_proposal WHERE id = @id`
	sqlSettle       = `
UPDATE reconcile_proposal SET state = @state, decided_by = @by, decided_at = now(), decision = @why, version = @version WHERE id = @id AND state = 1`
	sqlProposals = `SELECT` + proposalColumns + ` FROM reconcile_proposal
WHERE (@job = '' OR job = @job) AND (@state = 0 OR state = @state) AND (@before = 0 OR id < @before) ORDER BY id DESC LIMIT @limit`
)

func (p *Proposals) decide(ctx context.Context, actor access.Actor, id int64, act access.Act, do func(pgx.Tx, *Proposal) error) error {
	if err := actor.Check(act); err != nil {
		return err
	}
	if strings.TrimSpace(actor.Reason) == "" {
		return access.ErrReasonRequired
	}
	return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		q, err := proposal(ctx, tx, sqlProposal+" FOR UPDATE", id)
		if err != nil {
			return err
		}
		if q.State != ProposalWaiting {
			return fmt.Errorf("%w: proposal %d is %s", ErrProposalState, id, q.State)
		}
		return do(tx, q)
	})
}

func (p *Proposals) settle(ctx context.Context, tx pgx.Tx, actor access.Actor, q *Proposal, state ProposalState, version *int) error {
	_, err := tx.Exec(ctx, sqlSettle, pgx.NamedArgs{"id": q.ID, "state": state, "by": actor.User, "why": actor.Reason, "version": version})
	if err != nil {
		return fmt.Errorf("decide about proposal %d: %w", q.ID, err)
	}
	return p.audited(ctx, tx, actor, "job.proposal_"+state.String(), q.ID, q.Job, q.Hash)
}

type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func proposal(ctx context.Context, db queryer, sql string, id int64) (*Proposal, error) {
	rows, err := db.Query(ctx, sql, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query proposal %d: %w", id, err)
	}
	q, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Proposal])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %d", ErrNoProposal, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read proposal %d: %w", id, err)
	}
	return q, nil
}

// Get reads one proposal. Error: ErrNoProposal.
func (p *Proposals) Get(ctx context.Context, id int64) (*Proposal, error) {
	return proposal(ctx, p.pool, sqlProposal, id)
}

// ProposalFilter narrows a list; zero values do not.
type ProposalFilter struct {
	Job    string
	State  ProposalState
	Before int64
	Limit  int
}

// List gives proposals, newest first, and whether there are more.
func (p *Proposals) List(ctx context.Context, f ProposalFilter) ([]Proposal, bool, error) {
	rows, err := p.pool.Query(ctx, sqlProposals, pgx.NamedArgs{"job": f.Job, "state": int(f.State), "before": f.Before, "limit": f.Limit + 1})
	if err != nil {
		return nil, false, fmt.Errorf("query proposals: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Proposal])
	if err != nil {
		return nil, false, fmt.Errorf("read proposals: %w", err)
	}
	return all[:min(len(all), f.Limit)], len(all) > f.Limit, nil
}
