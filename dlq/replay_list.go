package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// ReplayFilter narrows a list of replays. Zero values do not filter.
type ReplayFilter struct {
	State   ReplayState
	FaultID int32
	By      string // who planned it
}

// ReplayPage is a part of the list, newest first. Its replays are those of Get
// without their overrides.
type ReplayPage struct {
	Items []Replay
	Next  string // "" at the end
}

const sqlReplayColumns = `
SELECT r.id, r.state, coalesce(r.paused_by, 0), r.target, r.letters, r.total, r.sent, r.refused, r.verdicts, r.fault_id,
  r.reason, r.created_by, r.created_at, r.approval_needed, r.approved_by, r.approved_at, coalesce(r.approval_reason, ''),
  r.rejected_by, r.started_by, r.started_at, r.finished_at,
  r.waiting, r.left_out, r.refusals, r.pace, r.rung, r.wait_key, r.wait_text, r.wait_args, r.wait_since, r.digest,
  r.approved_at + @approval_for::interval, r.plan_total, r.elders, r.elders_bounded, r.redo_of,
  r.epoch = 0 AND r.state = 4 AND r.state_at < now() - interval '15 seconds',
  f.bad, r.sent + f.unsent
FROM replay r CROSS JOIN LATERAL (
  SELECT count(DISTINCT o.item_no)::int AS bad, (count(DISTINCT o.item_no) FILTER (WHERE o.outcome IN (9, 10)))::int AS unsent
  FROM replay_outcome o WHERE o.replay_id = r.id AND o.outcome IN (5, 6, 7, 9, 10)) f`

const sqlReplay = sqlReplayColumns + ` WHERE r.id = @id`

const sqlReplayPage = sqlReplayColumns + `
WHERE (@state = 0 OR r.state = @state) AND (@fault = 0 OR r.fault_id = @fault) AND (@by = '' OR r.created_by = @by)
  AND r.id < @before
ORDER BY r.id DESC LIMIT @limit`

// Get reads one replay with its numbers. Errors: ErrNotFound.
func (r *Replays) Get(ctx context.Context, id int64) (Replay, error) {
	row, err := r.replays(ctx, sqlReplay, pgx.NamedArgs{"id": id})
	if err != nil {
		return Replay{}, err
	}
	if len(row) == 0 {
		return Replay{}, fmt.Errorf("replay %d: %w", id, ErrNotFound)
	}
	if row[0].ApprovalNeeded {
		if row[0].Overrides, err = r.overridesOf(ctx, id); err != nil {
			return row[0], err
		}
		row[0].Sensitive, err = r.sensitive(ctx, id)
	}
	return row[0], err
}

const sqlReplaySensitive = `
SELECT EXISTS (SELECT FROM replay_item i JOIN letter_revision v ON v.letter_id = i.letter_id AND v.no <= i.revision
WHERE i.replay_id = @id AND i.revision > 0 AND v.sensitive)`

func (r *Replays) sensitive(ctx context.Context, id int64) (is bool, err error) {
	if err := r.pool.QueryRow(ctx, sqlReplaySensitive, pgx.NamedArgs{"id": id}).Scan(&is); err != nil {
		return false, fmt.Errorf("look for sensitive revisions of replay %d: %w", id, err)
	}
	return is, nil
}

// List gives one page of replays, newest first. Errors: *ErrBadFilter.
func (r *Replays) List(ctx context.Context, f ReplayFilter, p Page) (ReplayPage, error) {
	if f.State < 0 || f.State > Planning {
		return ReplayPage{}, &ErrBadFilter{Field: "state", Reason: "must be one of planned, awaiting_approval, scheduled, running, paused, done, canceled, planning"}
	}
	if err := filterText("by", f.By); err != nil {
		return ReplayPage{}, err
	}
	limit, before, err := p.place(f, maxPlace)
	if err != nil {
		return ReplayPage{}, err
	}
	found, err := r.replays(ctx, sqlReplayPage, pgx.NamedArgs{
		"state": int16(f.State), "fault": f.FaultID, "by": f.By, "before": before, "limit": limit + 1,
	})
	if err != nil {
		return ReplayPage{}, err
	}
	page := ReplayPage{Items: found[:min(len(found), limit)]}
	if len(found) > limit {
		page.Next = cursor{direction: older, sort: page.Items[limit-1].ID}.encode(f)
	}
	return page, nil
}

// maxPlace is a place after every row of a list that counts down.
const maxPlace = 1<<63 - 1

// place reads the size of a page and the number after which it begins.
func (p Page) place(filter any, first int64) (limit int, at int64, err error) {
	if limit, err = p.rows(); err != nil || p.Cursor == "" {
		return limit, first, err
	}
	c, err := decodeCursor(p.Cursor, filter)
	return limit, c.sort, err
}

func (r *Replays) replays(ctx context.Context, sql string, args pgx.NamedArgs) ([]Replay, error) {
	args["approval_for"] = r.opts.ApprovalFor
	rows, err := r.pool.Query(ctx, sql, args)
	if err != nil {
		return nil, fmt.Errorf("query replays: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanReplay)
	if err != nil {
		return nil, fmt.Errorf("read replays: %w", err)
	}
	by := make(map[int64]*Replay, len(found))
	for i := range found {
		by[found[i].ID] = &found[i]
	}
	if err := r.fillTargets(ctx, by); err != nil {
		return nil, err
	}
	return found, r.fillOutcomes(ctx, by)
}

var pausedByNames = map[int16]string{pausedByUser: "user", pausedByStopRule: "stop_rule", pausedByRung: "rung"}

func scanReplay(row pgx.CollectableRow) (Replay, error) {
	var p Replay
	var pausedBy int16
	var verdicts map[string]int
	var waitKey, waitText *string
	var waitArgs []byte
	var nobody bool
	err := row.Scan(&p.ID, &p.State, &pausedBy, &p.Target, &p.Letters, &p.Total, &p.Sent, &p.Refused, &verdicts, &p.FaultID,
		&p.Reason, &p.CreatedBy, &p.CreatedAt, &p.ApprovalNeeded, &p.ApprovedBy, &p.ApprovedAt, &p.ApprovalReason,
		&p.RejectedBy, &p.StartedBy, &p.StartedAt, &p.FinishedAt, &p.Waiting, &p.LeftOut, &p.RefusedN,
		&p.Pace, &p.Rung, &waitKey, &waitText, &waitArgs, &p.WaitSince, &p.Digest, &p.ApprovedUntil, &p.PlanTotal,
		&p.Elders, &p.EldersBounded, &p.RedoOf, &nobody, &p.Failed, &p.Tried)
	if p.Wait = loadReason(waitText, waitKey, waitArgs); nobody {
		p.Wait = replayReason("reason.wait.nobody")
	}
	p.PausedBy = pausedByNames[pausedBy]
	p.Outcomes, p.Verdicts = map[Outcome]int{}, namedVerdicts(verdicts)
	return p, err
}

const sqlReplayTargets = `
SELECT t.replay_id, t.cluster, CASE WHEN t.exchange = '' THEN t.topic ELSE t.exchange || ' → ' || t.topic END, array(
  SELECT coalesce(g.name, '') FROM unnest(t.groups) u(id) LEFT JOIN letter_name g ON g.id = u.id ORDER BY 1),
  coalesce((SELECT jsonb_object_agg(coalesce(g.name, ''), v.value) FROM jsonb_each(t.verdicts) v
    LEFT JOIN letter_name g ON g.id = v.key::int), '{}')
FROM replay_target t WHERE t.replay_id = ANY(@ids) ORDER BY t.id`

func (r *Replays) fillTargets(ctx context.Context, by map[int64]*Replay) error {
	rows, err := r.pool.Query(ctx, sqlReplayTargets, pgx.NamedArgs{"ids": slices.Collect(maps.Keys(by))})
	if err != nil {
		return fmt.Errorf("query targets of replays: %w", err)
	}
	var id int64
	var t ReplayTarget
	var counts map[string]map[string]int
	_, err = pgx.ForEachRow(rows, []any{&id, &t.Cluster, &t.Topic, &t.Groups, &counts}, func() error {
		by[id].Targets = append(by[id].Targets, ReplayTarget{
			Cluster: t.Cluster, Topic: t.Topic, Groups: slices.Clone(t.Groups), Verdicts: verdictsByGroup(counts)})
		counts = nil
		return nil
	})
	if err != nil {
		return fmt.Errorf("read targets of replays: %w", err)
	}
	return nil
}

func verdictsByGroup(counts map[string]map[string]int) map[string]map[Verdict]int {
	by := make(map[string]map[Verdict]int, len(counts))
	for group, named := range counts {
		by[group] = namedVerdicts(named)
	}
	return by
}

// namedVerdicts is the reverse of verdictCounts.
func namedVerdicts(named map[string]int) map[Verdict]int {
	counts := map[Verdict]int{}
	for v, name := range verdictNames {
		if n := named[name]; n > 0 {
			counts[v] = n
		}
	}
	return counts
}

// sqlReplayOutcomes counts per item and group. A claim without an outcome is
// pending, from before the message leaves.
const sqlReplayOutcomes = `
SELECT replay_id, outcome, count(*) FROM replay_outcome WHERE replay_id = ANY(@ids) GROUP BY 1, 2
UNION ALL
SELECT holder_id, @pending, count(*) FROM event_claim WHERE kind = 1 AND holder_id = ANY(@ids) GROUP BY 1`

func (r *Replays) fillOutcomes(ctx context.Context, by map[int64]*Replay) error {
	rows, err := r.pool.Query(ctx, sqlReplayOutcomes, pgx.NamedArgs{"ids": slices.Collect(maps.Keys(by)), "pending": int16(Pending)})
	if err != nil {
		return fmt.Errorf("query outcomes of replays: %w", err)
	}
	var id int64
	var outcome Outcome
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &outcome, &n}, func() error { by[id].Outcomes[outcome] = n; return nil }); err != nil {
		return fmt.Errorf("read outcomes of replays: %w", err)
	}
	return nil
}

const sqlReplayOverrides = `
SELECT o.letter_id, coalesce(g.name, ''), o.verdict, o.reason, coalesce(l.event_id, '')
FROM replay_override o LEFT JOIN letter_name g ON g.id = o.group_id AND o.group_id <> 0
  LEFT JOIN dead_letter l ON l.id = o.letter_id
WHERE o.replay_id = @id ORDER BY o.letter_id, 2 LIMIT 1000`

func (r *Replays) overridesOf(ctx context.Context, id int64) ([]Override, error) {
	rows, err := r.pool.Query(ctx, sqlReplayOverrides, pgx.NamedArgs{"id": id})
	if err != nil {
		return nil, fmt.Errorf("query overrides of replay %d: %w", id, err)
	}
	overrides, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Override])
	if err != nil {
		return nil, fmt.Errorf("read overrides of replay %d: %w", id, err)
	}
	return overrides, nil
}

const sqlVersion = `SELECT version FROM replay WHERE id = @id`

// Changed is a number that grows whenever anything of the replay changes, for
// whoever polls. Errors: ErrNotFound.
func (r *Replays) Changed(ctx context.Context, id int64) (int64, error) {
	var version int64
	err := r.pool.QueryRow(ctx, sqlVersion, pgx.NamedArgs{"id": id}).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("replay %d: %w", id, ErrNotFound)
	}
	if err != nil {
		return 0, fmt.Errorf("read version of replay %d: %w", id, err)
	}
	return version, nil
}
