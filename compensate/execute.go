package compensate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// sqlIntend is one statement, so that it costs one commit and one round trip:
	// nothing of it happens without the fence.
	sqlIntend = `
WITH f AS (` + sqlFence + ` RETURNING id),
b AS (
  UPDATE saga_step s SET state = 1, tries = tries + 1, started_at = @now, due_at = NULL
  FROM f WHERE s.compensation_id = f.id AND s.no = @no AND s.op = @op AND s.state = 0 RETURNING s.tries),
a AS (INSERT INTO compensation_attempt (compensation_id, no, op, request) SELECT @id::bigint, @no::int, @op::smallint, @request::jsonb FROM b)
SELECT (SELECT count(*) FROM f), (SELECT tries FROM b)`
	// sqlSettle answers the attempt that is open: that of a process that died, too.
	sqlSettle = `
WITH f AS (` + sqlFence + ` RETURNING id),
a AS (
  UPDATE compensation_attempt a SET answer = @answer, outcome = @outcome, took_ms = extract(epoch FROM clock_timestamp() - at) * 1000
  FROM f WHERE @answered AND a.id = (SELECT max(id) FROM compensation_attempt WHERE compensation_id = @id AND no = @no AND op = @op) AND a.outcome IS NULL),
s AS (
  UPDATE saga_step s SET state = @state::smallint, due_at = @due, why = nullif(@why, ''), done_at = CASE WHEN @state::smallint = 2 THEN now() END
  FROM f WHERE s.compensation_id = f.id AND s.no = @no AND s.op = @op)
SELECT count(*) FROM f`
)

// execute makes one attempt at a step: the intent is committed before the call,
// its answer after it. A step that was left running by a process that died may
// have been applied: it is asked for, not repeated blindly.
func (s *step) execute(ctx context.Context, r StepRow) error {
	does, err := s.does(ctx, r)
	switch {
	case err != nil:
		return s.settle(ctx, r, answer{Error: err.Error(), outcome: refused})
	case does.underWay:
		return s.settle(ctx, r, does.probe(ctx))
	case r.State == StepRunning:
		return s.settle(ctx, r, s.probe(ctx, does, answer{outcome: unknown, Error: "the process that made the call has died"}))
	}
	begun, err := s.intend(ctx, &r, does)
	if err != nil || !begun {
		return err
	}
	s.c.reached(momentIntended)
	a := does.run(ctx)
	s.c.reached(momentAnswered)
	if a.outcome == unknown {
		a = s.probe(ctx, does, a)
	}
	return s.settle(context.WithoutCancel(ctx), r, a)
}

// intend commits that the step is about to be done. False: somebody else has it.
func (s *step) intend(ctx context.Context, r *StepRow, d *doing) (begun bool, err error) {
	args := pgx.NamedArgs{"id": s.id, "epoch": s.epoch, "lease": s.c.Lease, "no": r.No, "op": r.Op, "request": d.shown, "now": s.c.Clock()}
	var held int
	var tries *int
	err = s.c.Pool.QueryRow(ctx, sqlIntend, args).Scan(&held, &tries)
	switch {
	case err != nil:
		return false, fmt.Errorf("begin step %s of compensation %d: %w", r.Step, s.id, err)
	case held == 0:
		return false, errFenced
	case tries == nil:
		return false, nil
	}
	r.Tries = *tries
	return true, nil
}

// settle records an answer and what it means for the step. One that is still
// awaited leaves the attempt open.
func (s *step) settle(ctx context.Context, r StepRow, a answer) error {
	a.Body, a.Error = s.c.mask(a.Body), s.c.mask(a.Error)
	state, due := s.after(r, a)
	why := a.Error
	if why == "" && a.Status != 0 {
		why = fmt.Sprintf("HTTP %d", a.Status)
	}
	var held int
	err := s.c.Pool.QueryRow(ctx, sqlSettle, pgx.NamedArgs{
		"id": s.id, "epoch": s.epoch, "lease": s.c.Lease, "no": r.No, "op": r.Op,
		"answered": a.outcome != waiting, "answer": a, "outcome": string(a.outcome), "state": state, "due": due, "why": why,
	}).Scan(&held)
	switch {
	case err != nil:
		return fmt.Errorf("answer of step %s of compensation %d: %w", r.Step, s.id, err)
	case held == 0:
		return errFenced
	}
	s.c.count(s.action.Steps[r.No].Kind, r.Op, a.outcome)
	return nil
}

// lookAgain is when something that was started elsewhere is asked for again.
const lookAgain = 2 * time.Second

// after is where an answer leaves a step, and when it is tried again.
func (s *step) after(r StepRow, a answer) (StepState, *time.Time) {
	switch {
	case a.outcome == done || a.outcome == already:
		return StepDone, nil
	case a.outcome == waiting:
		due := s.c.Clock().Add(lookAgain)
		return StepWaiting, &due
	case a.outcome == retry && r.Tries < s.action.Attempts.Max:
		due := s.c.Clock().Add(max(s.action.Attempts.wait(r.Tries), a.wait))
		return StepWaiting, &due
	case a.outcome == unknown && s.repeats(r) && r.Tries < s.action.Attempts.Max:
		due := s.c.Clock().Add(s.action.Attempts.wait(r.Tries))
		return StepWaiting, &due
	case a.outcome == unknown, a.outcome == retry && s.mayStand(r, a):
		return StepUnknown, nil
	}
	return StepFailed, nil
}

// repeats reports whether a step is tried again without knowing what came of it:
// participants of a TCC have to take a second confirm or cancel.
func (s *step) repeats(r StepRow) bool { return s.action.Mode == TryConfirmCancel && r.Op != Forward }

// mayStand reports whether a step that was given up may have been applied all the
// same. A saga undoes it then.
func (s *step) mayStand(r StepRow, a answer) bool {
	return s.action.Kind == Saga && r.Op == Forward && (a.Status >= 500 || a.Status == 408 || a.Status == 409)
}

// wait is the pause after so many tries.
func (a Attempts) wait(tries int) time.Duration {
	pause := float64(a.Initial) * math.Pow(a.Multiplier, float64(max(tries-1, 0)))
	return time.Duration(min(pause, float64(a.MaxWait)))
}
