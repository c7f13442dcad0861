package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// brokerTime bounds the questions to the broker when partitions are opened.
const brokerTime = 15 * time.Second

var errNoAnswer = errors.New("the broker does not say")

// topicPartition is a partition by name.
type topicPartition struct {
	topic     string
	partition int32
}

// drainCursor is where a partition that this process drains goes on.
type drainCursor struct {
	topicID   uuid.UUID
	next      int64 // to be fetched
	stored    int64 // up to here
	end       int64 // of the log, when last heard
	rereadEnd int64 // below it, records were passed once before the log was cut
	stale     bool  // the position in the database is another one
	inHand    int   // batches that are fetched and not yet stored
}

// assigned positions new partitions: not where the group's offsets say, but where
// the database does.
func (d *Drainer) assigned(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var wanted []topicPartition
	for topic, partitions := range offsets {
		for p := range partitions {
			wanted = append(wanted, topicPartition{topic, p})
		}
	}
	opened, err := d.openUntilDone(ctx, wanted)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for tp := range opened {
		d.cursors[tp] = opened[tp]
		if opened[tp].stale {
			continue
		}
		offsets[tp.topic][tp.partition] = kgo.NewOffset().At(opened[tp].next).WithEpoch(-1)
	}
	return offsets, nil
}

func (d *Drainer) revoked(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for topic, partitions := range gone {
		for _, p := range partitions {
			delete(d.cursors, topicPartition{topic, p})
		}
	}
}

func (d *Drainer) openUntilDone(ctx context.Context, wanted []topicPartition) (map[topicPartition]*drainCursor, error) {
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		opened, err := d.open(ctx, wanted)
		if err == nil || ctx.Err() != nil {
			return opened, err
		}
		d.conf.Log.ErrorContext(ctx, "drain positions not read, trying again", "cluster", d.conf.Cluster.Name, "error", err)
		pause(ctx, wait)
	}
}

// brokerView is what the broker says of the partitions.
type brokerView struct {
	topics     kadm.TopicDetails
	start, end kadm.ListedOffsets
}

func (d *Drainer) ask(ctx context.Context, wanted []topicPartition) (v brokerView, err error) {
	ctx, cancel := context.WithTimeout(ctx, brokerTime)
	defer cancel()
	names := map[string]bool{}
	var list []string
	for _, tp := range wanted {
		if !names[tp.topic] {
			names[tp.topic], list = true, append(list, tp.topic)
		}
	}
	admin := d.conf.Cluster.Admin
	if v.topics, err = admin.ListTopics(ctx, list...); err != nil {
		return v, fmt.Errorf("ask for topics: %w", err)
	}
	if v.start, err = admin.ListStartOffsets(ctx, list...); err != nil {
		return v, fmt.Errorf("ask where logs start: %w", err)
	}
	if v.end, err = admin.ListEndOffsets(ctx, list...); err != nil {
		return v, fmt.Errorf("ask where logs end: %w", err)
	}
	return v, nil
}

// open finds where the partitions go on. One that the broker does not answer for,
// because it is being deleted or has no leader, is stale: it does not hold up the
// others, and is opened again before anything of it is stored.
func (d *Drainer) open(ctx context.Context, wanted []topicPartition) (map[topicPartition]*drainCursor, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	v, err := d.ask(ctx, wanted)
	if err != nil {
		return nil, err
	}
	keys := map[partitionKey]string{}
	opened := map[topicPartition]*drainCursor{}
	for _, tp := range wanted {
		opened[tp] = &drainCursor{topicID: topicKey(tp.topic, v.topics[tp.topic].ID)}
		if err := v.missing(tp); err != nil {
			opened[tp].stale = true
			d.failed(tp.topic, fmt.Errorf("ask where log %s/%d starts and ends: %w", tp.topic, tp.partition, err))
			continue
		}
		keys[partitionKey{opened[tp].topicID, tp.partition}] = tp.topic
	}
	positions, err := openPositions(ctx, d.conf.Pool, d.conf.Cluster.Name, keys)
	if err != nil {
		return nil, err
	}
	for tp, c := range opened {
		if c.stale {
			continue
		}
		c.next = positions[partitionKey{c.topicID, tp.partition}]
		if err := d.reconcile(ctx, tp, c, v.start[tp.topic][tp.partition].Offset, v.end[tp.topic][tp.partition].Offset); err != nil {
			return nil, err
		}
		c.stored = c.next
	}
	return opened, nil
}

// missing is why the broker's answer lacks a partition.
func (v brokerView) missing(tp topicPartition) error {
	if err := v.topics[tp.topic].Err; err != nil {
		return err
	}
	for _, list := range []kadm.ListedOffsets{v.start, v.end} {
		at, ok := list.Lookup(tp.topic, tp.partition)
		if !ok {
			return errNoAnswer
		}
		if at.Err != nil {
			return at.Err
		}
	}
	return nil
}

// topicKey is the topic's id; for a broker that knows none, one made of the name.
func topicKey(name string, id [16]byte) uuid.UUID {
	if id == [16]byte{} {
		return uuid.NewSHA1(uuid.NameSpaceURL, []byte("kafka-topic:"+name))
	}
	return uuid.UUID(id)
}

// reconcile compares a position with the log. Records that were dropped before
// they were drained are a gap. A log that ends before the position has lost its
// tail: what was written since could stand at offsets that were passed, so all of
// it is read again; letters that are known stay as they are.
func (d *Drainer) reconcile(ctx context.Context, tp topicPartition, c *drainCursor, start, end int64) error {
	c.end = end
	log := d.conf.Log.With("cluster", d.conf.Cluster.Name, "topic", tp.topic, "partition", tp.partition)
	g := Gap{Cluster: d.conf.Cluster.Name, Source: tp.topic, Partition: tp.partition, From: c.next, To: start}
	switch {
	case c.next < start:
		moved, err := recordGap(ctx, d.conf.Pool, g, c.topicID)
		if err != nil {
			return err
		}
		if moved {
			log.ErrorContext(ctx, "dead letters were lost before they were drained", "from", g.From, "to", g.To)
		}
		c.next = start
	case c.next > end:
		if err := d.rewind(ctx, g, c); err != nil {
			return err
		}
		log.ErrorContext(ctx, "the log has lost its tail, reading it again", "position", g.From, "end", end)
	}
	return nil
}

func (d *Drainer) rewind(ctx context.Context, g Gap, c *drainCursor) error {
	moved, err := movePosition(ctx, d.conf.Pool, g, c.topicID)
	if err != nil {
		return err
	}
	if moved {
		c.rereadEnd = c.next
	}
	c.next = g.To
	return nil
}

// sort turns fetches into parts that continue their cursors. What does not, because
// the topic is a new one of the same name, the log was cut or another replica
// was there, is dropped and its partition opened again.
func (d *Drainer) sort(ctx context.Context, fetches kgo.Fetches) []*partitionBatch {
	d.mu.Lock()
	var parts []*partitionBatch
	fetches.EachTopic(func(t kgo.FetchTopic) {
		t.EachPartition(func(p kgo.FetchPartition) {
			if part := d.part(t, p); part != nil {
				parts = append(parts, part)
			}
		})
	})
	var stale []topicPartition
	for tp, c := range d.cursors {
		if c.stale && c.inHand == 0 {
			stale = append(stale, tp)
		}
	}
	d.mu.Unlock()
	d.reopen(ctx, stale)
	return parts
}

func (d *Drainer) part(t kgo.FetchTopic, p kgo.FetchPartition) *partitionBatch {
	c, ok := d.cursors[topicPartition{t.Topic, p.Partition}]
	if !ok || len(p.Records) == 0 {
		return nil
	}
	c.end = p.HighWatermark
	first, last := p.Records[0].Offset, p.Records[len(p.Records)-1].Offset
	if topicKey(t.Topic, t.TopicID) != c.topicID && t.TopicID != [16]byte{} || first < c.next || first > c.next && p.LogStartOffset > c.next {
		c.stale = true
	}
	if c.stale {
		return nil
	}
	source, _ := match(d.sources, t.Topic)
	part := &partitionBatch{cluster: d.conf.Cluster.Name, Topic: t.Topic, TopicID: c.topicID, Partition: p.Partition,
		From: c.next, Next: last + 1, cursor: c, conf: source.Configured, reread: first < c.rereadEnd}
	for _, r := range p.Records {
		if !r.Attrs.IsControl() {
			part.Records = append(part.Records, r)
		}
	}
	c.next = part.Next
	return part
}

// reopen positions partitions anew. It runs between a poll and AllowRebalance, so
// that they cannot be revoked meanwhile.
func (d *Drainer) reopen(ctx context.Context, stale []topicPartition) {
	opened, err := d.open(ctx, stale)
	if err != nil {
		if ctx.Err() == nil {
			d.conf.Log.WarnContext(ctx, "partitions not opened again, trying soon", "cluster", d.conf.Cluster.Name, "error", err)
		}
		return
	}
	seek := map[string]map[int32]kgo.EpochOffset{}
	d.mu.Lock()
	for tp, c := range opened {
		d.cursors[tp] = c
		if c.stale {
			continue
		}
		if seek[tp.topic] == nil {
			seek[tp.topic] = map[int32]kgo.EpochOffset{}
		}
		seek[tp.topic][tp.partition] = kgo.EpochOffset{Epoch: -1, Offset: c.next}
	}
	d.mu.Unlock()
	d.client.SetOffsets(seek)
}

// stored counts a batch and shows the group where it is.
func (d *Drainer) stored(b batch) {
	d.mu.Lock()
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for i, p := range b.parts {
		s := d.statusOf(p.Topic)
		s.LastError, s.LastErrorAt = "", time.Time{}
		if b.counts[i] > 0 {
			s.Drained, s.LastArrival = s.Drained+int64(b.counts[i]), d.conf.Clock()
		}
		p.cursor.stored = p.Next
		if offsets[p.Topic] == nil {
			offsets[p.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[p.Topic][p.Partition] = kgo.EpochOffset{Epoch: -1, Offset: p.Next}
	}
	d.mu.Unlock()
	d.client.CommitOffsets(context.Background(), offsets, nil) // for display: nothing hangs on it
}

// stale marks the partitions of a batch that was fenced.
func (d *Drainer) stale(ctx context.Context, parts []*partitionBatch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range parts {
		d.conf.Log.InfoContext(ctx, "another replica drains this partition, looking again", "cluster", d.conf.Cluster.Name,
			"topic", p.Topic, "partition", p.Partition, "offset", p.From)
		p.cursor.stale = true
	}
}

// addInHand counts the batches of each part's cursor: a partition is opened again
// only when nothing of it is on its way to the database.
func (d *Drainer) addInHand(parts []*partitionBatch, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range parts {
		p.cursor.inHand += n
	}
}
