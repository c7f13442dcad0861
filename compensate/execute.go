package compensate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	sqlBegin = `
UPDATE saga_step SET state = 1, tries = tries + 1, started_at = now(), due_at = NULL WHERE compensation_id = @id AND no = @no AND op = @op AND state = 0
RETURNING tries`
	sqlAttempt = `
INSERT INTO compensation_attempt (compensation_id, no, op, request) VALUES (@id, @no, @op, @request) RETURNING id`
	sqlAnswer = `
UPDATE compensation_attempt SET answer = @answer, outcome = @outcome, took_ms = extract(epoch FROM clock_timestamp() - at) * 1000 WHERE id = @attempt`
	sqlStepIs = `
UPDATE saga_step SET state = @state::smallint, due_at = @due, why = nullif(@why, ''), done_at = CASE WHEN @state::smallint = 2 THEN now() END
WHERE compensation_id = @id AND no = @no AND op = @op`
)

// execute makes one attempt at a step: the intent is committed before the call,
// its answer after it. A step that was left running by a process that died may
// have been applied: it is asked for, not repeated blindly.
func (s *step) execute(ctx context.Context, r StepRow) error {
	does, err := s.does(ctx, r)
	if err != nil {
		return s.settle(ctx, r, 0, answer{Error: err.Error(), outcome: refused})
	}
	if r.State == StepRunning {
		return s.settle(ctx, r, 0, s.probe(ctx, does, answer{outcome: unknown, Error: "the process that made the call has died"}))
	}
	attempt, err := s.intend(ctx, &r, does)
	if err != nil || attempt == 0 {
		return err
	}
	a := does.run(ctx)
	if a.outcome == unknown {
		a = s.probe(ctx, does, a)
	}
	return s.settle(context.WithoutCancel(ctx), r, attempt, a)
}

// intend commits that the step is about to be done. 0: somebody else has it.
func (s *step) intend(ctx context.Context, r *StepRow, d *doing) (attempt int64, err error) {
	err = s.fenced(ctx, func(tx pgx.Tx) error {
		args := pgx.NamedArgs{"id": s.id, "no": r.No, "op": r.Op, "request": d.shown}
		err := tx.QueryRow(ctx, sqlBegin, args).Scan(&r.Tries)
		if err == pgx.ErrNoRows {
			return nil
		}
		if err != nil {
			return fmt.Errorf("begin step %s: %w", r.Step, err)
		}
		return tx.QueryRow(ctx, sqlAttempt, args).Scan(&attempt)
	})
	return attempt, err
}

// settle records an answer and what it means for the step.
func (s *step) settle(ctx context.Context, r StepRow, attempt int64, a answer) error {
	state, due := s.after(r, a.outcome)
	why := a.Error
	if why == "" && a.Status != 0 {
		why = fmt.Sprintf("HTTP %d", a.Status)
	}
	return s.fenced(ctx, func(tx pgx.Tx) error {
		if attempt != 0 {
			_, err := tx.Exec(ctx, sqlAnswer, pgx.NamedArgs{"attempt": attempt, "answer": a, "outcome": string(a.outcome)})
			if err != nil {
				return fmt.Errorf("answer of step %s: %w", r.Step, err)
			}
		}
		_, err := tx.Exec(ctx, sqlStepIs, pgx.NamedArgs{"id": s.id, "no": r.No, "op": r.Op, "state": state, "due": due, "why": why})
		if err != nil {
			return fmt.Errorf("state of step %s: %w", r.Step, err)
		}
		return nil
	})
}

// after is where an outcome leaves a step, and when it is tried again.
func (s *step) after(r StepRow, o outcome) (StepState, *time.Time) {
	switch {
	case o == done || o == already:
		return StepDone, nil
	case o == retry && r.Tries < s.action.Attempts.Max:
		due := s.c.Clock().Add(s.action.Attempts.wait(r.Tries))
		return StepWaiting, &due
	case o == unknown:
		return StepUnknown, nil
	}
	return StepFailed, nil
}

// wait is the pause after so many tries.
func (a Attempts) wait(tries int) time.Duration {
	pause := float64(a.Initial) * math.Pow(a.Multiplier, float64(max(tries-1, 0)))
	return time.Duration(min(pause, float64(a.MaxWait)))
}
