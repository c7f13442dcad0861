package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// Errors of proposals.
var (
	// ErrDefinition is returned for a definition that cannot be taken over; the
	// text behind it names file, line and key, one problem a line.
	ErrDefinition = errors.New("reconcile: the definition is not valid")
	// ErrNoProposal is returned for a proposal that does not exist.
	ErrNoProposal = errors.New("reconcile: no such proposal")
	// ErrOwnProposal is returned to whoever made a proposal: somebody else decides.
	ErrOwnProposal = errors.New("reconcile: the maker of a proposal does not decide about it")
	// ErrProposalState is returned for a proposal that is decided, or whose job has
	// changed since it was made.
	ErrProposalState = errors.New("reconcile: the proposal cannot be decided about")
	// ErrProposalWaits is returned where another proposal for the job waits.
	ErrProposalWaits = errors.New("reconcile: another proposal for the job waits")
)

// ProposalState is where a proposal stands.
type ProposalState int

// The states of a proposal.
const (
	ProposalWaiting ProposalState = iota + 1
	ProposalApproved
	ProposalRejected
	ProposalWithdrawn
)

var proposalStates = [...]string{"", "waiting", "approved", "rejected", "withdrawn"}

// String is the state's name in the API.
func (s ProposalState) String() string { return proposalStates[s] }

// Proposal is a definition that somebody wants to be a job's.
type Proposal struct {
	ID        int64
	Job       string
	Base      *int // the version that it changes; nil: a new job
	Hash      []byte
	Text      string
	State     ProposalState
	MadeBy    string
	MadeAt    time.Time
	Reason    string
	DecidedBy *string
	DecidedAt *time.Time
	Decision  *string // why
	Version   *int    // what it became
}

// Proposals are changes of jobs that a second person decides about.
type Proposals struct {
	pool *pgxpool.Pool
	runs *Runs
}

// NewProposals makes the book of proposals over the jobs of runs.
func NewProposals(pool *pgxpool.Pool, runs *Runs) *Proposals { return &Proposals{pool, runs} }

// Check reads a definition and asks the databases about it, as for a preview.
// job is the one that is changed; "" for a new one. Error: ErrDefinition.
func (p *Proposals) Check(ctx context.Context, job string, text string) (*Job, error) {
	j, err := ParseJob(fileOf(job), []byte(text))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDefinition, err)
	}
	if job != "" && j.Name != job {
		return nil, fmt.Errorf("%w: %s:%d: job: is %s and has to stay %s: another name is another job", ErrDefinition, fileOf(job), j.Pos.Line, j.Name, job)
	}
	if _, err := prepare(ctx, j, p.runs.databases); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDefinition, err)
	}
	return j, nil
}

// fileOf is what messages call a text that is in no file.
func fileOf(job string) string {
	if job == "" {
		return "new.yaml"
	}
	return job + ".yaml"
}

// Problems are the lines of an ErrDefinition.
func Problems(err error) []string {
	_, text, found := strings.Cut(err.Error(), ErrDefinition.Error()+": ")
	if !found {
		return nil
	}
	return strings.Split(text, "\n")
}

const (
	sqlJobVersion  = `SELECT version, gone_at IS NOT NULL FROM reconcile_job WHERE name = @job`
	sqlAddProposal = `
INSERT INTO reconcile_proposal (job, base, hash, definition, made_by, reason) VALUES (@job, @base, @hash, @text, @by, @reason)
ON CONFLICT (job) WHERE state = 1 DO NOTHING
RETURNING id`
)

// Make asks for a definition to become a job's, for a reason. job is the one that
// is changed; "" for a new one. Errors: ErrDefinition, ErrProposalWaits, ErrNoJob,
// access.ErrReasonRequired, access.ErrForbidden.
func (p *Proposals) Make(ctx context.Context, actor access.Actor, job, text string) (id int64, err error) {
	if err := actor.Check(access.ProposeJob); err != nil {
		return 0, err
	}
	if strings.TrimSpace(actor.Reason) == "" {
		return 0, access.ErrReasonRequired
	}
	j, err := p.Check(ctx, job, text)
	if err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		base, err := p.base(ctx, tx, job, j)
		if err != nil {
			return err
		}
		args := pgx.NamedArgs{"job": j.Name, "base": base, "hash": j.Hash[:], "text": text, "by": actor.User, "reason": actor.Reason}
		err = tx.QueryRow(ctx, sqlAddProposal, args).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%w: %s", ErrProposalWaits, j.Name)
		}
		if err != nil {
			return fmt.Errorf("propose job %s: %w", j.Name, err)
		}
		return p.audited(ctx, tx, actor, "job.proposed", id, j.Name, j.Hash[:])
	})
	return id, err
}

// base is the version that a proposal changes.
func (p *Proposals) base(ctx context.Context, tx pgx.Tx, job string, j *Job) (*int, error) {
	var version int
	var gone bool
	err := tx.QueryRow(ctx, sqlJobVersion, pgx.NamedArgs{"job": j.Name}).Scan(&version, &gone)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && job != "":
		return nil, fmt.Errorf("%w: %s", ErrNoJob, job)
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("query job %s: %w", j.Name, err)
	case job == "":
		return nil, fmt.Errorf("%w: %s:%d: job: %s is there already: change that one, or choose another name", ErrDefinition, fileOf(""), j.Pos.Line, j.Name)
	}
	def, err := p.runs.jobs.Version(ctx, j.Name, version)
	if err == nil && bytes.Equal(def.Hash, j.Hash[:]) && !gone {
		err = fmt.Errorf("%w: %s:%d: job: nothing is changed of version %d", ErrDefinition, fileOf(job), j.Pos.Line, version)
	}
	return &version, err
}

func (p *Proposals) audited(ctx context.Context, tx pgx.Tx, actor access.Actor, act string, id int64, job string, hash []byte) error {
	return audit.Write(ctx, tx, actor, audit.Entry{Action: act, Target: fmt.Sprintf("proposal/%d", id), Detail: map[string]any{"job": job, "hash": fmt.Sprintf("%x", hash)}})
}
