package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/internal/schedule"
)

// startSchedule is the kind of scheduled starts; ref is the replay's number.
const startSchedule = "replay.start"

const sqlScheduled = `
UPDATE replay SET state = 3, started_by = @by, reason = CASE WHEN reason = '' THEN @reason ELSE reason END,
  state_by = @by, state_at = now(), version = version + 1
WHERE id = @id AND state = 1`

func (r *Replays) scheduleStart(ctx context.Context, tx pgx.Tx, id int64, at time.Time, actor access.Actor) error {
	if err := execReplay(ctx, tx, sqlScheduled, id, actor); err != nil {
		return err
	}
	return schedule.Put(ctx, tx, startSchedule, strconv.FormatInt(id, 10), at)
}

// Schedule has the scheduler start replays at their time.
func (r *Replays) Schedule(s *schedule.Scheduler) { s.Handle(startSchedule, r.startScheduled) }

const sqlStartScheduled = `
UPDATE replay SET state = 4, started_at = now(), state_by = 'system', state_at = now(), version = version + 1
WHERE id = @id AND state = 3`

// startScheduled lets a replay run whose time has come. One that was canceled is
// left alone; one whose approval does not hold any more goes back to its approver.
func (r *Replays) startScheduled(ctx context.Context, tx pgx.Tx, ref string, _ time.Time) (time.Time, error) {
	never := time.Time{}
	id, err := strconv.ParseInt(ref, 10, 64)
	if err != nil {
		return never, fmt.Errorf("scheduled replay %q: %w", ref, err)
	}
	p, err := r.lock(ctx, tx, id)
	if errors.Is(err, ErrNotFound) || err == nil && p.state != Scheduled {
		return never, nil
	}
	if err != nil {
		return never, fmt.Errorf("scheduled replay %d: %w", id, err)
	}
	if p.approvalVoid() {
		return never, voided(ctx, tx, access.System(), id, p)
	}
	if _, err := tx.Exec(ctx, sqlStartScheduled, pgx.NamedArgs{"id": id}); err != nil {
		return never, fmt.Errorf("start scheduled replay %d: %w", id, err)
	}
	if err := r.insertStep(ctx, tx, stepArgs{Replay: id, Epoch: p.epoch}, 0); err != nil {
		return never, err
	}
	return never, audit.Write(ctx, tx, access.System(), audit.Entry{
		Action: "replay.started", Target: fmt.Sprintf("replay/%d", id), Detail: map[string]any{"items": p.total, "scheduled": true}})
}

// approvalVoid reports whether an approval that is needed does not hold: it was
// given to another set or pace, or too long ago.
func (p *replayRow) approvalVoid() bool {
	return p.approvalNeeded && (p.approvalExpired || p.approvedAt == nil || !bytes.Equal(p.approvedDigest, p.bound()))
}

const sqlVoided = `
UPDATE replay SET state = 2, approved_by = NULL, approved_at = NULL, approved_digest = NULL, started_by = NULL,
  state_by = 'system', state_at = now(), version = version + 1
WHERE id = @id AND state IN (1, 3)`

// voided sends a replay back to its approver.
func voided(ctx context.Context, tx pgx.Tx, actor access.Actor, id int64, p *replayRow) error {
	if _, err := tx.Exec(ctx, sqlVoided, pgx.NamedArgs{"id": id}); err != nil {
		return fmt.Errorf("void approval of replay %d: %w", id, err)
	}
	return audit.Write(ctx, tx, actor, audit.Entry{
		Action: "replay.approval_voided", Target: fmt.Sprintf("replay/%d", id), Detail: map[string]any{"expired": p.approvalExpired}})
}

// voidApproval takes an approval back that does not hold any more, in a
// transaction of its own, and returns ErrApprovalVoid then.
func (r *Replays) voidApproval(ctx context.Context, actor access.Actor, id int64) error {
	if err := actor.Check(access.StartReplay); err != nil {
		return err
	}
	void := false
	err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		p, err := r.lock(ctx, tx, id)
		if err != nil || p.state != Planned || !p.approvalVoid() {
			return err
		}
		void = true
		return voided(ctx, tx, actor, id, p)
	})
	if err == nil && void {
		err = ErrApprovalVoid
	}
	if err != nil {
		return fmt.Errorf("replay %d: %w", id, err)
	}
	return nil
}

const sqlSetPace = `
UPDATE replay SET pace = @pace, version = version + 1 WHERE id = @id`

// SetPace changes the pace of a replay that has not begun, or that is paused. An
// approval was given to the pace it had: it is taken back, and a replay that
// needed one cannot change its pace while paused. Errors: access.ErrForbidden,
// *ErrBadFilter, ErrNotFound, *ErrConflict.
func (r *Replays) SetPace(ctx context.Context, actor access.Actor, id int64, pace Pace) error {
	if err := pace.Check(); err != nil {
		return err
	}
	return r.command(ctx, actor, access.PlanReplay, id, "paced", func(tx pgx.Tx, p *replayRow) (bool, error) {
		if p.pace.sameAs(pace) {
			return false, nil
		}
		switch p.state {
		case Planned, AwaitingApproval:
		case Paused:
			if !p.approvalNeeded && samePlan(p.pace.Ladder, pace.Ladder, p.rung) {
				break
			}
			return false, p.conflict(id)
		default:
			return false, p.conflict(id)
		}
		p.detail = map[string]any{"pace": pace, "pace_before": p.pace}
		if _, err := tx.Exec(ctx, sqlSetPace, pgx.NamedArgs{"id": id, "pace": pace.bytes()}); err != nil {
			return false, err
		}
		if p.approvedAt != nil {
			return true, voided(ctx, tx, actor, id, p)
		}
		return true, nil
	})
}

// samePlan reports whether two ladders agree on the rungs that were passed.
func samePlan(was, is []int, passed int) bool {
	n := min(passed, len(was))
	if len(is) < n {
		return false
	}
	for i := range n {
		if was[i] != is[i] {
			return false
		}
	}
	return passed <= len(was) || len(is) == len(was)
}
