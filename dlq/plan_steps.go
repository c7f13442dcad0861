package dlq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

// large reports whether a selection is judged in steps, and how many letters it
// holds; 0: more than was counted.
func (r *Replays) large(ctx context.Context, sel Selection, named []uuid.UUID) (bool, int, error) {
	if sel.byName() {
		return len(named) > r.opts.PlanAtOnce, len(named), nil
	}
	filter := sel.openFilter()
	n, bounded, err := NewLetters(r.pool).Count(ctx, filter)
	if bounded {
		return true, 0, err
	}
	return int(n) > r.opts.PlanAtOnce, int(n), err
}

// openFilter is a fault's or a filter's selection: its open letters.
func (s Selection) openFilter() LetterFilter {
	filter := LetterFilter{FaultID: s.FaultID}
	if s.Filter != nil {
		filter = *s.Filter
	}
	filter.State = Open
	return filter
}

const sqlInsertPlanning = `
INSERT INTO replay (state, state_by, target, digest, filter, fault_id, reason, created_by, request_key, request_digest,
  pace, redo_of, request, plan_total)
VALUES (8, @by, @target, '', @filter, @fault, @reason, @by, @key, @digest, @pace, @redo, @request, @total)
RETURNING id`

// planInSteps asks for a plan that is too large for one request.
func (r *Replays) planInSteps(ctx context.Context, actor access.Actor, req PlanRequest, named []uuid.UUID, total int) (Plan, error) {
	if total > r.opts.PlanLimit {
		return Plan{}, &ErrTooManyLetters{Limit: r.opts.PlanLimit}
	}
	plan := Plan{State: Planning}
	args, err := planningArgs(actor, req, named, total)
	if err != nil {
		return plan, err
	}
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sqlInsertPlanning, args).Scan(&plan.ID); err != nil {
			return err
		}
		entry := audit.Entry{Action: "replay.planned", Target: fmt.Sprintf("replay/%d", plan.ID), Detail: map[string]any{
			"target": req.Target.String(), "state": Planning.String(), "fault": req.Selection.FaultID, "filter": req.Selection.Filter, "letters": total}}
		if err := audit.Write(ctx, tx, actor, entry); err != nil {
			return err
		}
		return r.insertStep(ctx, tx, stepArgs{Replay: plan.ID}, 0)
	})
	if err != nil {
		return plan, fmt.Errorf("plan replay in steps: %w", err)
	}
	return plan, nil
}

func planningArgs(actor access.Actor, req PlanRequest, named []uuid.UUID, total int) (pgx.NamedArgs, error) {
	digest, err := requestDigest(actor, req)
	if err != nil {
		return nil, err
	}
	filter, err := filterJSON(req.Selection.Filter)
	if err != nil {
		return nil, err
	}
	asked := req
	asked.Selection.LetterIDs = named
	request, err := json.Marshal(asked)
	if err != nil {
		return nil, fmt.Errorf("marshal request: %w", err)
	}
	return pgx.NamedArgs{
		"by": actor.User, "target": int16(req.Target), "filter": filter, "fault": faultOf(req.Selection),
		"reason": storableText(actor.Reason), "key": requestKey(actor, req), "digest": digest, "pace": req.Pace.bytes(),
		"redo": redoOf(req.Selection), "request": request, "total": total,
	}, nil
}

// planning is a plan that is being made.
type planning struct {
	req     PlanRequest
	after   uuid.UUID // the last letter that was judged
	upper   uuid.UUID // letters from here on arrived later
	letters int
	actor   access.Actor // who asked
}

const sqlPlanning = `
SELECT request, coalesce(plan_after, @none), letter_month(created_at + interval '1 millisecond'), letters, created_by, reason
FROM replay WHERE id = @id`

func (s *step) planning(ctx context.Context) (p planning, err error) {
	p.actor = access.Actor{Via: "system"}
	err = s.r.pool.QueryRow(ctx, sqlPlanning, pgx.NamedArgs{"id": s.id, "none": uuid.Nil}).
		Scan(&p.req, &p.after, &p.upper, &p.letters, &p.actor.User, &p.actor.Reason)
	if err != nil {
		return p, fmt.Errorf("read plan in the making: %w", err)
	}
	return p, nil
}

// planOn judges the next letters of a plan, for as long as a step goes on, and
// freezes the set after the last.
func (s *step) planOn(ctx context.Context) error {
	end := time.Now().Add(s.r.opts.StepTime)
	for {
		p, err := s.planning(ctx)
		if err != nil {
			return err
		}
		more, err := s.draftChunk(ctx, p)
		switch {
		case errors.Is(err, errNotRunning): // canceled meanwhile
			return s.dropDraft(context.WithoutCancel(ctx))
		case cannotBePlanned(err):
			return s.failPlan(ctx, err)
		case err != nil:
			return fmt.Errorf("judge letters of a plan: %w", err)
		case !more:
			return s.freeze(ctx, p)
		case time.Now().After(end) || ctx.Err() != nil:
			return s.end(context.WithoutCancel(ctx), progress{}, true)
		}
	}
}

// cannotBePlanned reports errors that no waiting mends.
func cannotBePlanned(err error) bool {
	var many *ErrTooManyLetters
	var bad *ErrBadFilter
	var override *ErrBadOverride
	return errors.As(err, &many) || errors.As(err, &bad) || errors.As(err, &override) || errors.Is(err, ErrNotFound)
}

// draftChunk judges one part of the selection and keeps it. more: there may be
// another.
func (s *step) draftChunk(ctx context.Context, p planning) (more bool, err error) {
	take := func(ids []uuid.UUID, states map[uuid.UUID]State) error {
		more = true
		if p.letters+len(ids) > s.r.opts.PlanLimit {
			return &ErrTooManyLetters{Limit: s.r.opts.PlanLimit}
		}
		judged, err := s.r.judgeLetters(ctx, p.req, ids, states)
		if err != nil {
			return err
		}
		return s.storeDraft(ctx, judged, ids[len(ids)-1])
	}
	if !p.req.Selection.byName() {
		err = NewLetters(s.r.pool).eachMatch(ctx, p.req.Selection.openFilter(), p.after, p.upper, planChunk, func(ids []uuid.UUID) (bool, error) {
			return false, take(ids, nil)
		})
		return more, err
	}
	ids := namedAfter(p.req.Selection.LetterIDs, p.after)
	if len(ids) == 0 {
		return false, nil
	}
	return more, s.r.eachNamed(ctx, ids[:min(len(ids), planChunk)], take)
}

const sqlDrafted = `
UPDATE replay SET letters = letters + @n, plan_after = @after, version = version + 1 WHERE id = @id`

func (s *step) storeDraft(ctx context.Context, judged []judgedLetter, last uuid.UUID) error {
	rows := make([][]any, len(judged))
	for i, l := range judged {
		rows[i] = []any{s.id, l.subject.LetterID, draftOf(l)}
	}
	return s.fenced(ctx, func(tx pgx.Tx, state ReplayState) error {
		if state != Planning {
			return errNotRunning
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"replay_draft"}, []string{"replay_id", "letter_id", "judged"}, pgx.CopyFromRows(rows)); err != nil {
			return fmt.Errorf("keep judged letters: %w", err)
		}
		_, err := tx.Exec(ctx, sqlDrafted, pgx.NamedArgs{"id": s.id, "n": len(rows), "after": last})
		return err
	})
}

const (
	sqlDropDraft = `DELETE FROM replay_draft WHERE replay_id = @id`
	sqlFailPlan  = `
UPDATE replay SET state = 7, finished_at = now(), state_by = 'system', state_at = now(),
  wait_key = @key, wait_text = @text, wait_args = @args, wait_since = now()
WHERE id = @id AND state = 8`
	sqlFreeze = `
UPDATE replay SET state = @state, state_by = 'system', state_at = now(), total = @total, waiting = @total, refused = @refused,
  refusals = @refusals, verdicts = @verdicts, digest = @digest, approval_needed = @approval, elders = @elders, elders_bounded = @bounded,
  request = NULL, started_by = CASE WHEN @started THEN created_by END, started_at = CASE WHEN @started THEN now() END,
  finished_at = CASE WHEN @finished THEN now() END
WHERE id = @id AND state = 8`
)

func (s *step) dropDraft(ctx context.Context) error {
	return s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		_, err := tx.Exec(ctx, sqlDropDraft, pgx.NamedArgs{"id": s.id})
		return errors.Join(err, s.release(ctx, tx))
	})
}

// failPlan ends a plan that cannot be made, with the reason.
func (s *step) failPlan(ctx context.Context, failed error) error {
	return s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		b := &pgx.Batch{}
		b.Queue(sqlDropDraft, pgx.NamedArgs{"id": s.id})
		b.Queue(sqlFailPlan, waitArgs(s.id, replayReason("reason.plan.failed", "error", failed.Error())))
		return errors.Join(tx.SendBatch(ctx, b).Close(), s.release(ctx, tx))
	})
}

// freeze makes the set of all judged letters, and the replay what Plan would have
// made it at once.
func (s *step) freeze(ctx context.Context, p planning) error {
	set, err := s.drafted(ctx, p)
	if cannotBePlanned(err) {
		return s.failPlan(ctx, err)
	}
	if err != nil {
		return err
	}
	groups, err := groupIDs(ctx, s.r.pool, set.groupNames())
	if err != nil {
		return err
	}
	plan := set.summary()
	plan.ID = s.id
	var approval bool
	plan.State, approval = s.r.firstState(p.req, set)
	return s.fenced(ctx, func(tx pgx.Tx, was ReplayState) error {
		if was != Planning {
			_, err := tx.Exec(ctx, sqlDropDraft, pgx.NamedArgs{"id": s.id})
			return errors.Join(err, s.release(ctx, tx))
		}
		return s.storeFrozen(ctx, tx, p, set, plan, approval, groups)
	})
}

func (s *step) storeFrozen(ctx context.Context, tx pgx.Tx, p planning, set *planSet, plan Plan, approval bool, groups map[string]int32) error {
	_, err := tx.Exec(ctx, sqlFreeze, pgx.NamedArgs{
		"id": s.id, "state": int16(plan.State), "total": len(set.items), "refused": set.refusedLetters(), "refusals": len(set.refused),
		"verdicts": verdictCounts(set.verdicts), "digest": set.digest(), "approval": approval, "elders": len(set.elders), "bounded": set.bounded,
		"started": plan.State == Running || plan.State == Done, "finished": plan.State == Done,
	})
	if err != nil {
		return fmt.Errorf("freeze replay %d: %w", s.id, err)
	}
	if err := storeSet(ctx, tx, s.id, set, groups); err != nil {
		return fmt.Errorf("freeze replay %d: %w", s.id, err)
	}
	if _, err := tx.Exec(ctx, sqlDropDraft, pgx.NamedArgs{"id": s.id}); err != nil {
		return err
	}
	if err := auditFrozen(ctx, tx, p.actor, plan, p.req, set); err != nil {
		return err
	}
	if err := s.release(ctx, tx); err != nil || plan.State != Running {
		return err
	}
	return s.r.insertStep(ctx, tx, stepArgs{Replay: s.id, Epoch: s.epoch}, 0)
}

// release gives the lease back: nothing is left for a step.
func (s *step) release(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, sqlEndStep, pgx.NamedArgs{"id": s.id, "paced": zeroNull(s.sendAt)})
	return err
}

const sqlDraft = `SELECT letter_id, judged FROM replay_draft WHERE replay_id = @id ORDER BY letter_id`

// drafted makes the set of what was judged.
func (s *step) drafted(ctx context.Context, p planning) (*planSet, error) {
	rows, err := s.r.pool.Query(ctx, sqlDraft, pgx.NamedArgs{"id": s.id})
	if err != nil {
		return nil, fmt.Errorf("query judged letters: %w", err)
	}
	set := s.r.newSet(p.req)
	var id uuid.UUID
	var l draftLetter
	_, err = pgx.ForEachRow(rows, []any{&id, &l}, func() error {
		judged := l.letter(id)
		set.add(judged.subject, judged.judged, judged.state)
		l = draftLetter{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read judged letters: %w", err)
	}
	return set, s.r.finishSet(ctx, set)
}
