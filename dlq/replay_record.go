package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// claimReplay is event_claim.kind of a replay.
const claimReplay = 1

const (
	sqlItemsSent = `
UPDATE replay_item i SET state = 2, sent_partition = nullif(u.part, -1), sent_offset = nullif(u.off, -1), sent_at = now()
FROM unnest(@nos::int[], @parts::int[], @offs::bigint[]) u(no, part, off)
WHERE i.replay_id = @id AND i.no BETWEEN @first AND @last AND i.no = u.no AND i.state = 1`
	sqlCountSent   = `UPDATE replay SET sent = sent + @n WHERE id = @id`
	sqlChunkState  = `UPDATE replay_chunk SET state = @state WHERE replay_id = @id AND from_no = @from`
	sqlItemsFailed = `
UPDATE replay_item i SET state = @state, reason = u.reason, reason_key = u.key, reason_args = u.args::jsonb
FROM unnest(@nos::int[], @reasons::text[], @keys::text[], @args::text[]) u(no, reason, key, args)
WHERE i.replay_id = @id AND i.no = u.no AND i.state = 1`
)

// recordChunk writes what came of a chunk. Items without an answer stay as they
// are, and the chunk stays open, for recovery.
func (s *step) recordChunk(ctx context.Context, c *chunk) error {
	going := c.going()
	if len(going) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	sent, refused, partly, open := s.sortResults(c, going)
	if open > 0 {
		s.log.Warn("broker did not confirm every message of a replay", slog.Int("unconfirmed", open), slog.Int("sent", len(sent)))
	}
	err := s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		if err := s.recordSent(ctx, tx, sent); err != nil {
			return err
		}
		if err := s.recordUnsent(ctx, tx, refused, NotSent, itemNotSent); err != nil {
			return err
		}
		if err := s.recordUnsent(ctx, tx, partly, Unconfirmed, itemUnconfirmed); err != nil {
			return err
		}
		if open > 0 {
			return nil
		}
		_, err := tx.Exec(ctx, sqlChunkState, pgx.NamedArgs{"id": s.id, "from": c.items[0].no, "state": 1})
		return err
	})
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// The states of replay_item.
const (
	itemWaiting int16 = iota
	itemSending
	itemSent
	itemLeftOut
	itemNotSent
	itemUnconfirmed
)

// sortResults tells what was sent, what was refused, what not every queue took,
// and counts what has no answer.
func (s *step) sortResults(c *chunk, items []*sendItem) (sent, refused, partly []*sendItem, open int) {
	for _, it := range items {
		switch {
		case it.result.err == nil:
			sent = append(sent, it)
		case it.result.refused():
			it.leftOut = replayReason("reason.not_sent.broker", "error", it.result.err.Error())
			refused = append(refused, it)
		case it.result.partly:
			it.leftOut = replayReason("reason.unconfirmed.partly", "topic", c.targets[it.targetID].place())
			partly = append(partly, it)
		default:
			open++
		}
	}
	return sent, refused, partly, open
}

func (s *step) recordSent(ctx context.Context, tx pgx.Tx, sent []*sendItem) error {
	if len(sent) == 0 {
		return nil
	}
	var nos []int
	var parts []int32
	var offs []int64
	for _, it := range sent {
		nos, parts, offs = append(nos, it.no), append(parts, it.result.partition), append(offs, it.result.offset)
	}
	first, last := span(nos)
	tag, err := tx.Exec(ctx, sqlItemsSent, pgx.NamedArgs{"id": s.id, "first": first, "last": last, "nos": nos, "parts": parts, "offs": offs})
	if err != nil {
		return fmt.Errorf("mark items sent: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlCountSent, pgx.NamedArgs{"id": s.id, "n": tag.RowsAffected()}); err != nil {
		return fmt.Errorf("count sent items: %w", err)
	}
	return nil
}

// recordUnsent ends items that were not sent, or nobody can tell: their claims
// become outcomes and their letters go back. Reasons are in leftOut.
func (s *step) recordUnsent(ctx context.Context, tx pgx.Tx, items []*sendItem, outcome Outcome, state int16) error {
	if len(items) == 0 {
		return nil
	}
	if err := s.putBack(ctx, tx, itemNos(items), outcome == NotSent); err != nil {
		return err
	}
	b := &pgx.Batch{}
	queueReasons(b, sqlItemsFailed, pgx.NamedArgs{"id": s.id, "state": state}, items)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("mark items %s: %w", outcome, err)
	}
	outs := make([]claimOutcome, len(items))
	for i, it := range items {
		outs[i] = claimOutcome{no: it.no, group: allGroups, outcome: outcome, why: it.leftOut}
	}
	return s.settleClaims(ctx, tx, outs)
}

func itemNos(items []*sendItem) []int {
	nos := make([]int, len(items))
	for i, it := range items {
		nos[i] = it.no
	}
	return nos
}

const sqlPutBack = `
WITH l AS MATERIALIZED (
  SELECT d.id, l.from_state, d.verdict AS was FROM replay_item_letter l JOIN dead_letter d ON d.id = l.letter_id
  WHERE l.replay_id = @id AND l.no BETWEEN @first AND @last AND l.no = ANY(@nos) AND d.state + 0 = 2
  ORDER BY d.id FOR NO KEY UPDATE OF d),
moved AS (
  UPDATE dead_letter d SET state = l.from_state, state_at = now(), replay_count = d.replay_count - @uncount,
    verdict = CASE WHEN l.from_state = 1 THEN 0 ELSE d.verdict END, verdict_at = CASE WHEN l.from_state <> 1 THEN d.verdict_at END
  FROM l WHERE d.id = l.id RETURNING d.fault_id, l.was, d.verdict, d.state)
INSERT INTO fault_delta (fault_id, state, verdict, n)
SELECT m.fault_id, s.state, s.verdict, s.sign * count(*)
FROM moved m CROSS JOIN LATERAL (VALUES (2::smallint, m.was, -1), (m.state, m.verdict, 1)) s(state, verdict, sign)
GROUP BY m.fault_id, s.state, s.verdict, s.sign`

// putBack gives letters the state that they had at plan, and has the open ones
// judged anew. uncount: nothing was sent, so it does not count as a replay of the
// letter.
func (s *step) putBack(ctx context.Context, tx pgx.Tx, nos []int, uncount bool) error {
	n := 0
	if uncount {
		n = 1
	}
	first, last := span(nos)
	if _, err := tx.Exec(ctx, sqlPutBack, pgx.NamedArgs{"id": s.id, "first": first, "last": last, "nos": nos, "uncount": n}); err != nil {
		return fmt.Errorf("put letters back: %w", err)
	}
	return nil
}
