package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// Errors of signing.
var (
	// ErrOwnRun is returned to the preparer of a run: somebody else signs it.
	ErrOwnRun = errors.New("reconcile: the preparer of a run does not sign it")
	// ErrNotSignable is returned for a run that is not complete, superseded, or
	// does not wait for a signature.
	ErrNotSignable = errors.New("reconcile: the run cannot be signed")
	// ErrChecklist is returned when a point of the checklist was not confirmed.
	ErrChecklist = errors.New("reconcile: the checklist is not complete")
	// ErrSealBroken is returned when a run is not what was sealed, or not what the
	// signer has seen.
	ErrSealBroken = errors.New("reconcile: the run is not what was sealed")
)

// Checklist is what a signer confirms, point by point.
var Checklist = []string{"totals", "breaks", "explanations"}

// Signature is one act of a reviewer.
type Signature struct {
	ID        int64
	RunID     int64
	At        time.Time
	By        string
	Act       string // signed, auto_signed, sent_back, reopened
	Reason    string
	Seal      []byte
	Checklist []string
}

const sqlLockRun = `SELECT` + runColumns + ` FROM reconcile_run WHERE id = @id FOR UPDATE`

func lockRun(ctx context.Context, tx pgx.Tx, id int64) (*Run, error) {
	rows, err := tx.Query(ctx, sqlLockRun, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query run %d: %w", id, err)
	}
	run, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Run])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%w: %d", ErrNoRun, id)
	}
	return run, err
}

// Sign accepts a complete run. seal is that of the run as the signer has seen
// it. Errors: ErrOwnRun, ErrNotSignable, ErrChecklist, ErrSealBroken,
// access.ErrForbidden, access.ErrReasonRequired where breaks are open, the proof
// does not foot or rows have no key.
func (r *Runs) Sign(ctx context.Context, actor access.Actor, id int64, seal []byte, checklist []string) error {
	return r.signing(ctx, actor, id, func(tx pgx.Tx, run *Run) error {
		if err := mayBeSigned(actor, run, seal, checklist); err != nil {
			return err
		}
		now, err := sealOf(ctx, tx, run)
		if err != nil {
			return err
		}
		if !bytes.Equal(now, run.Seal) {
			return fmt.Errorf("%w: run %d", ErrSealBroken, id)
		}
		if err := r.scheduleRechecks(ctx, tx, run); err != nil {
			return err
		}
		return sign(ctx, tx, actor, run, Signed, "signed", checklist)
	})
}

func mayBeSigned(actor access.Actor, run *Run, seal []byte, checklist []string) error {
	switch {
	case run.State != Complete, run.Sign != SignWaiting && run.Sign != SignReopened:
		return fmt.Errorf("%w: run %d is %s, %s", ErrNotSignable, run.ID, run.State, run.Sign)
	case run.AskedBy == actor.User:
		return fmt.Errorf("%w: %s prepared run %d", ErrOwnRun, actor.User, run.ID)
	case !bytes.Equal(run.Seal, seal):
		return fmt.Errorf("%w: run %d has another seal than the one that was shown", ErrSealBroken, run.ID)
	}
	for _, point := range Checklist {
		if !slices.Contains(checklist, point) {
			return fmt.Errorf("%w: %s", ErrChecklist, point)
		}
	}
	if (len(run.AtRisk) > 0 || !run.Tally.Whole()) && actor.Reason == "" {
		return access.ErrReasonRequired
	}
	return nil
}

// SendBack tells the preparer that something has to be done before the run is
// signed. It needs a reason.
func (r *Runs) SendBack(ctx context.Context, actor access.Actor, id int64) error {
	return r.signing(ctx, actor, id, func(tx pgx.Tx, run *Run) error {
		if actor.Reason == "" {
			return access.ErrReasonRequired
		}
		if run.Sign != SignWaiting && run.Sign != SignReopened {
			return fmt.Errorf("%w: run %d is %s", ErrNotSignable, id, run.Sign)
		}
		return sign(ctx, tx, actor, run, SignWaiting, "sent_back", nil)
	})
}

// Reopen takes a signature back, for a reason.
func (r *Runs) Reopen(ctx context.Context, actor access.Actor, id int64) error {
	return r.signing(ctx, actor, id, func(tx pgx.Tx, run *Run) error {
		if actor.Reason == "" {
			return access.ErrReasonRequired
		}
		if run.Sign != Signed {
			return fmt.Errorf("%w: run %d is %s, not signed", ErrNotSignable, id, run.Sign)
		}
		return sign(ctx, tx, actor, run, SignReopened, "reopened", nil)
	})
}

func (r *Runs) signing(ctx context.Context, actor access.Actor, id int64, do func(pgx.Tx, *Run) error) error {
	if err := actor.Check(access.SignOff); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		run, err := lockRun(ctx, tx, id)
		if err != nil {
			return err
		}
		return do(tx, run)
	})
}

const (
	sqlSetSign = `UPDATE reconcile_run SET sign = @sign WHERE id = @id`
	sqlAddSign = `
INSERT INTO reconcile_signature (run_id, by, act, reason, seal, checklist) VALUES (@id, @by, @act, @reason, @seal, @checklist)`
)

func sign(ctx context.Context, tx pgx.Tx, actor access.Actor, run *Run, state SignState, act string, checklist []string) error {
	args := pgx.NamedArgs{"id": run.ID, "sign": state, "by": actor.User, "act": act, "reason": actor.Reason, "seal": run.Seal, "checklist": checklist}
	for _, sql := range []string{sqlSetSign, sqlAddSign} {
		if _, err := tx.Exec(ctx, sql, args); err != nil {
			return fmt.Errorf("sign run %d: %w", run.ID, err)
		}
	}
	return audit.Write(ctx, tx, actor, audit.Entry{Action: "run." + act, Target: fmt.Sprintf("run/%d", run.ID), Detail: map[string]any{"seal": fmt.Sprintf("%x", run.Seal), "job": run.Job}})
}

const sqlSignatures = `
SELECT id, run_id, at, by, act, reason, seal, coalesce((SELECT array_agg(p) FROM jsonb_array_elements_text(checklist) p), '{}')
FROM reconcile_signature WHERE run_id = @id ORDER BY id`

// Signatures lists what reviewers did with a run, oldest first.
func (r *Runs) Signatures(ctx context.Context, id int64) ([]Signature, error) {
	rows, err := r.pool.Query(ctx, sqlSignatures, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query signatures of run %d: %w", id, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Signature])
	if err != nil {
		return nil, fmt.Errorf("read signatures of run %d: %w", id, err)
	}
	return all, nil
}

// Verify returns ErrSealBroken if a finished run is not what was sealed.
func (r *Runs) Verify(ctx context.Context, id int64) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		run, err := lockRun(ctx, tx, id)
		if err != nil {
			return err
		}
		now, err := sealOf(ctx, tx, run)
		if err == nil && !bytes.Equal(now, run.Seal) {
			err = fmt.Errorf("%w: run %d", ErrSealBroken, id)
		}
		return err
	})
}
