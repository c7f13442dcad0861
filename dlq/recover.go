package dlq

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// openChunk is a chunk whose sending nobody recorded to the end: its process
// died, or its broker did not answer.
type openChunk struct {
	From, To int
	Ends     endOffsets
	Due      bool // the time in which a request of it may still be appended is over
}

const sqlOpenChunks = `
SELECT from_no, to_no, end_offsets, committed_at < clock_timestamp() - @window::interval
FROM replay_chunk WHERE replay_id = @id AND state = 0 ORDER BY from_no`

// recoverWindow is how long after its intent a chunk's message may still reach
// the broker: the sender gives up after SendTimeout, and a request on its way is
// given as long again, at most 10 s.
func (o ReplayOptions) recoverWindow() time.Duration {
	return o.SendTimeout + min(o.SendTimeout, 10*time.Second)
}

// maxTries is how often an item is sent in vain before it counts as not sent.
const maxTries = 3

// recover settles open chunks by searching their targets, and reports whether it
// settled any. It does not wait: a chunk that is not due stays.
func (s *step) recover(ctx context.Context) (bool, error) {
	rows, err := s.r.pool.Query(ctx, sqlOpenChunks, pgx.NamedArgs{"id": s.id, "window": s.r.opts.recoverWindow()})
	if err != nil {
		return false, fmt.Errorf("query open chunks: %w", err)
	}
	chunks, err := pgx.CollectRows(rows, pgx.RowToStructByPos[openChunk])
	if err != nil {
		return false, fmt.Errorf("read open chunks: %w", err)
	}
	settled := false
	for _, c := range chunks {
		if !c.Due {
			continue
		}
		if err := s.recoverChunk(ctx, c); err != nil {
			return settled, err
		}
		settled = true
	}
	return settled, nil
}

const sqlSendingItems = `
SELECT i.no, i.target_id, i.tries, EXISTS (
  SELECT FROM replay_override o JOIN replay_item_letter l ON l.replay_id = o.replay_id AND l.letter_id = o.letter_id
  WHERE o.replay_id = i.replay_id AND l.no = i.no), i.letter_id, EXISTS (
  SELECT FROM event_claim c WHERE c.kind = 1 AND c.holder_id = i.replay_id AND c.item_no = i.no AND c.verdict <> @applied)
FROM replay_item i WHERE i.replay_id = @id AND i.no BETWEEN @from AND @to AND i.state = 1 ORDER BY i.no`

// lostItem is an item of an open chunk without an answer.
type lostItem struct {
	No         int
	TargetID   int32
	Tries      int
	Overridden bool
	Letter     uuid.UUID // that stands for it
	Fresh      bool      // some group had no record just before it was sent
}

func (s *step) recoverChunk(ctx context.Context, c openChunk) error {
	rows, err := s.r.pool.Query(ctx, sqlSendingItems, pgx.NamedArgs{"id": s.id, "from": c.From, "to": c.To, "applied": int16(AlreadyApplied)})
	if err != nil {
		return fmt.Errorf("query unanswered items: %w", err)
	}
	lost, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lostItem])
	if err != nil {
		return fmt.Errorf("read unanswered items: %w", err)
	}
	targets, err := s.targets(ctx)
	if err != nil {
		return err
	}
	said := map[int32]searched{}
	for id, ends := range c.Ends {
		cluster := s.r.clusters[targets[id].Cluster]
		if cluster == nil {
			return fmt.Errorf("cluster %s is not configured", targets[id].Cluster)
		}
		if said[id], err = cluster.broker.search(ctx, s.id, targets[id], ends); err != nil {
			return fmt.Errorf("search %s: %w", targets[id].Topic, err)
		}
		if said[id].next != nil {
			return s.keepSearch(ctx, c, id, targets[id].Topic, said[id])
		}
	}
	return s.recordSearch(ctx, c, lost, targets, said)
}

const sqlSearchedTo = `
UPDATE replay_chunk SET end_offsets = jsonb_set(end_offsets, ARRAY[@target::text], @next) WHERE replay_id = @id AND from_no = @from`

// keepSearch keeps what a search found whose time was over, and how far it came:
// the next one goes on from there.
func (s *step) keepSearch(ctx context.Context, c openChunk, target int32, topic string, said searched) error {
	sent := make([]*sendItem, 0, len(said.found))
	for no, result := range said.found {
		sent = append(sent, &sendItem{no: no, result: &result})
	}
	why := replayReason("reason.wait.searching", "topic", topic)
	return s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		if err := s.recordSent(ctx, tx, sent); err != nil {
			return err
		}
		args := pgx.NamedArgs{"id": s.id, "from": c.From, "target": strconv.Itoa(int(target)), "next": said.next}
		if _, err := tx.Exec(ctx, sqlSearchedTo, args); err != nil {
			return fmt.Errorf("keep how far %s was searched: %w", topic, err)
		}
		_, err := tx.Exec(ctx, sqlNoteWait, waitArgs(s.id, why))
		return err
	})
}

// recordSearch writes what the search found.
func (s *step) recordSearch(ctx context.Context, c openChunk, lost []lostItem, targets map[int32]sendTarget, said map[int32]searched) error {
	judged, err := s.judgeLost(ctx, lost, targets, said)
	if err != nil {
		return err
	}
	var sent, notSent, unconfirmed, again []*sendItem
	for _, l := range lost {
		it := &sendItem{no: l.No, targetID: l.TargetID, tries: l.Tries}
		switch l.settle(it, said[l.TargetID], targets[l.TargetID], judged[l.Letter]) {
		case itemSent:
			sent = append(sent, it)
		case itemNotSent:
			notSent = append(notSent, it)
		case itemUnconfirmed:
			unconfirmed = append(unconfirmed, it)
		default:
			again = append(again, it)
		}
	}
	s.log.Info("unanswered messages of a replay were searched", slog.Int("found", len(sent)), slog.Int("again", len(again)),
		slog.Int("not_sent", len(notSent)), slog.Int("unconfirmed", len(unconfirmed)))
	return s.fenced(ctx, func(tx pgx.Tx, _ ReplayState) error {
		if err := s.recordSent(ctx, tx, sent); err != nil {
			return err
		}
		if err := s.recordUnsent(ctx, tx, notSent, NotSent, itemNotSent); err != nil {
			return err
		}
		if err := s.recordUnsent(ctx, tx, unconfirmed, Unconfirmed, itemUnconfirmed); err != nil {
			return err
		}
		if err := s.waitAgain(ctx, tx, again, 1); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlChunkState, pgx.NamedArgs{"id": s.id, "from": c.From, "state": 1})
		return err
	})
}

// settle says what becomes of the item: the state that it gets. What a search did
// not find was not sent, and is sent again if that is safe whatever happens,
// which the next judgement says. Where a broker cannot be searched, it may be
// there: it is sent again only if every group is known to have no record of it.
func (l lostItem) settle(it *sendItem, said searched, target sendTarget, now *Judged) int16 {
	result, there := said.found[l.No]
	again := !l.Overridden && l.Tries+1 < maxTries
	switch {
	case there:
		it.result = &result
		return itemSent
	case said.never && l.Fresh && now != nil && now.all(AlreadyApplied):
		it.result = &sendResult{partition: -1, offset: -1} // it took effect
		return itemSent
	case said.never && again && now != nil && now.all(Safe):
		return itemWaiting
	case said.never:
		it.leave(replayReason("reason.unconfirmed.queue", "topic", target.place()))
		return itemUnconfirmed
	case said.unknown:
		it.leave(replayReason("reason.unconfirmed.gone", "topic", target.Topic))
		return itemUnconfirmed
	case l.Overridden:
		it.leave(replayReason("reason.not_sent.not_found", "topic", target.Topic))
		return itemNotSent
	case !again:
		it.leave(replayReason("reason.not_sent.tries", "tries", l.Tries+1, "topic", target.Topic))
		return itemNotSent
	}
	return itemWaiting
}

// all reports that every group that the target reaches has this verdict.
func (j *Judged) all(v Verdict) bool {
	n := 0
	for _, g := range j.Groups {
		if g.Reached && g.Verdict != v {
			return false
		} else if g.Reached {
			n++
		}
	}
	return n > 0
}

// judgeLost judges anew the items whose targets cannot be searched, by the letters
// that stand for them.
func (s *step) judgeLost(ctx context.Context, lost []lostItem, targets map[int32]sendTarget, said map[int32]searched) (map[uuid.UUID]*Judged, error) {
	ids := map[Target][]uuid.UUID{}
	for _, l := range lost {
		if said[l.TargetID].never {
			kind := targets[l.TargetID].kind()
			ids[kind] = append(ids[kind], l.Letter)
		}
	}
	out := map[uuid.UUID]*Judged{}
	for kind, letters := range ids {
		subjects, err := s.r.judge.Subjects(ctx, letters)
		if err != nil {
			return nil, fmt.Errorf("read letters: %w", err)
		}
		for i := range subjects {
			subjects[i].Holder = s.id
		}
		judged, err := s.r.judge.Judge(ctx, subjects, kind)
		if err != nil {
			return nil, fmt.Errorf("judge unanswered items: %w", err)
		}
		for i := range judged {
			out[judged[i].LetterID] = &judged[i]
		}
	}
	return out, nil
}

const (
	sqlItemsWaiting = `
UPDATE replay_item SET state = 0, tries = tries + @tries
WHERE replay_id = @id AND no BETWEEN @first AND @last AND no = ANY(@nos) AND state = 1`
	sqlNextNoBack = `
UPDATE replay SET next_no = least(next_no, @no), waiting = waiting + @n WHERE id = @id`
)

// waitAgain puts claimed items back into the queue: letters and claims are free, as
// if they had never been taken. tries is how often they were sent in vain by it.
func (s *step) waitAgain(ctx context.Context, tx pgx.Tx, items []*sendItem, tries int) error {
	if len(items) == 0 {
		return nil
	}
	nos := itemNos(items)
	first, last := span(nos)
	if err := s.putBack(ctx, tx, nos, true); err != nil {
		return err
	}
	b := &pgx.Batch{}
	b.Queue(sqlDropClaims, pgx.NamedArgs{"id": s.id, "nos": nos})
	b.Queue(sqlItemsWaiting, pgx.NamedArgs{"id": s.id, "first": first, "last": last, "nos": nos, "tries": tries})
	b.Queue(sqlNextNoBack, pgx.NamedArgs{"id": s.id, "no": first, "n": len(nos)})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("put items %d to %d back: %w", first, last, err)
	}
	return nil
}

// searchTime bounds one search; the next one goes on where it was.
const searchTime = 25 * time.Second
