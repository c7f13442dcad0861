package dlq

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"oncemore/internal/access"
	"oncemore/internal/audit"
)

const sqlInsertReplay = `
INSERT INTO replay (state, state_by, target, letters, total, waiting, refused, refusals, verdicts, digest, filter, fault_id, reason,
  created_by, approval_needed, request_key, request_digest, pace, redo_of, elders, elders_bounded, started_by, started_at, finished_at)
VALUES (@state, @by, @target, @letters, @total, @total, @refused, @refusals, @verdicts, @digest, @filter, @fault, @reason,
  @by, @approval, @key, @request, @pace, @redo, @elders, @bounded, CASE WHEN @started THEN @by END, CASE WHEN @started THEN now() END, CASE WHEN @finished THEN now() END)
RETURNING id`

// storePlan freezes the set: the replay, its targets, items, letters, refusals
// and overrides, the audit row and, for a safe replay, its first step.
func (r *Replays) storePlan(ctx context.Context, actor access.Actor, req PlanRequest, set *planSet) (Plan, error) {
	groups, err := groupIDs(ctx, r.pool, set.groupNames())
	if err != nil {
		return Plan{}, err
	}
	plan := set.summary()
	state, approval := r.firstState(req, set)
	plan.State = state
	err = pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		plan.ID, err = insertReplay(ctx, tx, actor, req, set, state, approval)
		if err != nil {
			return err
		}
		if err := storeSet(ctx, tx, plan.ID, set, groups); err != nil {
			return fmt.Errorf("freeze replay %d: %w", plan.ID, err)
		}
		if err := auditPlan(ctx, tx, actor, plan, req, set); err != nil {
			return err
		}
		if state == Running {
			return r.insertStep(ctx, tx, stepArgs{Replay: plan.ID}, 0)
		}
		return nil
	})
	if err != nil {
		return Plan{}, fmt.Errorf("plan replay: %w", err)
	}
	return plan, nil
}

func insertReplay(ctx context.Context, tx pgx.Tx, actor access.Actor, req PlanRequest, set *planSet, state ReplayState, approval bool) (id int64, err error) {
	filter, err := filterJSON(req.Selection.Filter)
	if err != nil {
		return 0, err
	}
	request, err := requestDigest(actor, req)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, sqlInsertReplay, pgx.NamedArgs{
		"state": int16(state), "by": actor.User, "target": int16(req.Target),
		"letters": set.letters, "total": len(set.items), "refused": set.refusedLetters(), "refusals": len(set.refused),
		"verdicts": verdictCounts(set.verdicts), "digest": set.digest(), "filter": filter,
		"fault": faultOf(req.Selection), "reason": storableText(actor.Reason), "approval": approval,
		"key": requestKey(actor, req), "request": request, "pace": req.Pace.bytes(), "redo": redoOf(req.Selection), "elders": len(set.elders), "bounded": set.bounded, "started": state == Running || state == Done, "finished": state == Done,
	}).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("insert replay: %w", err)
	}
	return id, nil
}

func faultOf(sel Selection) *int32 {
	switch {
	case sel.FaultID != 0:
		return &sel.FaultID
	case sel.Filter != nil && sel.Filter.FaultID != 0:
		return &sel.Filter.FaultID
	}
	return nil
}

func filterJSON(f *LetterFilter) ([]byte, error) {
	if f == nil {
		return nil, nil
	}
	b, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("marshal filter: %w", err)
	}
	return b, nil
}

// verdictCounts is the counts as a column holds them: {"safe": 3}.
func verdictCounts(counts map[Verdict]int) map[string]int {
	named := make(map[string]int, len(counts))
	for v, n := range counts {
		named[v.String()] = n
	}
	return named
}

func auditPlan(ctx context.Context, tx pgx.Tx, actor access.Actor, plan Plan, req PlanRequest, set *planSet) error {
	action := "replay.planned"
	if plan.State == Running || plan.State == Done {
		action = "replay.started"
	}
	return writePlan(ctx, tx, actor, action, plan, req, set)
}

// auditFrozen tells what a plan that was made in steps has become.
func auditFrozen(ctx context.Context, tx pgx.Tx, actor access.Actor, plan Plan, req PlanRequest, set *planSet) error {
	action := "replay.frozen"
	if plan.State == Running || plan.State == Done {
		action = "replay.started"
	}
	return writePlan(ctx, tx, actor, action, plan, req, set)
}

func writePlan(ctx context.Context, tx pgx.Tx, actor access.Actor, action string, plan Plan, req PlanRequest, set *planSet) error {
	return audit.Write(ctx, tx, actor, audit.Entry{
		Action: action, Target: fmt.Sprintf("replay/%d", plan.ID),
		Detail: map[string]any{
			"digest": hex.EncodeToString(set.digest()), "letters": set.letters, "items": plan.Total,
			"refused": plan.RefusedN, "overrides": len(set.overridden), "target": req.Target.String(),
			"state": plan.State.String(), "fault": req.Selection.FaultID, "filter": req.Selection.Filter,
		},
	})
}

const sqlInsertTarget = `
INSERT INTO replay_target (replay_id, cluster, exchange, topic, group_id, groups, verdicts)
VALUES (@replay, @cluster, @exchange, @topic, @group, @groups, @verdicts) RETURNING id`

// storeSet writes what the set holds, by COPY.
func storeSet(ctx context.Context, tx pgx.Tx, id int64, set *planSet, groups map[string]int32) error {
	targets, err := storeTargets(ctx, tx, id, set, groups)
	if err != nil {
		return err
	}
	var items, letters, refused, overrides, elders [][]any
	for i, it := range set.items {
		no := i + 1
		items = append(items, []any{id, no, targets[it.route], it.event, it.chief().id, int16(it.verdict), it.chief().revision, it.newest()})
		for _, l := range it.letters {
			letters = append(letters, []any{l.id, id, no, int16(l.state)})
		}
	}
	for i, ids := range set.elders {
		for _, elder := range ids {
			elders = append(elders, []any{id, i + 1, elder})
		}
	}
	for _, f := range set.refused {
		why := storeReason(f.Reason)
		refused = append(refused, []any{id, f.LetterID, groups[f.Group], int16(f.Verdict), why.Text, why.Key, why.Args})
	}
	for _, o := range set.overridden {
		overrides = append(overrides, []any{id, o.LetterID, groups[o.Group], int16(o.Verdict), storableText(o.Reason)})
	}
	for _, c := range []struct {
		table   string
		columns []string
		rows    [][]any
	}{
		{"replay_item", []string{"replay_id", "no", "target_id", "item_key", "letter_id", "verdict", "revision", "revision_newest"}, items},
		{"replay_item_letter", []string{"letter_id", "replay_id", "no", "from_state"}, letters},
		{"replay_refused", []string{"replay_id", "letter_id", "group_id", "verdict", "reason", "reason_key", "reason_args"}, refused},
		{"replay_elder", []string{"replay_id", "no", "letter_id"}, elders},
		{"replay_override", []string{"replay_id", "letter_id", "group_id", "verdict", "reason"}, overrides},
	} {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{c.table}, c.columns, pgx.CopyFromRows(c.rows)); err != nil {
			return fmt.Errorf("copy into %s: %w", c.table, err)
		}
	}
	return nil
}

// storeTargets gives each route of the set its id. The groups are those that any
// item of the route was judged to reach.
func storeTargets(ctx context.Context, tx pgx.Tx, id int64, set *planSet, groups map[string]int32) (map[Route]int32, error) {
	reached := map[Route][]int32{}
	verdicts := map[Route]map[int32]map[string]int{}
	for _, it := range set.items {
		for _, g := range it.groups {
			countVerdict(verdicts, it.route, groups[g.name], g.verdict)
			if !slices.Contains(reached[it.route], groups[g.name]) {
				reached[it.route] = append(reached[it.route], groups[g.name])
			}
		}
	}
	ids := make(map[Route]int32, len(reached))
	for route, reaches := range reached {
		var target int32
		err := tx.QueryRow(ctx, sqlInsertTarget, pgx.NamedArgs{
			"replay": id, "cluster": route.Cluster, "exchange": route.Exchange, "topic": route.Topic, "group": groups[route.Group], "groups": reaches, "verdicts": verdicts[route],
		}).Scan(&target)
		if err != nil {
			return nil, fmt.Errorf("insert target %s: %w", route.Topic, err)
		}
		ids[route] = target
	}
	return ids, nil
}

func countVerdict(counts map[Route]map[int32]map[string]int, route Route, group int32, v Verdict) {
	if counts[route] == nil {
		counts[route] = map[int32]map[string]int{}
	}
	if counts[route][group] == nil {
		counts[route][group] = map[string]int{}
	}
	counts[route][group][v.String()]++
}

func (s *planSet) groupNames() []string {
	var names []string
	note := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, it := range s.items {
		note(it.route.Group)
		for _, g := range it.groups {
			note(g.name)
		}
	}
	for _, r := range s.refused {
		note(r.Group)
	}
	return names
}
