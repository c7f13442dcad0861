package dlq

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// planChunk is how many letters are read and judged at a time.
const planChunk = 5_000

// judgeSelection reads the letters of a selection, judges them and collapses
// them into items. It holds no transaction: judging asks other databases, and a
// plan that waits for them must not keep a connection from them.
func (r *Replays) judgeSelection(ctx context.Context, req PlanRequest, named []uuid.UUID) (*planSet, error) {
	set := r.newSet(req)
	take := func(ids []uuid.UUID, states map[uuid.UUID]State) error {
		if set.letters+len(ids) > r.opts.PlanLimit {
			return &ErrTooManyLetters{Limit: r.opts.PlanLimit}
		}
		judged, err := r.judgeLetters(ctx, req, ids, states)
		for _, l := range judged {
			set.add(l.subject, l.judged, l.state)
		}
		return err
	}
	var err error
	if req.Selection.byName() {
		err = r.eachNamed(ctx, named, take)
	} else {
		err = r.eachOpen(ctx, req.Selection, take)
	}
	if err != nil {
		return nil, err
	}
	return set, r.finishSet(ctx, set)
}

func (r *Replays) newSet(req PlanRequest) *planSet {
	set := newPlanSet(req)
	set.cap = r.opts.ReplayCap
	return set
}

// finishSet decides what goes, and looks for what should go before it.
func (r *Replays) finishSet(ctx context.Context, set *planSet) error {
	if err := set.finish(); err != nil {
		return err
	}
	if err := r.findSensitive(ctx, set); err != nil {
		return err
	}
	return r.findElders(ctx, set)
}

// byName reports whether the letters are named one by one.
func (s Selection) byName() bool { return s.Filter == nil && s.FaultID == 0 }

// judgedLetter is a letter of a plan in its present state.
type judgedLetter struct {
	subject Subject
	judged  Judged
	state   State
}

func (r *Replays) judgeLetters(ctx context.Context, req PlanRequest, ids []uuid.UUID, states map[uuid.UUID]State) ([]judgedLetter, error) {
	subjects, err := r.judge.Subjects(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read letters of a plan: %w", err)
	}
	for i := range subjects {
		if err := req.choose(&subjects[i]); err != nil {
			return nil, err
		}
	}
	judged, err := r.judge.Judge(ctx, subjects, req.Target)
	if err != nil {
		return nil, fmt.Errorf("judge letters of a plan: %w", err)
	}
	out := make([]judgedLetter, len(subjects))
	for i, s := range subjects {
		out[i] = judgedLetter{s, judged[i], Open}
		if states != nil {
			out[i].state = states[s.LetterID]
		}
	}
	return out, nil
}

// choose sets which form of the letter is sent, where the request says it.
func (req PlanRequest) choose(s *Subject) error {
	no, chosen := req.Revisions[s.LetterID]
	if !chosen {
		return nil
	}
	if no < 0 || no > s.Revisions {
		return &ErrBadFilter{Field: "revisions", Reason: fmt.Sprintf("letter %s has no revision %d", s.LetterID, no)}
	}
	s.Revision = no
	return nil
}

const sqlRedo = `
SELECT DISTINCT l.letter_id FROM replay_item i JOIN replay_item_letter l ON l.replay_id = i.replay_id AND l.no = i.no
WHERE i.replay_id = @id AND EXISTS (
  SELECT FROM replay_outcome o WHERE o.replay_id = i.replay_id AND o.item_no = i.no AND o.outcome = ANY(@outcomes))
LIMIT @limit`

// named are the letters that a selection names: by id, or as what went wrong in
// an earlier replay. Errors: ErrNotFound, ErrNothingToSend, *ErrTooManyLetters.
func (r *Replays) named(ctx context.Context, sel Selection) ([]uuid.UUID, error) {
	if sel.RedoOf == 0 {
		return sel.LetterIDs, nil
	}
	if _, err := r.Changed(ctx, sel.RedoOf); err != nil {
		return nil, err
	}
	rows, err := r.pool.Query(ctx, sqlRedo, pgx.NamedArgs{"id": sel.RedoOf, "outcomes": failureOutcomes, "limit": r.opts.PlanLimit + 1})
	if err != nil {
		return nil, fmt.Errorf("query failed items of replay %d: %w", sel.RedoOf, err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	switch {
	case err != nil:
		return nil, fmt.Errorf("read failed items of replay %d: %w", sel.RedoOf, err)
	case len(ids) == 0:
		return nil, fmt.Errorf("replay %d: %w", sel.RedoOf, ErrNothingToSend)
	case len(ids) > r.opts.PlanLimit:
		return nil, &ErrTooManyLetters{Limit: r.opts.PlanLimit}
	}
	return ids, nil
}

func redoOf(sel Selection) *int64 {
	if sel.RedoOf == 0 {
		return nil
	}
	return &sel.RedoOf
}

const sqlLetterStates = `SELECT id, state FROM dead_letter WHERE id = ANY(@ids)`

// eachNamed walks letters that were named one by one. They may be in any state:
// one that is resolved can be sent again, the others are refused with a reason.
func (r *Replays) eachNamed(ctx context.Context, ids []uuid.UUID, take func([]uuid.UUID, map[uuid.UUID]State) error) error {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	for chunk := range slices.Chunk(slices.Compact(ids), planChunk) {
		states, err := r.letterStates(ctx, chunk)
		if err != nil {
			return err
		}
		if len(states) < len(chunk) {
			missing := slices.DeleteFunc(slices.Clone(chunk), func(id uuid.UUID) bool { return states[id] != 0 })
			return &ErrLettersNotFound{IDs: missing}
		}
		if err := take(chunk, states); err != nil {
			return err
		}
	}
	return nil
}

func (r *Replays) letterStates(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]State, error) {
	rows, err := r.pool.Query(ctx, sqlLetterStates, pgx.NamedArgs{"ids": ids})
	if err != nil {
		return nil, fmt.Errorf("query letter states: %w", err)
	}
	states := make(map[uuid.UUID]State, len(ids))
	var id uuid.UUID
	var state State
	_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error { states[id] = state; return nil })
	if err != nil {
		return nil, fmt.Errorf("read letter states: %w", err)
	}
	return states, nil
}

const sqlFaultThere = `SELECT EXISTS (SELECT FROM fault WHERE id = @fault)`

// eachOpen walks the open letters of a filter or a fault, oldest first, as far
// as they have arrived by now.
func (r *Replays) eachOpen(ctx context.Context, sel Selection, take func([]uuid.UUID, map[uuid.UUID]State) error) error {
	filter := LetterFilter{FaultID: sel.FaultID}
	if sel.Filter != nil {
		filter = *sel.Filter
	} else if err := r.faultThere(ctx, sel.FaultID); err != nil {
		return err
	}
	filter.State = Open
	letters := NewLetters(r.pool)
	return letters.eachMatch(ctx, filter, uuid.Nil, uuid.Nil, planChunk, func(ids []uuid.UUID) (bool, error) {
		return true, take(ids, nil)
	})
}

func (r *Replays) faultThere(ctx context.Context, fault int32) error {
	var there bool
	if err := r.pool.QueryRow(ctx, sqlFaultThere, pgx.NamedArgs{"fault": fault}).Scan(&there); err != nil {
		return fmt.Errorf("look up fault %d: %w", fault, err)
	}
	if !there {
		return fmt.Errorf("fault %d: %w", fault, ErrNotFound)
	}
	return nil
}
