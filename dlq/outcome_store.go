package dlq

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// claimOutcome ends a claim.
type claimOutcome struct {
	no      int
	group   int32 // allGroups: every group of the item
	outcome Outcome
	why     Reason
}

const allGroups = -1

const sqlSettleClaims = `
WITH o AS (
  SELECT * FROM unnest(@nos::int[], @groups::int[], @outcomes::smallint[], @reasons::text[], @keys::text[], @args::text[])
    u(no, grp, outcome, reason, key, args)),
gone AS (
  DELETE FROM event_claim c USING o
  WHERE c.kind = 1 AND c.holder_id = @id AND c.item_no BETWEEN @first AND @last AND c.item_no = o.no
    AND (o.grp = -1 OR c.group_id = o.grp)
  RETURNING c.item_no, c.group_id, c.verdict, o.outcome, o.reason, o.key, o.args)
INSERT INTO replay_outcome (replay_id, item_no, group_id, verdict, outcome, at, reason, reason_key, reason_args)
SELECT @id, item_no, group_id, verdict, outcome, now(), reason, key, args::jsonb FROM gone
ON CONFLICT (replay_id, item_no, group_id) DO UPDATE SET verdict = excluded.verdict, outcome = excluded.outcome,
  at = excluded.at, reason = excluded.reason, reason_key = excluded.reason_key, reason_args = excluded.reason_args`

// span is the least and the greatest of some item numbers. Statements name both
// beside the numbers: a plan made when the replay's rows were few would read all
// of them for each chunk.
func span(nos []int) (first, last int) {
	if len(nos) == 0 {
		return 0, 0
	}
	return slices.Min(nos), slices.Max(nos)
}

// settleClaims makes claims outcomes.
func (s *step) settleClaims(ctx context.Context, tx pgx.Tx, outs []claimOutcome) error {
	var nos []int
	var groups []int32
	var outcomes []int16
	var texts, keys, args []string
	for _, o := range outs {
		why := storeReason(o.why)
		nos, groups, outcomes = append(nos, o.no), append(groups, o.group), append(outcomes, int16(o.outcome))
		texts, keys, args = append(texts, why.Text), append(keys, why.Key), append(args, string(why.Args))
	}
	first, last := span(nos)
	_, err := tx.Exec(ctx, sqlSettleClaims, pgx.NamedArgs{
		"id": s.id, "first": first, "last": last, "nos": nos, "groups": groups, "outcomes": outcomes, "reasons": texts, "keys": keys, "args": args,
	})
	if err != nil {
		return fmt.Errorf("settle claims: %w", err)
	}
	return nil
}

const sqlNotePassed = `
UPDATE event_claim c SET passed_at = now()
FROM unnest(@nos::int[], @groups::int[]) u(no, grp)
WHERE c.kind = 1 AND c.holder_id = @id AND c.item_no BETWEEN @first AND @last AND c.item_no = u.no AND c.group_id = u.grp AND c.passed_at IS NULL`

// store writes outcomes, moves the letters whose own outcome is known, and notes
// which groups were first seen beyond their offsets.
func (w *watch) store(ctx context.Context, outs []claimOutcome, passed []pendingClaim) error {
	var nos []int
	var groups []int32
	for _, c := range passed {
		if !c.Passed {
			nos, groups = append(nos, c.No), append(groups, c.GroupID)
		}
	}
	if len(outs) == 0 && len(nos) == 0 {
		return nil
	}
	err := w.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		if len(nos) > 0 {
			first, last := span(nos)
			if _, err := tx.Exec(ctx, sqlNotePassed, pgx.NamedArgs{"id": w.id, "first": first, "last": last, "nos": nos, "groups": groups}); err != nil {
				return fmt.Errorf("note who passed: %w", err)
			}
		}
		if len(outs) == 0 {
			return nil
		}
		if err := lockItemLetters(ctx, tx, w.id, outs); err != nil {
			return err
		}
		if err := w.settleClaims(ctx, tx, outs); err != nil {
			return err
		}
		return moveLetters(ctx, tx, w.id, outs)
	})
	if err != nil {
		return fmt.Errorf("store outcomes: %w", err)
	}
	return nil
}

const sqlLockItemLetters = `
SELECT d.id FROM replay_item_letter l JOIN dead_letter d ON d.id = l.letter_id
WHERE l.replay_id = @id AND l.no BETWEEN @first AND @last AND l.no = ANY(@nos) ORDER BY d.id FOR NO KEY UPDATE OF d`

// lockItemLetters takes the letters before the claims, as a sending chunk does.
func lockItemLetters(ctx context.Context, tx pgx.Tx, id int64, outs []claimOutcome) error {
	nos := outcomeNos(outs)
	first, last := span(nos)
	if _, err := tx.Exec(ctx, sqlLockItemLetters, pgx.NamedArgs{"id": id, "first": first, "last": last, "nos": nos}); err != nil {
		return fmt.Errorf("lock letters: %w", err)
	}
	return nil
}

func outcomeNos(outs []claimOutcome) []int {
	nos := make([]int, 0, len(outs))
	for _, o := range outs {
		if len(nos) == 0 || nos[len(nos)-1] != o.no {
			nos = append(nos, o.no)
		}
	}
	return nos
}

// sqlMoveLetters moves each letter whose own group has its outcome; a letter
// whose group the target did not reach waits for all of the item's. Applied and
// duplicate resolve it. Unverified resolves it only where somebody sent it in
// spite of its verdict, and the group has passed it without its coming back:
// nothing better can ever be known then, and an open letter would ask to be sent,
// unprotected, again. All else makes it open: what failed
// again or was swallowed needs somebody, whatever it was before; the rest goes
// back to what it was at plan. A letter that is open again is judged anew.
const sqlMoveLetters = `
WITH mine AS MATERIALIZED (
  SELECT l.letter_id, l.from_state, l.no, d.group_id, d.verdict, c.n AS claims
  FROM replay_item_letter l JOIN dead_letter d ON d.id = l.letter_id
  CROSS JOIN LATERAL (SELECT count(*) AS n FROM event_claim c WHERE c.kind = 1 AND c.holder_id = @id AND c.item_no = l.no) c
  WHERE l.replay_id = @id AND l.no BETWEEN @first AND @last AND l.no = ANY(@nos) AND d.state + 0 = 2),
told AS (
  SELECT m.letter_id, m.from_state, m.verdict,
    CASE WHEN o.own THEN o.own_good ELSE o.good END AS good, CASE WHEN o.own THEN o.own_bad ELSE o.bad END AS bad
  FROM mine m
  CROSS JOIN LATERAL (
    SELECT bool_or(x.mine) AS own, bool_and(x.good) AS good, bool_or(x.bad) AS bad,
      bool_and(x.good) FILTER (WHERE x.mine) AS own_good, bool_or(x.bad) FILTER (WHERE x.mine) AS own_bad
    FROM (
      SELECT o.group_id = m.group_id AS mine, o.outcome = ANY(@bad) AS bad,
        o.outcome = ANY(@good) OR o.outcome = @unverified AND o.reason_key = ANY(@passed) AND EXISTS (
          SELECT FROM replay_override v WHERE v.replay_id = @id AND v.letter_id = m.letter_id AND v.group_id = o.group_id) AS good
      FROM replay_outcome o WHERE o.replay_id = @id AND o.item_no = m.no) x) o
  WHERE o.own OR o.own IS NOT NULL AND m.claims = 0),
going AS (
  SELECT letter_id, verdict AS was, CASE WHEN good THEN 3 WHEN bad THEN 1 ELSE from_state END AS state FROM told),
moved AS (
  UPDATE dead_letter d SET state = g.state, state_at = now(),
    verdict = CASE WHEN g.state = 1 THEN 0 ELSE d.verdict END, verdict_at = CASE WHEN g.state <> 1 THEN d.verdict_at END
  FROM going g WHERE d.id = g.letter_id AND d.state + 0 = 2 RETURNING d.fault_id, g.was, d.verdict, d.state)
INSERT INTO fault_delta (fault_id, state, verdict, n)
SELECT m.fault_id, s.state, s.verdict, s.sign * count(*)
FROM moved m CROSS JOIN LATERAL (VALUES (2::smallint, m.was, -1), (m.state, m.verdict, 1)) s(state, verdict, sign)
GROUP BY m.fault_id, s.state, s.verdict, s.sign`

func moveLetters(ctx context.Context, tx pgx.Tx, id int64, outs []claimOutcome) error {
	nos := outcomeNos(outs)
	first, last := span(nos)
	_, err := tx.Exec(ctx, sqlMoveLetters, pgx.NamedArgs{
		"id": id, "first": first, "last": last, "nos": nos,
		"good": []int16{int16(Applied), int16(Duplicate), int16(DuplicateExpected)}, "unverified": int16(Unverified), "passed": []string{outcomeNoEvidence, outcomeQueueEmpty},
		"bad": []int16{int16(FailedAgain), int16(Swallowed)},
	})
	if err != nil {
		return fmt.Errorf("move letters: %w", err)
	}
	return nil
}

// itemGroup is one item in one group.
type itemGroup struct {
	no    int
	group int32
}

// sqlCameBack finds what the drain joined to the items' letters, and letters of
// their own whose origin is where an item was sent: a group that had no letter of
// the event, or an event without an id.
const sqlCameBack = `
WITH sent AS (
  SELECT * FROM unnest(@nos::int[], @groups::int[], @events::text[], @topics::text[], @parts::int[], @offs::bigint[])
    u(no, grp, event, topic, part, off))
SELECT s.no, s.grp, d.id
FROM sent s
JOIN replay_item_letter l ON l.replay_id = @id AND l.no = s.no
JOIN dead_letter d ON d.id = l.letter_id AND d.group_id = s.grp
WHERE EXISTS (SELECT FROM letter_occurrence o WHERE o.letter_id = d.id AND o.replay_id = @id AND o.item_no = s.no)
UNION ALL
SELECT s.no, s.grp, d.id
FROM sent s
JOIN dead_letter d ON d.event_id = s.event AND d.group_id = s.grp AND d.origin_partition = s.part AND d.origin_offset = s.off
JOIN letter_name t ON t.id = d.origin_id AND t.name = s.topic
UNION ALL
SELECT s.no, s.grp, d.id
FROM (SELECT s.*, i.sent_at FROM sent s JOIN replay_item i ON i.replay_id = @id AND i.no = s.no WHERE s.event LIKE E'\x01%') s
JOIN dead_letter d ON d.group_id = s.grp AND d.state IN (1, 2, 3, 4) AND d.id > letter_month(s.sent_at - interval '10 minutes')
  AND d.origin_partition = s.part AND d.origin_offset = s.off
JOIN letter_name t ON t.id = d.origin_id AND t.name = s.topic`

// cameBack finds the claims whose message was dead-lettered again.
func (w *watch) cameBack(ctx context.Context, claims []pendingClaim) (map[itemGroup]*uuid.UUID, error) {
	var nos []int
	var groups, parts []int32
	var events, topics []string
	var offs []int64
	for _, c := range claims {
		nos, groups, events = append(nos, c.No), append(groups, c.GroupID), append(events, c.Key)
		topics = append(topics, w.targets[c.TargetID].Topic)
		parts, offs = append(parts, c.Partition), append(offs, c.Offset)
	}
	rows, err := w.r.pool.Query(ctx, sqlCameBack, pgx.NamedArgs{
		"id": w.id, "nos": nos, "groups": groups, "events": events, "topics": topics, "parts": parts, "offs": offs,
	})
	if err != nil {
		return nil, fmt.Errorf("query what came back: %w", err)
	}
	failed := map[itemGroup]*uuid.UUID{}
	var k itemGroup
	var letter uuid.UUID
	_, err = pgx.ForEachRow(rows, []any{&k.no, &k.group, &letter}, func() error {
		id := letter
		failed[k] = &id
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read what came back: %w", err)
	}
	return failed, nil
}
