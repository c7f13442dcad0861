package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// errNotRunning rolls a chunk back that was paused or canceled before its intent
// was committed.
var errNotRunning = errors.New("dlq: replay is not running")

// claimChunk takes letters and claims and commits the intent, in one transaction.
// Items that lose a letter or a claim to somebody else are left out.
func (s *step) claimChunk(ctx context.Context, c *chunk) error {
	c.until = time.Now().Add(s.r.opts.SendTimeout) // before the intent's commit: whoever recovers counts from there
	err := s.fenced(ctx, func(tx pgx.Tx, state ReplayState) error {
		if state != Running {
			return errNotRunning
		}
		if err := takeLetters(ctx, tx, c); err != nil {
			return err
		}
		if err := s.takeClaims(ctx, tx, c); err != nil {
			return err
		}
		if err := markReplaying(ctx, tx, c); err != nil {
			return err
		}
		return s.storeIntent(ctx, tx, c)
	})
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	return nil
}

const sqlTakeLetters = `
SELECT id, state FROM dead_letter WHERE id = ANY(@ids) ORDER BY id FOR NO KEY UPDATE`

// takeLetters locks the letters of the chunk in id order, so that two replays of
// one set cannot deadlock, and leaves out items whose letters have moved on.
func takeLetters(ctx context.Context, tx pgx.Tx, c *chunk) error {
	var ids []uuid.UUID
	for _, it := range c.items {
		if it.goes() {
			ids = append(ids, it.letters...)
		}
	}
	rows, err := tx.Query(ctx, sqlTakeLetters, pgx.NamedArgs{"ids": sortedIDs(ids)})
	if err != nil {
		return fmt.Errorf("lock letters: %w", err)
	}
	states := make(map[uuid.UUID]State, len(ids))
	var id uuid.UUID
	var state State
	if _, err := pgx.ForEachRow(rows, []any{&id, &state}, func() error { states[id] = state; return nil }); err != nil {
		return fmt.Errorf("lock letters: %w", err)
	}
	for _, it := range c.items {
		for i, letter := range it.letters {
			if is := states[letter]; is != it.fromStates[i] {
				it.leave(letterMoved(it.fromStates[i], is))
			}
		}
	}
	return leaveRevised(ctx, tx, c, ids)
}

func letterMoved(was, is State) Reason {
	if is == 0 {
		return replayReason("reason.letter.gone")
	}
	return replayReason("reason.letter.changed", "was", was.String(), "is", is.String())
}

func sortedIDs(ids []uuid.UUID) []uuid.UUID {
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

const sqlTakeClaims = `
INSERT INTO event_claim (event_id, group_id, kind, holder_id, item_no, verdict)
SELECT e, g, 1, @id, n, v FROM unnest(@events::text[], @groups::int[], @nos::int[], @verdicts::smallint[]) u(e, g, n, v)
ORDER BY e COLLATE "C", g
ON CONFLICT (event_id, group_id) DO NOTHING
RETURNING item_no`

const sqlDropClaims = `DELETE FROM event_claim WHERE kind = 1 AND holder_id = @id AND item_no = ANY(@nos)`

// takeClaims claims (event, group) for every group of every item. An item that
// does not get all of them gives back what it got.
func (s *step) takeClaims(ctx context.Context, tx pgx.Tx, c *chunk) error {
	var events []string
	var groups []int32
	var nos []int
	var verdicts []int16
	for _, it := range c.items {
		if !it.goes() {
			continue
		}
		for _, g := range it.groups {
			events, groups = append(events, it.key), append(groups, c.groups[g.name])
			nos, verdicts = append(nos, it.no), append(verdicts, int16(g.verdict))
		}
	}
	rows, err := tx.Query(ctx, sqlTakeClaims, pgx.NamedArgs{"id": s.id, "events": events, "groups": groups, "nos": nos, "verdicts": verdicts})
	if err != nil {
		return fmt.Errorf("take claims: %w", err)
	}
	got := map[int]int{}
	var no int
	if _, err := pgx.ForEachRow(rows, []any{&no}, func() error { got[no]++; return nil }); err != nil {
		return fmt.Errorf("take claims: %w", err)
	}
	var lost []*sendItem
	for _, it := range c.items {
		if it.goes() && got[it.no] < len(it.groups) {
			lost = append(lost, it)
		}
	}
	return s.giveUpClaims(ctx, tx, c, lost)
}

func (s *step) giveUpClaims(ctx context.Context, tx pgx.Tx, c *chunk, lost []*sendItem) error {
	if len(lost) == 0 {
		return nil
	}
	for _, it := range lost {
		why, err := s.whoHolds(ctx, tx, c, it)
		if err != nil {
			return err
		}
		it.leave(why)
	}
	nos := make([]int, len(lost))
	for i, it := range lost {
		nos[i] = it.no
	}
	if _, err := tx.Exec(ctx, sqlDropClaims, pgx.NamedArgs{"id": s.id, "nos": nos}); err != nil {
		return fmt.Errorf("give claims back: %w", err)
	}
	return nil
}

const sqlWhoHolds = `
SELECT c.kind, c.holder_id, c.item_no, c.claimed_at, coalesce(r.started_by, r.created_by, '')
FROM event_claim c LEFT JOIN replay r ON c.kind = 1 AND r.id = c.holder_id
WHERE c.event_id = @event AND c.group_id = ANY(@groups) AND NOT (c.kind = 1 AND c.holder_id = @id AND c.item_no = @no)
LIMIT 1`

func (s *step) whoHolds(ctx context.Context, tx pgx.Tx, c *chunk, it *sendItem) (Reason, error) {
	groups := make([]int32, len(it.groups))
	for i, g := range it.groups {
		groups[i] = c.groups[g.name]
	}
	var kind int16
	var holder int64
	var item int
	var at time.Time
	var by string
	err := tx.QueryRow(ctx, sqlWhoHolds, pgx.NamedArgs{"event": it.key, "groups": groups, "id": s.id, "no": it.no}).
		Scan(&kind, &holder, &item, &at, &by)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // released since; a later plan may take it
		return reason("reason.in_flight.replay", "replay", int64(0), "at", ""), nil
	case err != nil:
		return Reason{}, fmt.Errorf("look who holds item %d: %w", it.no, err)
	case kind != claimReplay:
		return replayReason("reason.claim.compensation", "compensation", holder, "at", instant(at)), nil
	case holder == s.id:
		return replayReason("reason.claim.same", "item", item), nil
	}
	return replayReason("reason.claim.replay", "replay", holder, "by", by, "at", instant(at)), nil
}

const sqlMarkReplaying = `
WITH moved AS (
  UPDATE dead_letter d SET state = 2, state_at = now(), replay_count = replay_count + 1
  FROM unnest(@ids::uuid[], @was::smallint[]) u(id, was)
  WHERE d.id = u.id AND d.id = ANY(@ids) AND d.state = u.was RETURNING d.fault_id, d.verdict, u.was)
INSERT INTO fault_delta (fault_id, state, verdict, n)
SELECT m.fault_id, s.state, m.verdict, s.sign * count(*)
FROM moved m CROSS JOIN LATERAL (VALUES (m.was, -1), (2::smallint, 1)) s(state, sign)
GROUP BY m.fault_id, s.state, m.verdict, s.sign`

// markReplaying moves the letters of all items that go.
func markReplaying(ctx context.Context, tx pgx.Tx, c *chunk) error {
	var ids []uuid.UUID
	var was []int16
	for _, it := range c.items {
		if !it.goes() {
			continue
		}
		for i, letter := range it.letters {
			ids, was = append(ids, letter), append(was, int16(it.fromStates[i]))
		}
	}
	if _, err := tx.Exec(ctx, sqlMarkReplaying, pgx.NamedArgs{"ids": ids, "was": was}); err != nil {
		return fmt.Errorf("mark letters replaying: %w", err)
	}
	return nil
}

const (
	sqlItemsSending = `
UPDATE replay_item i SET state = 1, bytes_from = u.bytes, key_decided = u.by_key
FROM unnest(@nos::int[], @bytes::smallint[], @by_key::bool[]) u(no, bytes, by_key)
WHERE i.replay_id = @id AND i.no BETWEEN @first AND @last AND i.no = u.no`
	sqlItemsLeftOut = `
UPDATE replay_item i SET state = 3, reason = u.reason, reason_key = u.key, reason_args = u.args::jsonb
FROM unnest(@nos::int[], @reasons::text[], @keys::text[], @args::text[]) u(no, reason, key, args)
WHERE i.replay_id = @id AND i.no = u.no AND i.state = 0`
	sqlInsertChunk = `
INSERT INTO replay_chunk (replay_id, from_no, to_no, epoch, end_offsets, committed_at)
VALUES (@id, @from, @to, @epoch, @ends, clock_timestamp())
ON CONFLICT (replay_id, from_no) DO UPDATE SET to_no = excluded.to_no, epoch = excluded.epoch,
  end_offsets = excluded.end_offsets, state = 0, committed_at = excluded.committed_at`
	sqlNextNo = `
UPDATE replay SET next_no = @next, waiting = waiting - @taken, left_out = left_out + @left WHERE id = @id`
)

// storeIntent writes what is about to be sent and from where the targets have to
// be searched should nobody say what came of it.
func (s *step) storeIntent(ctx context.Context, tx pgx.Tx, c *chunk) error {
	first, last := c.items[0].no, c.items[len(c.items)-1].no
	var nos []int
	var from []int16
	var byKey []bool
	for _, it := range c.items {
		if it.goes() {
			nos, from, byKey = append(nos, it.no), append(from, int16(it.message.bytesFrom)), append(byKey, it.message.byKey)
		}
	}
	b := &pgx.Batch{}
	b.Queue(sqlNextNo, pgx.NamedArgs{"id": s.id, "next": last + 1, "taken": len(c.items), "left": len(c.items) - len(nos)})
	if len(nos) > 0 {
		b.Queue(sqlItemsSending, pgx.NamedArgs{"id": s.id, "first": first, "last": last, "nos": nos, "bytes": from, "by_key": byKey})
		b.Queue(sqlInsertChunk, pgx.NamedArgs{"id": s.id, "from": first, "to": last, "epoch": s.epoch, "ends": c.ends})
	}
	left := slices.DeleteFunc(slices.Clone(c.items), (*sendItem).goes)
	queueReasons(b, sqlItemsLeftOut, pgx.NamedArgs{"id": s.id}, left)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("store intent: %w", err)
	}
	return nil
}

// queueReasons queues an update of items with the reason that each has in leftOut.
func queueReasons(b *pgx.Batch, sql string, args pgx.NamedArgs, items []*sendItem) {
	if len(items) == 0 {
		return
	}
	var texts, keys, values []string
	for _, it := range items {
		stored := storeReason(it.leftOut)
		texts, keys, values = append(texts, stored.Text), append(keys, stored.Key), append(values, string(stored.Args))
	}
	args["nos"], args["reasons"], args["keys"], args["args"] = itemNos(items), texts, keys, values
	b.Queue(sql, args)
}
