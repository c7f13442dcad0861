package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	errScanBound = errors.New("dlq: looked through as many records as allowed")
	errNoBounds  = errors.New("dlq: broker does not say where the partition begins and ends")
)

// bounds are the offset of the first retained record and the one after the last.
func (c *Cluster) bounds(ctx context.Context, topic string, partition int32) (start, end int64, err error) {
	first, err := c.Admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return 0, 0, fmt.Errorf("start of %s/%d: %w", topic, partition, err)
	}
	last, err := c.Admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, 0, fmt.Errorf("end of %s/%d: %w", topic, partition, err)
	}
	a, okA := first.Lookup(topic, partition)
	b, okB := last.Lookup(topic, partition)
	if !okA || !okB {
		return 0, 0, fmt.Errorf("%s/%d: %w", topic, partition, errNoBounds)
	}
	return a.Offset, b.Offset, errors.Join(a.Err, b.Err)
}

// reader is a client that reads given partitions from given offsets. It fails
// where an offset is gone, rather than going on somewhere else.
func (c *Cluster) reader(from map[string]map[int32]kgo.Offset) (*kgo.Client, error) {
	return c.NewClient(
		kgo.ConsumePartitions(from),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepControlRecords(), // their offsets show that nothing else follows
		kgo.FetchMaxPartitionBytes(1<<20),
		kgo.FetchMaxWait(fetchWait),
	)
}

// scan gives the records of [from, end) of a partition to see, in order. It
// returns nil at the end, errScanBound after limit records, or why it stopped.
func (c *Cluster) scan(ctx context.Context, topic string, partition int32, from, end int64, limit int, see func(*kgo.Record)) error {
	client, err := c.reader(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}})
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("read %s/%d from %d: %w", topic, partition, from, err)
		}
		var failed error
		fetches.EachError(func(_ string, _ int32, err error) { failed = errors.Join(failed, err) })
		if failed != nil {
			return fmt.Errorf("read %s/%d from %d: %w", topic, partition, from, failed)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if r.Offset >= end {
				return nil
			}
			if limit == 0 {
				return errScanBound
			}
			if !r.Attrs.IsControl() {
				limit--
				see(r)
			}
			if r.Offset == end-1 {
				return nil
			}
		}
	}
}

// partitionOf is one partition of a topic.
type partitionOf struct {
	topic     string
	partition int32
}

// fetched are records by place. A partition that could not be read is missing;
// an offset that was passed without a record is nil.
type fetched map[partitionOf]map[int64]*kgo.Record

// answer says what was found at a place.
func (f fetched) answer(p partitionOf, offset int64) originAnswer {
	r, passed := f[p][offset]
	switch {
	case r != nil:
		return originAnswer{record: r}
	case passed:
		return originAnswer{gone: "reason.original.trimmed"}
	}
	return originAnswer{unread: "reason.original.unread"}
}

const (
	fetchWait = 500 * time.Millisecond
	// seekGap is how many records are read over rather than sought past: a seek
	// costs a round trip.
	seekGap = 200
)

// fetch reads single records at the wanted offsets, all partitions at once.
func (c *Cluster) fetch(ctx context.Context, wanted map[partitionOf][]int64) fetched {
	out := fetched{}
	walks, err := c.walks(ctx, wanted, out)
	if err != nil || len(walks) == 0 {
		return out
	}
	from := map[string]map[int32]kgo.Offset{}
	for p, w := range walks {
		if from[p.topic] == nil {
			from[p.topic] = map[int32]kgo.Offset{}
		}
		from[p.topic][p.partition] = kgo.NewOffset().At(w.offsets[0])
	}
	client, err := c.reader(from)
	if err != nil {
		return out
	}
	defer client.Close()
	for len(walks) > 0 {
		fetches := client.PollFetches(ctx)
		if fetches.Err0() != nil {
			return out
		}
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			p := partitionOf{f.Topic, f.Partition}
			w := walks[p]
			if w == nil {
				return
			}
			w.take(f.Records, out[p])
			if f.Err != nil || len(w.offsets) == 0 {
				delete(walks, p)
				client.RemoveConsumePartitions(map[string][]int32{p.topic: {p.partition}})
				return
			}
			w.seek(client, p)
		})
	}
	return out
}

// walk is the way through one partition.
type walk struct {
	offsets []int64 // still to come, ascending
	seen    int64   // the last offset read
	sought  int64   // the offset last sought
}

// walks prepares a walk for each partition and answers at once for offsets that
// are not retained.
func (c *Cluster) walks(ctx context.Context, wanted map[partitionOf][]int64, out fetched) (map[partitionOf]*walk, error) {
	topics := map[string]bool{}
	for p := range wanted {
		topics[p.topic] = true
	}
	names := slices.Collect(maps.Keys(topics))
	if len(names) == 0 {
		return nil, nil
	}
	first, err := c.Admin.ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("start offsets: %w", err)
	}
	last, err := c.Admin.ListEndOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("end offsets: %w", err)
	}
	walks := map[partitionOf]*walk{}
	for p, offsets := range wanted {
		start, okStart := first.Lookup(p.topic, p.partition)
		end, okEnd := last.Lookup(p.topic, p.partition)
		if okStart && okEnd && (start.Err != nil || end.Err != nil) {
			continue // cannot be asked now
		}
		out[p] = map[int64]*kgo.Record{}
		w := &walk{seen: -1}
		for _, o := range slices.Compact(slices.Sorted(slices.Values(offsets))) {
			if !okStart || !okEnd || o < start.Offset || o >= end.Offset {
				out[p][o] = nil
				continue
			}
			w.offsets = append(w.offsets, o)
		}
		if len(w.offsets) > 0 {
			w.sought = w.offsets[0]
			walks[p] = w
		}
	}
	return walks, nil
}

// take picks the wanted records. An offset that was passed has no record any
// more: compacted away, or never one (a transaction's marker).
func (w *walk) take(records []*kgo.Record, into map[int64]*kgo.Record) {
	for _, r := range records {
		for len(w.offsets) > 0 && w.offsets[0] < r.Offset && w.sought <= r.Offset {
			into[w.offsets[0]] = nil
			w.offsets = w.offsets[1:]
		}
		if len(w.offsets) > 0 && w.offsets[0] == r.Offset {
			into[r.Offset] = r
			if r.Attrs.IsControl() {
				into[r.Offset] = nil
			}
			w.offsets = w.offsets[1:]
		}
		w.seen = r.Offset
	}
}

// seek jumps over a long gap.
func (w *walk) seek(client *kgo.Client, p partitionOf) {
	next := w.offsets[0]
	if next-w.seen <= seekGap || next == w.sought {
		return
	}
	w.sought = next
	client.RemoveConsumePartitions(map[string][]int32{p.topic: {p.partition}})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{p.topic: {p.partition: kgo.NewOffset().At(next)}})
}
