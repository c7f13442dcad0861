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
func (r *Replays) judgeSelection(ctx context.Context, req PlanRequest) (*planSet, error) {
	set := newPlanSet(req)
	take := func(ids []uuid.UUID, states map[uuid.UUID]State) error {
		if set.letters+len(ids) > r.opts.PlanLimit {
			return &ErrTooManyLetters{Limit: r.opts.PlanLimit}
		}
		return r.judgeInto(ctx, set, ids, states)
	}
	var err error
	if req.Selection.Filter == nil && req.Selection.FaultID == 0 {
		err = r.eachNamed(ctx, req.Selection.LetterIDs, take)
	} else {
		err = r.eachOpen(ctx, req.Selection, take)
	}
	if err != nil {
		return nil, err
	}
	return set, set.finish()
}

func (r *Replays) judgeInto(ctx context.Context, set *planSet, ids []uuid.UUID, states map[uuid.UUID]State) error {
	subjects, err := r.judge.Subjects(ctx, ids)
	if err != nil {
		return fmt.Errorf("read letters of a plan: %w", err)
	}
	judged, err := r.judge.Judge(ctx, subjects, set.target)
	if err != nil {
		return fmt.Errorf("judge letters of a plan: %w", err)
	}
	for i, s := range subjects {
		state := Open
		if states != nil {
			state = states[s.LetterID]
		}
		set.add(s, judged[i], state)
	}
	return nil
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
