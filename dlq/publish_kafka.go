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

// kafkaResult is what Kafka said of one record.
func kafkaResult(rec *kgo.Record, err error) *sendResult {
	return &sendResult{partition: rec.Partition, offset: rec.Offset, err: err, surely: surely(err)}
}

// surely reports whether nothing was appended.
func surely(err error) bool {
	for _, e := range surelyRefused {
		if errors.Is(err, e) {
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

// kafkaSender sends a step's messages to one cluster. It is closed with the step,
// or when a send took too long: nothing leaves it afterwards.
type kafkaSender struct {
	cluster *Cluster
	timeout time.Duration
	small   *kgo.Client
	large   *kgo.Client // nil until needed
}

func (b kafkaBroker) newSender(timeout time.Duration) (sender, error) {
	small, err := b.NewClient(senderOpts(timeout)...)
	if err != nil {
		return nil, err
	}
	return &kafkaSender{cluster: b.Cluster, timeout: timeout, small: small}, nil
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

func (s *kafkaSender) close() {
	s.small.Close()
	if s.large != nil {
		s.large.Close()
	}
}

// client is the producer for one message.
func (s *kafkaSender) client(rec *kgo.Record) (*kgo.Client, error) {
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

// send publishes items, and once more each by itself those of a batch that was
// refused, so that only the culprit stays.
func (s *kafkaSender) send(ctx context.Context, items []*sendItem) (late bool) {
	late = s.sendAll(ctx, items)
	var again []*sendItem
	for _, it := range items {
		if errors.Is(it.result.err, kerr.MessageTooLarge) || errors.Is(it.result.err, kerr.RecordListTooLarge) || errors.Is(it.result.err, kerr.InvalidRecord) {
			again = append(again, it)
		}
	}
	if late || len(again) < 2 {
		return late
	}
	for _, it := range again {
		if late = s.sendAll(ctx, []*sendItem{it}); late {
			break
		}
	}
	return late
}

// sendAll sends items and waits for every answer, or for the context's end,
// after which the clients are closed, which answers the rest.
func (s *kafkaSender) sendAll(ctx context.Context, items []*sendItem) (late bool) {
	var answers sync.WaitGroup
	used := map[*kgo.Client]bool{}
	var last *kgo.Client
	for _, it := range items {
		client, err := s.client(it.message.record)
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
			it.result = kafkaResult(rec, err)
			answers.Done()
		})
	}
	for client := range used {
		late = client.Flush(ctx) != nil || late
	}
	if late {
		s.close() // answers what is open
	}
	answers.Wait()
	return late
}

// copy is the message's record for one attempt; a producer writes into it.
func (m *message) copy() *kgo.Record {
	rec := *m.record
	return &rec
}

// settle gives the message its partition: the one it came from, if it is there.
func (m *message) settle(ends map[int32]int64) {
	if m.record == nil {
		return
	}
	if _, there := ends[m.record.Partition]; !there {
		m.byKey = m.record.Partition >= 0
		m.record.Partition = -1
	}
}

// places gives the end of each partition.
func (b kafkaBroker) places(ctx context.Context, target sendTarget) (map[int32]int64, bool, error) {
	ends, err := b.ends(ctx, target.Topic)
	if err != nil && !topicGone(err) {
		return nil, false, fmt.Errorf("end offsets of %s: %w", target.Topic, err)
	}
	return ends, len(ends) > 0, nil
}

// ends gives the end of each partition. A topic that is not there is an error of
// topicGone.
func (b kafkaBroker) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := b.Admin.ListEndOffsets(ctx, topic)
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
