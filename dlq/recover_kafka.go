package dlq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// search reads a target from where it ended before the chunk was sent to where
// it ends now, transactions that were aborted included. What is not there was
// not sent, unless some of that is not there any more.
func (b kafkaBroker) search(ctx context.Context, replay int64, target sendTarget, from map[int32]int64) (searched, error) {
	out := searched{found: map[int]sendResult{}}
	ctx, cancel := context.WithTimeout(ctx, b.searchTime())
	defer cancel()
	left, trimmed, err := searchRange(ctx, b.Cluster, target.Topic, from)
	out.unknown = trimmed
	if err != nil || len(left) == 0 {
		return out, err
	}
	offsets := map[int32]kgo.Offset{}
	for p := range left {
		offsets[p] = kgo.NewOffset().At(from[p])
	}
	client, err := b.NewClient(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{target.Topic: offsets}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.KeepControlRecords(), // a transaction's end may be the last offset
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		return out, err
	}
	defer client.Close()
	moved := false
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetchError(ctx, fetches); err != nil {
			if moved && errors.Is(err, context.DeadlineExceeded) {
				out.next = from
				return out, nil
			}
			return out, err
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			from[rec.Partition], moved = rec.Offset+1, true
			if no, ours := itemOf(replay, rec); ours {
				out.found[no] = sendResult{partition: rec.Partition, offset: rec.Offset}
			}
			if rec.Offset+1 >= left[rec.Partition] {
				delete(left, rec.Partition)
			}
		})
	}
	return out, nil
}

// searchTime bounds one search; what is left then is searched by the next one.
func (b kafkaBroker) searchTime() time.Duration { return cmp.Or(b.Cluster.searchFor, searchTime) }

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

// itemOf reads which item of the replay a record is.
func itemOf(id int64, rec *kgo.Record) (no int, ours bool) {
	var replay int64
	for _, h := range rec.Headers {
		switch h.Key {
		case HeaderReplay:
			replay, _ = strconv.ParseInt(string(h.Value), 10, 64) // 0, and not ours, where it is none
		case HeaderItem:
			no, _ = strconv.Atoi(string(h.Value))
		}
	}
	return no, replay == id && no > 0
}
