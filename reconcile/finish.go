package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
)

// finish reads open breaks again, adds everything up and seals the run.
func (s *step) finish(ctx context.Context) error {
	if err := s.again(ctx); err != nil {
		return s.cut(ctx, err)
	}
	return s.fenced(ctx, func(tx pgx.Tx) error { return s.close(ctx, tx, "") })
}

// again reads keys without a window: those that were asked for, and those of
// open breaks.
func (s *step) again(ctx context.Context) error {
	if s.row.Kind == OfKeys {
		return s.recheckKeys(ctx)
	}
	return s.recheckOpen(ctx)
}

// cut ends a run whose open breaks could not all be read again: it is partial.
func (s *step) cut(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return why
	}
	return s.fenced(ctx, func(tx pgx.Tx) error {
		if err := note(ctx, tx, s.id, "open breaks could not be read again: "+why.Error()); err != nil {
			return err
		}
		return s.close(ctx, tx, why.Error())
	})
}

const sqlSegmentEnds = `
SELECT state, cut, tally, coalesce(error, '') FROM reconcile_segment WHERE run_id = @run ORDER BY no`

// segmentEnd is how one segment ended.
type segmentEnd struct {
	State int
	Cut   bool
	Tally *Tally
	Error string
}

const sqlClosing = `
UPDATE reconcile_run SET state = @state, finished_at = now(), lease_until = NULL, error = nullif(@error, ''),
  tally = @tally, roll = @roll, at_risk = @at_risk, sign = @sign, seal = @seal
WHERE id = @id`

// close makes the run immutable.
func (s *step) close(ctx context.Context, tx pgx.Tx, why string) error {
	rows, err := tx.Query(ctx, sqlSegmentEnds, pgx.NamedArgs{"run": s.id})
	if err != nil {
		return fmt.Errorf("query segments: %w", err)
	}
	ends, err := pgx.CollectRows(rows, pgx.RowToStructByPos[segmentEnd])
	if err != nil {
		return fmt.Errorf("read segments: %w", err)
	}
	run := *s.row
	run.State, run.Tally = Complete, newTally()
	for _, e := range ends {
		if e.State != 1 || e.Cut {
			run.State = Partial
			if why == "" {
				why = e.reason(s.job.Limits.Breaks)
			}
		}
		if e.Tally != nil {
			run.Tally.Plus(e.Tally)
		}
	}
	if why != "" {
		run.State, run.Error = Partial, &why
	}
	return s.seal(ctx, tx, &run, why)
}

func (e segmentEnd) reason(limit int) string {
	if e.Cut {
		return fmt.Sprintf("more than limits.breaks (%d) differences; the counts are true, not all breaks are listed", limit)
	}
	return e.Error
}

func (s *step) seal(ctx context.Context, tx pgx.Tx, run *Run, why string) (err error) {
	if err = alone(ctx, tx, run.Job); err != nil {
		return err
	}
	if run.Kind != OfKeys { // what single keys move is told by the next run of a window
		if run.Roll, err = rollForward(ctx, tx, run.Job); err != nil {
			return err
		}
		if run.Roll.Aging, err = aging(ctx, tx, run.Job, s.r.opts.Clock()); err != nil {
			return err
		}
	}
	if run.AtRisk, err = atRisk(ctx, tx, run.Job); err != nil {
		return err
	}
	run.Sign = s.signing(run)
	if run.Seal, err = sealOf(ctx, tx, run); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, sqlClosing, pgx.NamedArgs{
		"id": run.ID, "state": run.State, "error": why, "tally": run.Tally, "roll": run.Roll,
		"at_risk": run.AtRisk, "sign": run.Sign, "seal": run.Seal,
	})
	if err != nil {
		return fmt.Errorf("close run %d: %w", run.ID, err)
	}
	if err := s.autoSign(ctx, tx, run); err != nil {
		return err
	}
	if err := supersede(ctx, tx, run); err != nil {
		return err
	}
	return note(ctx, tx, run.ID, "the run is "+run.State.String())
}

// signing says whether somebody has to look at the run.
func (s *step) signing(run *Run) SignState {
	if !s.job.SignOff.Required || run.State != Complete || run.Kind == OfKeys || run.Kind == OfAge {
		return SignNone
	}
	return SignWaiting
}

// autoSign signs a run for which so little is at risk that the job asks nobody.
func (s *step) autoSign(ctx context.Context, tx pgx.Tx, run *Run) error {
	if run.Sign != SignWaiting || !s.below(run) {
		return nil
	}
	var unknown bool
	if err := tx.QueryRow(ctx, sqlUnknownRisk, pgx.NamedArgs{"job": run.Job}).Scan(&unknown); err != nil || unknown {
		return err
	}
	run.Sign = Signed
	if err := s.r.scheduleRechecks(ctx, tx, run); err != nil {
		return err
	}
	return sign(ctx, tx, access.System(), run, Signed, "auto_signed", nil)
}

// A break without an amount (it is NULL, or the job counts rows alone) is below no
// threshold.
const sqlUnknownRisk = `
SELECT EXISTS (SELECT FROM reconcile_break WHERE job = @job AND state IN (1, 2, 4, 7) AND type <> 'timing'
  AND (amount = 0 OR (sides->1->>'Nulls')::int > 0 OR (sides->2->>'Nulls')::int > 0 OR (sides->0->>'Nulls')::int > 0))`

func (s *step) below(run *Run) bool {
	limit := s.job.SignOff.AutoBelow
	if limit == nil || !run.Tally.Whole() {
		return false
	}
	for _, risk := range run.AtRisk {
		if risk.Amount.Cmp(*limit) >= 0 {
			return false
		}
	}
	return !limit.IsZero()
}

const sqlRunBreaks = `
SELECT break_id, what, type, currency, amount::text, sides FROM reconcile_run_break WHERE run_id = @run ORDER BY break_id`

// sealOf is the SHA-256 of everything that the run says.
func sealOf(ctx context.Context, tx pgx.Tx, run *Run) ([]byte, error) {
	h := sha256.New()
	enc := json.NewEncoder(h)
	facts := []any{run.ID, run.Job, run.Version, run.Kind, run.From.UTC(), run.To.UTC(), run.Keys, run.State, run.Plan, run.AskedBy, run.Tally, run.Roll, run.AtRisk}
	for _, f := range facts {
		if err := enc.Encode(f); err != nil {
			return nil, fmt.Errorf("seal run %d: %w", run.ID, err)
		}
	}
	rows, err := tx.Query(ctx, sqlRunBreaks, pgx.NamedArgs{"run": run.ID})
	if err != nil {
		return nil, fmt.Errorf("seal run %d: %w", run.ID, err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		values, err := row.Values()
		if err == nil {
			err = enc.Encode(values)
		}
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("seal run %d: %w", run.ID, err)
	}
	return h.Sum(nil), nil
}
