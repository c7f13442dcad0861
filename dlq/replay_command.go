package dlq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
	"oncemore/internal/schedule"
)

// Start lets a planned, and where needed approved, replay run, or waits for the
// time of its pace. Its reason is the actor's, else the plan's. Started again by
// the same user it does nothing. Errors: access.ErrForbidden,
// access.ErrReasonRequired, ErrNothingToSend, ErrApprovalVoid (what was approved
// has changed, or the approval is too old: it has to be approved anew),
// ErrNotFound, *ErrConflict (not in a state to start, or other replays hold all
// its letters).
func (r *Replays) Start(ctx context.Context, actor access.Actor, id int64) error {
	if err := r.voidApproval(ctx, actor, id); err != nil {
		return err
	}
	return r.command(ctx, actor, access.StartReplay, id, "started", func(tx pgx.Tx, p *replayRow) (bool, error) {
		if p.startedBy != nil && *p.startedBy == actor.User && p.state != Canceled {
			return false, nil
		}
		if p.state != Planned {
			return false, p.conflict(id)
		}
		if strings.TrimSpace(actor.Reason) == "" && strings.TrimSpace(p.reason) == "" {
			return false, access.ErrReasonRequired
		}
		if p.total == 0 {
			return false, ErrNothingToSend
		}
		if err := otherHolds(ctx, tx, id); err != nil {
			return false, err
		}
		if at := p.pace.StartAt; at != nil && at.After(r.opts.Clock()) {
			return true, r.scheduleStart(ctx, tx, id, *at, actor)
		}
		return true, r.run(ctx, tx, id, p.epoch, sqlStart, actor)
	})
}

// Approve makes a replay that awaits approval startable: its state becomes
// planned. The approval is bound to the set and the pace of this moment and holds
// for ReplayOptions.ApprovalFor. Errors: access.ErrForbidden,
// access.ErrReasonRequired, ErrOwnApproval, ErrNotFound, *ErrConflict.
func (r *Replays) Approve(ctx context.Context, actor access.Actor, id int64) error {
	return r.ApproveSeen(ctx, actor, id, "")
}

// ApproveSeen is Approve by somebody who saw the plan with that digest
// (Replay.Bound): what has changed since is ErrApprovalVoid. "" sees nothing.
func (r *Replays) ApproveSeen(ctx context.Context, actor access.Actor, id int64, seen string) error {
	return r.decide(ctx, actor, id, "approved", func(tx pgx.Tx, p *replayRow) error {
		if seen != "" && seen != hex.EncodeToString(p.bound()) {
			return ErrApprovalVoid
		}
		_, err := tx.Exec(ctx, sqlApprove, pgx.NamedArgs{"id": id, "by": actor.User, "reason": storableText(actor.Reason), "digest": p.bound()})
		return err
	})
}

// Reject cancels a replay that awaits approval. Errors as of Approve.
func (r *Replays) Reject(ctx context.Context, actor access.Actor, id int64) error {
	return r.decide(ctx, actor, id, "rejected", func(tx pgx.Tx, _ *replayRow) error {
		return execReplay(ctx, tx, sqlReject, id, actor)
	})
}

func (r *Replays) decide(ctx context.Context, actor access.Actor, id int64, act string, do func(pgx.Tx, *replayRow) error) error {
	return r.command(ctx, actor, access.ApproveReplay, id, act, func(tx pgx.Tx, p *replayRow) (bool, error) {
		switch {
		case p.state != AwaitingApproval:
			return false, p.conflict(id)
		case p.createdBy == actor.User:
			return false, ErrOwnApproval
		case strings.TrimSpace(actor.Reason) == "":
			return false, access.ErrReasonRequired
		}
		return true, do(tx, p)
	})
}

// Pause stops sending; what was sent is still watched. Errors:
// access.ErrForbidden, ErrNotFound, *ErrConflict.
func (r *Replays) Pause(ctx context.Context, actor access.Actor, id int64) error {
	return r.command(ctx, actor, access.StartReplay, id, "paused", func(tx pgx.Tx, p *replayRow) (bool, error) {
		if p.state != Running {
			return false, p.conflict(id)
		}
		return true, execReplay(ctx, tx, sqlPause, id, actor)
	})
}

// Resume goes on with a paused replay: with the next rung where the last one was
// sent, and in spite of the failures so far where the stop rule had paused it.
// Errors: access.ErrForbidden, ErrNotFound, *ErrConflict.
func (r *Replays) Resume(ctx context.Context, actor access.Actor, id int64) error {
	return r.command(ctx, actor, access.StartReplay, id, "resumed", func(tx pgx.Tx, p *replayRow) (bool, error) {
		if p.state != Paused {
			return false, p.conflict(id)
		}
		bad, tried, err := r.failed(ctx, id, p.sent)
		if err != nil {
			return false, err
		}
		climb := p.pausedBy != nil && *p.pausedBy != pausedByUser && p.nextNo > p.pace.rungEnd(p.rung, p.total)
		seen := p.pausedBy != nil && *p.pausedBy != pausedByUser
		_, err = tx.Exec(ctx, sqlResume, pgx.NamedArgs{"id": id, "by": actor.User, "climb": climb, "seen": seen, "bad": bad, "tried": tried})
		if err != nil {
			return false, err
		}
		return true, r.insertStep(ctx, tx, stepArgs{Replay: id, Epoch: p.epoch}, 0)
	})
}

// Cancel gives up what was not sent; what was sent is still watched. Errors:
// access.ErrForbidden, ErrNotFound, *ErrConflict.
func (r *Replays) Cancel(ctx context.Context, actor access.Actor, id int64) error {
	return r.command(ctx, actor, access.PlanReplay, id, "canceled", func(tx pgx.Tx, p *replayRow) (bool, error) {
		switch p.state {
		case Planned, AwaitingApproval, Planning:
			return true, execReplay(ctx, tx, sqlCancelUnstarted, id, actor)
		case Scheduled:
			if err := schedule.Drop(ctx, tx, startSchedule, strconv.FormatInt(id, 10)); err != nil {
				return false, err
			}
			return true, execReplay(ctx, tx, sqlCancel, id, actor)
		case Running, Paused:
			return true, r.run(ctx, tx, id, p.epoch, sqlCancel, actor)
		}
		return false, p.conflict(id)
	})
}

const (
	sqlStart = `
UPDATE replay SET state = 4, started_by = @by, started_at = now(), reason = CASE WHEN reason = '' THEN @reason ELSE reason END,
  state_by = @by, state_at = now(), version = version + 1
WHERE id = @id AND state = 1`
	sqlApprove = `
UPDATE replay SET state = 1, approved_by = @by, approved_at = now(), approval_reason = @reason, approved_digest = @digest,
  state_by = @by, state_at = now(), version = version + 1
WHERE id = @id AND state = 2`
	sqlReject = `
UPDATE replay SET state = 7, rejected_by = @by, approval_reason = @reason, finished_at = now(),
  state_by = @by, state_at = now(), version = version + 1
WHERE id = @id AND state = 2`
	sqlPause = `
UPDATE replay SET state = 5, paused_by = 1, wait_key = NULL, wait_text = NULL, wait_args = NULL, wait_since = NULL, state_by = @by, state_at = now(), version = version + 1
WHERE id = @id AND state = 4`
	sqlResume = `
UPDATE replay SET state = 4, paused_by = NULL, rung = rung + CASE WHEN @climb THEN 1 ELSE 0 END,
  stop_bad = CASE WHEN @seen THEN @bad ELSE stop_bad END, stop_tried = CASE WHEN @seen THEN @tried ELSE stop_tried END,
  wait_key = NULL, wait_text = NULL, wait_args = NULL, wait_since = NULL, state_by = @by, state_at = now(), version = version + 1
WHERE id = @id AND state = 5`
	sqlCancelUnstarted = `
UPDATE replay SET state = 7, finished_at = now(), state_by = @by, state_at = now(), version = version + 1
WHERE id = @id AND state IN (1, 2, 8)`
	sqlCancel = `
UPDATE replay SET state = 7, paused_by = NULL, wait_key = NULL, wait_text = NULL, wait_args = NULL, wait_since = NULL, finished_at = now(), state_by = @by, state_at = now(), version = version + 1
WHERE id = @id AND state IN (3, 4, 5)`
)

// replayRow is what a command needs to know, read under the row's lock.
type replayRow struct {
	state     ReplayState
	epoch     int
	total     int
	digest    []byte
	reason    string
	createdBy string
	startedBy *string
	stateBy   *string
	stateAt   time.Time

	detail map[string]any // of the command, for its audit row

	pace               Pace
	rung, nextNo, sent int
	pausedBy           *int16
	approvalNeeded     bool
	approvedDigest     []byte
	approvedAt         *time.Time
	approvalExpired    bool
}

// bound is what an approval is bound to: the frozen set, which pins revisions and
// overrides, and the pace.
func (p *replayRow) bound() []byte { return boundDigest(p.digest, p.pace) }

func boundDigest(set []byte, pace Pace) []byte {
	h := sha256.New()
	h.Write(set)
	h.Write(pace.bytes())
	return h.Sum(nil)
}

// Bound names what an approval of the replay is bound to: its set and its pace.
func (p Replay) Bound() string { return hex.EncodeToString(boundDigest(p.Digest, p.Pace)) }

func (p *replayRow) conflict(id int64) error {
	e := &ErrConflict{Replay: id, State: p.state, At: p.stateAt}
	if p.stateBy != nil {
		e.By = *p.stateBy
	}
	return e
}

const sqlLockReplay = `
SELECT state, epoch, total, digest, reason, created_by, started_by, state_by, state_at,
  pace, rung, next_no, sent, paused_by, approval_needed, approved_digest, approved_at,
  coalesce(approved_at < now() - @approval_for::interval, false)
FROM replay WHERE id = @id FOR NO KEY UPDATE`

// command runs one change under the replay's lock, with its audit row. do
// reports whether it changed anything.
func (r *Replays) command(ctx context.Context, actor access.Actor, act access.Act, id int64, did string, do func(pgx.Tx, *replayRow) (bool, error)) error {
	if err := actor.Check(act); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		p, err := r.lock(ctx, tx, id)
		if err != nil {
			return err
		}
		changed, err := do(tx, p)
		if err != nil || !changed {
			return err
		}
		detail := map[string]any{"digest": hex.EncodeToString(p.digest), "items": p.total, "state_before": p.state.String()}
		maps.Copy(detail, p.detail)
		return audit.Write(ctx, tx, actor, audit.Entry{Action: "replay." + did, Target: fmt.Sprintf("replay/%d", id), Detail: detail})
	})
	if err != nil {
		return fmt.Errorf("replay %d: %w", id, err)
	}
	return nil
}

// lock reads a replay and holds it until the transaction ends. Errors: ErrNotFound.
func (r *Replays) lock(ctx context.Context, tx pgx.Tx, id int64) (*replayRow, error) {
	p := &replayRow{}
	err := tx.QueryRow(ctx, sqlLockReplay, pgx.NamedArgs{"id": id, "approval_for": r.opts.ApprovalFor}).
		Scan(&p.state, &p.epoch, &p.total, &p.digest, &p.reason, &p.createdBy, &p.startedBy, &p.stateBy, &p.stateAt,
			&p.pace, &p.rung, &p.nextNo, &p.sent, &p.pausedBy, &p.approvalNeeded, &p.approvedDigest, &p.approvedAt, &p.approvalExpired)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return p, err
}

// run makes a change after which the steps go on.
func (r *Replays) run(ctx context.Context, tx pgx.Tx, id int64, epoch int, sql string, actor access.Actor) error {
	if err := execReplay(ctx, tx, sql, id, actor); err != nil {
		return err
	}
	return r.insertStep(ctx, tx, stepArgs{Replay: id, Epoch: epoch}, 0)
}

func execReplay(ctx context.Context, tx pgx.Tx, sql string, id int64, actor access.Actor) error {
	args := pgx.NamedArgs{"id": id, "by": actor.User}
	if strings.Contains(sql, "@reason") {
		args["reason"] = storableText(actor.Reason)
	}
	tag, err := tx.Exec(ctx, sql, args)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("changed %d rows", tag.RowsAffected())
	}
	return nil
}

// maxAsked is the size up to which Start looks whether others hold everything;
// beyond it that is not to be expected.
const maxAsked = 1000

const sqlOtherHolds = `
SELECT m.no, h.id, h.state, h.by, h.at, h.letter_id
FROM (SELECT no FROM replay_item WHERE replay_id = @id AND state = 0 ORDER BY no LIMIT @limit) m
LEFT JOIN LATERAL (
  SELECT o.id, o.state, coalesce(o.started_by, o.created_by) AS by, coalesce(o.started_at, o.created_at) AS at, mine.letter_id
  FROM replay_item_letter mine
  JOIN replay_item_letter other ON other.letter_id = mine.letter_id AND other.replay_id <> mine.replay_id
  JOIN replay o ON o.id = other.replay_id
  JOIN replay_item i ON i.replay_id = other.replay_id AND i.no = other.no
  WHERE mine.replay_id = @id AND mine.no = m.no
    AND (o.state IN (3, 4, 5) AND i.state IN (0, 1)
      OR EXISTS (SELECT FROM event_claim c WHERE c.kind = 1 AND c.holder_id = other.replay_id AND c.item_no = other.no))
  LIMIT 1) h ON true`

// otherHolds returns *ErrConflict when every item's letters are in the hands of
// another replay. It only spares a vain start: the claims decide.
func otherHolds(ctx context.Context, tx pgx.Tx, id int64) error {
	type held struct {
		No       int
		ID       *int64
		State    *ReplayState
		By       *string
		At       *time.Time
		LetterID *uuid.UUID
	}
	rows, err := tx.Query(ctx, sqlOtherHolds, pgx.NamedArgs{"id": id, "limit": maxAsked + 1})
	if err != nil {
		return fmt.Errorf("query other holders: %w", err)
	}
	items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[held])
	if err != nil {
		return fmt.Errorf("read other holders: %w", err)
	}
	free := slices.ContainsFunc(items, func(h held) bool { return h.ID == nil })
	if len(items) == 0 || len(items) > maxAsked || free {
		return nil
	}
	h := items[0]
	return &ErrConflict{Replay: *h.ID, State: *h.State, By: *h.By, At: *h.At, Letter: h.LetterID}
}
