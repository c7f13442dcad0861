package dlq

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"oncemore/internal/access"
)

// Plan freezes a set of letters and says what will be sent and what stays. The
// actor's reason becomes the replay's; ToSafe also starts it, so it needs one.
// A repeated RequestKey of the same user gives the replay it made. A set of more
// than ReplayOptions.PlanAtOnce letters is judged and frozen by steps: the answer
// is a replay in state Planning that becomes what it would be here. Errors:
// access.ErrForbidden, access.ErrReasonRequired, ErrBadSelection, ErrKeyReused,
// *ErrBadOverride, *ErrTooManyLetters, *ErrBadFilter, ErrNotFound (an
// *ErrLettersNotFound names the letters).
func (r *Replays) Plan(ctx context.Context, actor access.Actor, req PlanRequest) (Plan, error) {
	if err := checkPlan(actor, req); err != nil {
		return Plan{}, err
	}
	if req.RequestKey != "" {
		plan, err := r.planned(ctx, actor, req)
		if !errors.Is(err, ErrNotFound) {
			return plan, err
		}
	}
	plan, err := r.makePlan(ctx, actor, req)
	if repeatedRequest(err) { // the same form, sent twice at once
		return r.planned(ctx, actor, req)
	}
	return plan, err
}

func (r *Replays) makePlan(ctx context.Context, actor access.Actor, req PlanRequest) (Plan, error) {
	named, err := r.named(ctx, req.Selection)
	if err != nil {
		return Plan{}, err
	}
	large, n, err := r.large(ctx, req.Selection, named)
	if err != nil {
		return Plan{}, err
	}
	if large {
		return r.planInSteps(ctx, actor, req, named, n)
	}
	set, err := r.judgeSelection(ctx, req, named)
	if err != nil {
		return Plan{}, err
	}
	return r.storePlan(ctx, actor, req, set)
}

// DryRun says what Plan would, and keeps nothing. It judges at most
// ReplayOptions.PlanAtOnce letters: more is *ErrTooManyLetters.
func (r *Replays) DryRun(ctx context.Context, actor access.Actor, req PlanRequest) (Plan, error) {
	actor.Reason = "dry run"
	if err := checkPlan(actor, req); err != nil {
		return Plan{}, err
	}
	named, err := r.named(ctx, req.Selection)
	if err != nil {
		return Plan{}, err
	}
	if large, _, err := r.large(ctx, req.Selection, named); err != nil || large {
		return Plan{}, cmp.Or(err, error(&ErrTooManyLetters{Limit: r.opts.PlanAtOnce}))
	}
	set, err := r.judgeSelection(ctx, req, named)
	if err != nil {
		return Plan{}, err
	}
	plan := set.summary()
	plan.State, _ = r.firstState(req, set)
	return plan, nil
}

func checkPlan(actor access.Actor, req PlanRequest) error {
	if err := actor.Check(access.PlanReplay); err != nil {
		return err
	}
	if req.Target.String() == "" {
		return &ErrBadFilter{Field: "target", Reason: "must be origin, group or safe"}
	}
	if req.Target == ToSafe {
		if err := actor.Check(access.StartReplay); err != nil {
			return err
		}
		if strings.TrimSpace(actor.Reason) == "" {
			return access.ErrReasonRequired
		}
		if len(req.Overrides) > 0 {
			return &ErrBadOverride{Override: req.Overrides[0], Why: "a safe replay takes no overrides"}
		}
		if req.Pace.StartAt != nil {
			return &ErrBadFilter{Field: "start_at", Reason: "belongs to a plan: a safe replay starts at once"}
		}
	}
	if err := req.Pace.Check(); err != nil {
		return err
	}
	if err := req.Selection.check(); err != nil {
		return err
	}
	return checkOverrides(req.Overrides)
}

func (s Selection) check() error {
	n := 0
	for _, named := range []bool{len(s.LetterIDs) > 0, s.Filter != nil, s.FaultID != 0, s.RedoOf != 0} {
		if named {
			n++
		}
	}
	if n != 1 {
		return ErrBadSelection
	}
	if s.Filter != nil && s.Filter.State != 0 && s.Filter.State != Open {
		return &ErrBadFilter{Field: "state", Reason: "a replay takes open letters"}
	}
	return nil
}

func checkOverrides(overrides []Override) error {
	for _, o := range overrides {
		if strings.TrimSpace(o.Reason) == "" {
			return fmt.Errorf("override of letter %s: %w", o.LetterID, access.ErrReasonRequired)
		}
		if !o.Verdict.MayOverride() && o.Verdict != Altered { // whether that one may depends on its reason
			return &ErrBadOverride{Override: o, Why: fmt.Sprintf("%q cannot be overridden", o.Verdict)}
		}
	}
	return nil
}

// firstState is the state of a fresh plan, and whether it needs approval.
func (r *Replays) firstState(req PlanRequest, set *planSet) (ReplayState, bool) {
	needed := len(set.overridden) > 0 || set.sensitive || len(set.items) > r.opts.ApprovalSize
	switch {
	case needed:
		return AwaitingApproval, true
	case req.Target == ToSafe && len(set.items) == 0:
		return Done, false
	case req.Target == ToSafe:
		return Running, false
	}
	return Planned, false
}

// planned finds the plan that a request key already made. Errors: ErrNotFound,
// ErrKeyReused.
func (r *Replays) planned(ctx context.Context, actor access.Actor, req PlanRequest) (Plan, error) {
	const sqlByKey = `SELECT id, request_digest FROM replay WHERE request_key = @key`
	var id int64
	var made []byte
	err := r.pool.QueryRow(ctx, sqlByKey, pgx.NamedArgs{"key": requestKey(actor, req)}).Scan(&id, &made)
	if errors.Is(err, pgx.ErrNoRows) {
		return Plan{}, ErrNotFound
	}
	if err != nil {
		return Plan{}, fmt.Errorf("look up request key: %w", err)
	}
	asked, err := requestDigest(actor, req)
	if err != nil {
		return Plan{}, err
	}
	if made != nil && !bytes.Equal(asked, made) {
		return Plan{}, ErrKeyReused
	}
	return r.PlanOf(ctx, id)
}

// requestDigest tells requests with one key apart; nil without a key.
func requestDigest(actor access.Actor, req PlanRequest) ([]byte, error) {
	if req.RequestKey == "" {
		return nil, nil
	}
	b, err := json.Marshal(struct {
		PlanRequest
		Reason string
	}{req, actor.Reason})
	if err != nil {
		return nil, fmt.Errorf("marshal request: %w", err)
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// PlanOf gives the plan that Plan answered for a replay, in its present state.
// Errors: ErrNotFound.
func (r *Replays) PlanOf(ctx context.Context, id int64) (Plan, error) {
	replay, err := r.Get(ctx, id)
	if err != nil {
		return Plan{}, err
	}
	refused, err := r.Refused(ctx, id, Page{Limit: RefusalsShown})
	if err != nil {
		return Plan{}, err
	}
	return Plan{
		ID: id, State: replay.State, Letters: replay.Letters, Total: replay.Total,
		Verdicts: replay.Verdicts, Refused: refused.Items, RefusedN: replay.RefusedN,
	}, nil
}

// requestKey keeps the keys of different users apart.
func requestKey(actor access.Actor, req PlanRequest) *string {
	if req.RequestKey == "" {
		return nil
	}
	key := storableText(actor.User + "/" + req.RequestKey)
	return &key
}

func repeatedRequest(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == "replay_request_key_key"
}
