package dlq

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// sqlSaveHeadlines keeps the headline on the letter, where lists read it, and
// moves the fault's counters. Only columns without an index change. A verdict
// asked for earlier than the one kept is dropped.
const sqlSaveHeadlines = `
WITH u AS (SELECT * FROM unnest(@ids::uuid[], @verdicts::smallint[], @at::timestamptz[]) AS u(id, verdict, at)),
k AS MATERIALIZED (
  SELECT d.id, d.fault_id, d.state, d.verdict AS was, u.verdict, u.at
  FROM dead_letter d JOIN u ON u.id = d.id
  WHERE d.id = ANY(@ids) AND (d.verdict_at IS NULL OR d.verdict_at <= u.at)
  ORDER BY d.id FOR NO KEY UPDATE OF d),
w AS (UPDATE dead_letter d SET verdict = k.verdict, verdict_at = k.at FROM k WHERE d.id = k.id AND d.id = ANY(@ids))
INSERT INTO fault_delta (fault_id, state, verdict, n)
SELECT k.fault_id, k.state, s.verdict, sum(s.n)
FROM k CROSS JOIN LATERAL (VALUES (k.was, -1), (k.verdict, 1)) s(verdict, n)
WHERE k.was <> k.verdict GROUP BY 1, 2, 3`

const sqlSaveVerdicts = `
INSERT INTO letter_verdict AS v (letter_id, group_id, verdict, reached, reason, reason_key, reason_args, consumed_at, asked_at)
SELECT * FROM unnest(@letters::uuid[], @groups::int[], @verdicts::smallint[], @reached::boolean[],
  @texts::text[], @keys::text[], @args::jsonb[], @consumed::timestamptz[], @asked::timestamptz[])
ORDER BY 1, 2
ON CONFLICT (letter_id, group_id) DO UPDATE SET verdict = excluded.verdict, reached = excluded.reached,
  reason = excluded.reason, reason_key = excluded.reason_key, reason_args = excluded.reason_args,
  consumed_at = excluded.consumed_at, asked_at = excluded.asked_at
WHERE v.asked_at <= excluded.asked_at`

// sqlDropVerdicts forgets groups that no longer read the letter's topics.
const sqlDropVerdicts = `DELETE FROM letter_verdict WHERE letter_id = ANY(@ids) AND asked_at < @asked`

// Save keeps verdicts for the narrowest target (ToSafe) as the letters' cached
// ones: all of them for the letter's page, and the headline for lists and
// counters, so that a fault counts as safe exactly what one click would send. A
// letter that no target exists for is Unknown at best.
func (j *Judge) Save(ctx context.Context, judged []Judged) error {
	if len(judged) == 0 {
		return nil
	}
	judged = slices.Clone(judged)
	slices.SortFunc(judged, func(a, b Judged) int { return slices.Compare(a.LetterID[:], b.LetterID[:]) })
	judged = slices.CompactFunc(judged, func(a, b Judged) bool { return a.LetterID == b.LetterID })
	groups, err := groupIDs(ctx, j.pool, groupNames(judged))
	if err != nil {
		return err
	}
	heads, oldest := headlineArgs(judged)
	err = pgx.BeginFunc(ctx, j.pool, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(sqlSaveHeadlines, heads)
		b.Queue(sqlSaveVerdicts, verdictArgs(judged, groups))
		b.Queue(sqlDropVerdicts, pgx.NamedArgs{"ids": heads["ids"], "asked": oldest})
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return fmt.Errorf("save verdicts of %d letters: %w", len(judged), err)
	}
	return nil
}

func headlineArgs(judged []Judged) (args pgx.NamedArgs, oldest time.Time) {
	ids := make([]uuid.UUID, len(judged))
	verdicts := make([]int16, len(judged))
	at := make([]time.Time, len(judged))
	for i, l := range judged {
		own := l.Own()
		ids[i], verdicts[i], at[i] = l.LetterID, int16(min(own.Verdict, l.Headline)), own.AskedAt
		if oldest.IsZero() || own.AskedAt.Before(oldest) {
			oldest = own.AskedAt
		}
	}
	return pgx.NamedArgs{"ids": ids, "verdicts": verdicts, "at": at}, oldest
}

func verdictArgs(judged []Judged, groups map[string]int32) pgx.NamedArgs {
	var letters []uuid.UUID
	var ids []int32
	var verdicts []int16
	var reached []bool
	var texts, keys, args []string
	var consumed []*time.Time
	var askedAt []time.Time
	for _, l := range judged {
		for _, g := range l.Groups {
			kept := storeReason(g.Reason)
			letters, ids = append(letters, l.LetterID), append(ids, groups[g.Group])
			verdicts, reached = append(verdicts, int16(g.Verdict)), append(reached, g.Reached)
			texts, keys, args = append(texts, kept.Text), append(keys, kept.Key), append(args, string(kept.Args))
			consumed, askedAt = append(consumed, g.ConsumedAt), append(askedAt, g.AskedAt)
		}
	}
	return pgx.NamedArgs{"letters": letters, "groups": ids, "verdicts": verdicts, "reached": reached,
		"texts": texts, "keys": keys, "args": args, "consumed": consumed, "asked": askedAt}
}

// groupNames are the names of the judged groups, sorted.
func groupNames(judged []Judged) []string {
	names := map[string]bool{}
	for _, l := range judged {
		for _, g := range l.Groups {
			names[g.Group] = true
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// LookAgain judges letters anew, keeps what it found, and gives the verdicts for
// the asked target.
func (j *Judge) LookAgain(ctx context.Context, ids []uuid.UUID, target Target) ([]Judged, error) {
	subjects, err := j.Subjects(ctx, ids)
	if err != nil {
		return nil, err
	}
	narrow, err := j.Judge(ctx, subjects, ToSafe)
	if err != nil {
		return nil, err
	}
	if err := j.Save(ctx, narrow); err != nil || target == ToSafe {
		return narrow, err
	}
	return j.Judge(ctx, subjects, target)
}
