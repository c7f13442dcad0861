package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// sendResult is what the broker said of one message.
type sendResult struct {
	partition int32
	offset    int64
	err       error // nil: confirmed
}

// refused reports whether the broker surely did not take the message.
func (r *sendResult) refused() bool {
	for _, e := range surelyRefused {
		if errors.Is(r.err, e) {
			return true
		}
	}
	return false
}

// surelyRefused are the answers after which nothing was appended, in no earlier
// attempt of the same idempotent send either. Anything else, time-outs above
// all, leaves open whether the message is there.
var surelyRefused = []error{
	kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
	kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.InvalidTopicException,
	kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.PolicyViolation,
	kerr.UnsupportedForMessageFormat, kerr.InvalidRequiredAcks, kerr.UnsupportedCompressionType,
}

// largeRecord is from where a message gets a producer of its own: batches of the
// others stay below a broker's default limit.
const (
	largeRecord = 900 << 10
	largestSend = 100 << 20
)

// sender sends a step's messages to one cluster. It is closed with the step, or
// when a send took too long: nothing leaves it afterwards.
type sender struct {
	cluster *Cluster
	timeout time.Duration
	small   *kgo.Client
	large   *kgo.Client // nil until needed
}

func (c *Cluster) newSender(timeout time.Duration) (*sender, error) {
	small, err := c.NewClient(senderOpts(timeout)...)
	if err != nil {
		return nil, err
	}
	return &sender{cluster: c, timeout: timeout, small: small}, nil
}

func senderOpts(timeout time.Duration) []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(partitioner{kgo.StickyKeyPartitioner(nil)}),
		kgo.ProduceRequestTimeout(timeout),
		kgo.RecordDeliveryTimeout(timeout),
		kgo.AllowIdempotentProduceCancellation(), // the target is searched instead
		kgo.UnknownTopicRetries(2),
		kgo.MaxBufferedRecords(1000),
	}
}

func (s *sender) close() {
	s.small.Close()
	if s.large != nil {
		s.large.Close()
	}
}

// client is the producer for one message.
func (s *sender) client(rec *kgo.Record) (*kgo.Client, error) {
	if recordSize(rec) < largeRecord {
		return s.small, nil
	}
	if s.large == nil {
		large, err := s.cluster.NewClient(append(senderOpts(s.timeout),
			kgo.ProducerBatchMaxBytes(largestSend-1<<10), kgo.BrokerMaxWriteBytes(largestSend))...)
		if err != nil {
			return nil, err
		}
		s.large = large
	}
	return s.large, nil
}

func recordSize(rec *kgo.Record) int {
	n := len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n
}

// partitioner sends to the record's partition, and where that is -1 as Kafka's
// own clients do.
type partitioner struct{ byKey kgo.Partitioner }

// ForTopic is part of kgo.Partitioner.
func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return topicPartitioner{p.byKey.ForTopic(topic)}
}

type topicPartitioner struct{ byKey kgo.TopicPartitioner }

// RequiresConsistency keeps a record from another partition when its own has no leader.
func (p topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.byKey.RequiresConsistency(r)
}

// Partition is part of kgo.TopicPartitioner.
func (p topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.byKey.Partition(r, n)
}

// connect makes the producers that the chunk needs before its intent is committed.
func (s *step) connect(_ context.Context, c *chunk) error {
	for _, it := range c.going() {
		if _, err := s.sender(it.message.cluster); err != nil {
			return err
		}
	}
	return nil
}

func (s *step) sender(cluster string) (*sender, error) {
	if snd := s.senders[cluster]; snd != nil {
		return snd, nil
	}
	on := s.r.clusters[cluster]
	if on == nil {
		return nil, fmt.Errorf("cluster %s is not configured", cluster)
	}
	snd, err := on.newSender(s.r.opts.SendTimeout)
	if err != nil {
		return nil, err
	}
	if s.senders == nil {
		s.senders = map[string]*sender{}
	}
	s.senders[cluster] = snd
	return snd, nil
}

// publish sends what the chunk claimed, in order, and waits for the brokers'
// answers until the chunk's time is over. Then the clients that have not answered
// are closed: what came of their messages is for the search to say.
func (s *step) publish(ctx context.Context, c *chunk) {
	ctx, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	s.publishAll(ctx, c.going())
	var again []*sendItem
	for _, it := range c.going() {
		if errors.Is(it.result.err, kerr.MessageTooLarge) || errors.Is(it.result.err, kerr.RecordListTooLarge) || errors.Is(it.result.err, kerr.InvalidRecord) {
			again = append(again, it)
		}
	}
	if len(again) < 2 {
		return
	}
	for _, it := range again { // a batch was refused: each by itself, so that only the culprit stays
		s.publishAll(ctx, []*sendItem{it})
	}
}

func (c *chunk) going() []*sendItem {
	var going []*sendItem
	for _, it := range c.items {
		if it.goes() {
			going = append(going, it)
		}
	}
	return going
}

// publishAll sends items and waits for every answer, or for the context's end,
// after which the clients are closed, which answers the rest.
func (s *step) publishAll(ctx context.Context, items []*sendItem) {
	var answers sync.WaitGroup
	used := map[*kgo.Client]bool{}
	var last *kgo.Client
	for _, it := range items {
		client, err := s.clientOf(it)
		if deadline, _ := ctx.Deadline(); err == nil && !time.Now().Before(deadline) {
			err = context.DeadlineExceeded // this process stood still: the timer has not fired yet
		}
		if err != nil {
			it.result = &sendResult{err: err}
			continue
		}
		if last != nil && last != client { // large and small in turn keep their order
			_ = last.Flush(ctx) // each message's own answer tells
		}
		last, used[client] = client, true
		answers.Add(1)
		client.Produce(ctx, it.message.copy(), func(rec *kgo.Record, err error) {
			it.result = &sendResult{partition: rec.Partition, offset: rec.Offset, err: err}
			answers.Done()
		})
	}
	late := false
	for client := range used {
		late = client.Flush(ctx) != nil || late
	}
	if late {
		s.dropSenders()
	}
	answers.Wait()
}

// copy is the message's record for one attempt; a producer writes into it.
func (m *message) copy() *kgo.Record {
	rec := *m.record
	return &rec
}

func (s *step) clientOf(it *sendItem) (*kgo.Client, error) {
	snd, err := s.sender(it.message.cluster)
	if err != nil {
		return nil, err
	}
	return snd.client(it.message.record)
}

func (s *step) dropSenders() {
	for _, snd := range s.senders {
		snd.close()
	}
	s.senders = nil
}

// readEnds reads where the partitions of the chunk's targets end now, and settles
// each message's partition: the one it came from, if it is there.
func (s *step) readEnds(ctx context.Context, c *chunk) error {
	c.ends = endOffsets{}
	for _, it := range c.going() {
		target := c.targets[it.targetID]
		if _, asked := c.ends[target.ID]; !asked {
			ends, err := s.topicEnds(ctx, target)
			if err != nil && !topicGone(err) {
				return fmt.Errorf("end offsets of %s: %w", target.Topic, err)
			}
			c.ends[target.ID] = ends
		}
		if len(c.ends[target.ID]) == 0 {
			it.leave(reason("reason.unknown.target_missing", "topic", target.Topic))
			continue
		}
		rec := it.message.record
		if _, there := c.ends[target.ID][rec.Partition]; !there {
			it.message.byKey = rec.Partition >= 0
			rec.Partition = -1
		}
	}
	return nil
}

// topicEnds gives the end of each partition. A topic that is not there is an
// error of topicGone.
func (s *step) topicEnds(ctx context.Context, target sendTarget) (map[int32]int64, error) {
	cluster := s.r.clusters[target.Cluster]
	if cluster == nil {
		return nil, fmt.Errorf("cluster %s is not configured", target.Cluster)
	}
	listed, err := cluster.Admin.ListEndOffsets(ctx, target.Topic)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		err = errors.Join(err, o.Err)
		ends[o.Partition] = o.Offset
	})
	if err != nil {
		return nil, err
	}
	return ends, nil
}
