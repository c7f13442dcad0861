package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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
  WHERE o.replay_id = i.replay_id AND l.no = i.no)
FROM replay_item i WHERE i.replay_id = @id AND i.no BETWEEN @from AND @to AND i.state = 1 ORDER BY i.no`

// lostItem is an item of an open chunk without an answer.
type lostItem struct {
	No         int
	TargetID   int32
	Tries      int
	Overridden bool
}

func (s *step) recoverChunk(ctx context.Context, c openChunk) error {
	rows, err := s.r.pool.Query(ctx, sqlSendingItems, pgx.NamedArgs{"id": s.id, "from": c.From, "to": c.To})
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
	found, trimmed := map[int]sendResult{}, map[int32]bool{}
	for id, ends := range c.Ends {
		if trimmed[id], err = s.search(ctx, targets[id], ends, found); err != nil {
			return fmt.Errorf("search %s: %w", targets[id].Topic, err)
		}
	}
	return s.recordSearch(ctx, c, lost, targets, found, trimmed)
}

// recordSearch writes what the search found. What is not there was not sent: it
// is sent again if that is safe whatever happens, which the next judgement says.
func (s *step) recordSearch(ctx context.Context, c openChunk, lost []lostItem, targets map[int32]sendTarget, found map[int]sendResult, trimmed map[int32]bool) error {
	var sent, notSent, unconfirmed, again []*sendItem
	for _, l := range lost {
		it := &sendItem{no: l.No, targetID: l.TargetID, tries: l.Tries}
		topic := targets[l.TargetID].Topic
		result, there := found[l.No]
		switch {
		case there:
			it.result = &result
			sent = append(sent, it)
		case trimmed[l.TargetID]:
			it.leftOut = replayReason("reason.unconfirmed.gone", "topic", topic)
			unconfirmed = append(unconfirmed, it)
		case l.Overridden:
			it.leftOut = replayReason("reason.not_sent.not_found", "topic", topic)
			notSent = append(notSent, it)
		case l.Tries+1 >= maxTries:
			it.leftOut = replayReason("reason.not_sent.tries", "tries", l.Tries+1, "topic", topic)
			notSent = append(notSent, it)
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
		if err := s.sendAgain(ctx, tx, again); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlChunkState, pgx.NamedArgs{"id": s.id, "from": c.From, "state": 1})
		return err
	})
}

const sqlSendAgain = `
UPDATE replay_item SET state = 0, tries = tries + 1 WHERE replay_id = @id AND no = ANY(@nos) AND state = 1`

const sqlNextNoBack = `
UPDATE replay SET next_no = least(next_no, @no), waiting = waiting + @n WHERE id = @id`

// sendAgain puts items back into the queue: letters and claims are free, as if
// they had never been taken.
func (s *step) sendAgain(ctx context.Context, tx pgx.Tx, items []*sendItem) error {
	if len(items) == 0 {
		return nil
	}
	nos := itemNos(items)
	if err := s.putBack(ctx, tx, nos, true); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sqlDropClaims, pgx.NamedArgs{"id": s.id, "nos": nos}); err != nil {
		return fmt.Errorf("give claims back: %w", err)
	}
	if _, err := tx.Exec(ctx, sqlSendAgain, pgx.NamedArgs{"id": s.id, "nos": nos}); err != nil {
		return fmt.Errorf("put items back: %w", err)
	}
	_, err := tx.Exec(ctx, sqlNextNoBack, pgx.NamedArgs{"id": s.id, "no": nos[0], "n": len(nos)})
	return err
}

// searchTime bounds one search; a target that takes longer fails the step, and
// its successor searches again.
const searchTime = 25 * time.Second

// search reads a target from where it ended before the chunk was sent to where
// it ends now, transactions that were aborted included, and notes our messages.
// trimmed: some of that is not there any more, so absence proves nothing.
func (s *step) search(ctx context.Context, target sendTarget, from map[int32]int64, found map[int]sendResult) (trimmed bool, err error) {
	cluster := s.r.clusters[target.Cluster]
	if cluster == nil {
		return false, fmt.Errorf("cluster %s is not configured", target.Cluster)
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	left, trimmed, err := searchRange(ctx, cluster, target.Topic, from)
	if err != nil || len(left) == 0 {
		return trimmed, err
	}
	offsets := map[int32]kgo.Offset{}
	for p := range left {
		offsets[p] = kgo.NewOffset().At(from[p])
	}
	client, err := cluster.NewClient(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{target.Topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.KeepControlRecords(), // a transaction's end may be the last offset
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return false, err
	}
	defer client.Close()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetchError(ctx, fetches); err != nil {
			return false, err
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if no, ours := s.itemOf(rec); ours {
				found[no] = sendResult{partition: rec.Partition, offset: rec.Offset}
			}
			if rec.Offset+1 >= left[rec.Partition] {
				delete(left, rec.Partition)
			}
		})
	}
	return trimmed, nil
}

// searchRange gives the end offset of each partition that has grown since, and
// whether any has lost what was appended since.
func searchRange(ctx context.Context, cluster *Cluster, topic string, from map[int32]int64) (left map[int32]int64, trimmed bool, err error) {
	starts, err := cluster.Admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, false, fmt.Errorf("start offsets: %w", err)
	}
	ends, err := cluster.Admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, false, fmt.Errorf("end offsets: %w", err)
	}
	left = map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { // a partition may have been added, and the key have chosen it
		if _, known := from[o.Partition]; !known && o.Partition >= 0 && len(from) > 0 {
			from[o.Partition] = 0
		}
	})
	for p, at := range from {
		start, _ := starts.Lookup(topic, p)
		end, there := ends.Lookup(topic, p)
		switch err := errors.Join(start.Err, end.Err); {
		case !there || topicGone(err):
			trimmed = true // the topic is gone
		case err != nil:
			return nil, false, fmt.Errorf("offsets of partition %d: %w", p, err)
		case start.Offset > at || end.Offset < at: // trimmed, or a new topic of that name
			trimmed = true
		case end.Offset > at:
			left[p] = end.Offset
		}
	}
	return left, trimmed, nil
}

func topicGone(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
}

func fetchError(ctx context.Context, fetches kgo.Fetches) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not read to the end: %w", err)
	}
	for _, e := range fetches.Errors() {
		if !kerr.IsRetriable(e.Err) {
			return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
	}
	return nil
}

// itemOf reads which item of this replay a record is.
func (s *step) itemOf(rec *kgo.Record) (no int, ours bool) {
	var replay int64
	for _, h := range rec.Headers {
		switch h.Key {
		case HeaderReplay:
			replay, _ = strconv.ParseInt(string(h.Value), 10, 64) // 0, and not ours, where it is none
		case HeaderItem:
			no, _ = strconv.Atoi(string(h.Value))
		}
	}
	return no, replay == s.id && no > 0
}
