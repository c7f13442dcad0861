package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// RetryTopics makes retries non-blocking: a delivery that failed is published to
// <topic>-retry-<pause in ms>, one topic for each pause of the RetryPolicy, and
// comes back from there when it is due. By default that is 4 attempts: topics
// for 1, 2 and 4 seconds. Its neighbours do not wait for it, so the order of a
// partition is lost: later events of a key take effect before it. Where order
// matters, leave RetryTopics nil: then the partition waits.
//
// A record is never tried before it is due, and late by no more than the jitter
// of those before it in its retry topic. A RetryAfter that is longer than all
// pauses waits in the last topic, and holds what lies behind it there.
//
// The headers are those of Spring's @RetryableTopic. Several groups may share the
// retry topics of a topic: each passes over the records of the others.
type RetryTopics struct {
	// Hold chooses errors for which the partition waits after all, in order. Nil:
	// none. What is retried at all is the RetryPolicy's choice (Only, Exclude).
	Hold func(error) bool
}

// The headers of Spring's DeadLetterPublishingRecovererFactory and
// RetryTopicHeaders, as they stand on records in retry topics. Timestamps of
// retry_topic-* are two's-complement integers of no more bytes than needed.
const (
	retryPrefix        = "retry_topic-"
	retryAttempts      = retryPrefix + "attempts" // int32: which delivery comes next
	retryOriginalTime  = retryPrefix + "original-timestamp"
	retryDue           = retryPrefix + "backoff-timestamp"
	retryOriginPrefix  = "kafka_original-"
	retryTopic         = retryOriginPrefix + "topic"
	retryPartition     = retryOriginPrefix + "partition"
	retryOffset        = retryOriginPrefix + "offset"
	retryTime          = retryOriginPrefix + "timestamp"
	retryTimeType      = retryOriginPrefix + "timestamp-type"
	retryFailurePrefix = "kafka_exception-"
	retryClass         = retryFailurePrefix + "fqcn"
	retryText          = retryFailurePrefix + "message"
)

// RetryTopic names the topic where failed deliveries of topic wait for pause.
func RetryTopic(topic string, pause time.Duration) string {
	return topic + "-retry-" + strconv.FormatInt(pause.Milliseconds(), 10)
}

// retries are the retry topics of a consumer; its zero value has none.
type retries struct {
	opts   Options
	group  string
	pauses []time.Duration // distinct, ascending
	all    map[string]bool
}

// maxRetryTopics bounds how many topics one policy makes of one topic.
const maxRetryTopics = 16

func newRetries(group string, policy consumer.RetryPolicy, opts Options) (retries, error) {
	r := retries{opts: opts, group: group, all: map[string]bool{}}
	if opts.RetryTopics == nil {
		return r, nil
	}
	for _, p := range policy.Pauses() {
		r.pauses = append(r.pauses, max(p.Truncate(time.Millisecond), time.Millisecond))
	}
	slices.Sort(r.pauses)
	r.pauses = slices.Compact(r.pauses)
	if n := len(r.pauses); n == 0 || n > maxRetryTopics {
		return r, fmt.Errorf("retry topics: the policy has %d different pauses, which has to be 1 to %d", n, maxRetryTopics)
	}
	for _, name := range r.names() {
		if !topicName.MatchString(name) {
			return r, fmt.Errorf("retry topics: %q is no topic name", name)
		}
		r.all[name] = true
	}
	return r, nil
}

// of names the retry topics that take the records of topic.
func (r retries) of(topic string) []string {
	names := make([]string, len(r.pauses))
	for i, p := range r.pauses {
		names[i] = RetryTopic(topic, p)
	}
	return names
}

// names are all retry topics.
func (r retries) names() []string {
	var names []string
	for _, topic := range r.opts.Topics {
		names = append(names, r.of(topic)...)
	}
	return names
}

// has reports whether topic is one of the retry topics.
func (r retries) has(topic string) bool { return r.all[topic] }

// topicFor is where a record of origin waits for pause: the shortest that lasts
// at least as long, else the longest. What came from <group>.replay waits in the
// retry topics of the first topic.
func (r retries) topicFor(origin string, pause time.Duration) string {
	if origin == ReplayTopic(r.group) {
		origin = r.opts.Topics[0]
	}
	for _, p := range r.pauses {
		if p >= pause {
			return RetryTopic(origin, p)
		}
	}
	return RetryTopic(origin, r.pauses[len(r.pauses)-1])
}

// foreign reports whether a record of a retry topic belongs to another group.
func (r retries) foreign(record *kgo.Record) bool {
	group, ok := lastHeader(record, originGroup)
	return ok && string(group) != r.group
}

// due is when a record of a retry topic is to be tried; zero for at once.
func due(record *kgo.Record) time.Time {
	value, ok := lastHeader(record, retryDue)
	if !ok || len(value) > 8 {
		return time.Time{}
	}
	return time.UnixMilli(intOf(value))
}

// postponed is the record that waits in topic for its next attempt.
func postponed(topic string, origin *kgo.Record, l consumer.Letter, due time.Time) *kgo.Record {
	headers := append(applicationHeaders(origin),
		kgo.RecordHeader{Key: retryTopic, Value: []byte(origin.Topic)},
		kgo.RecordHeader{Key: retryPartition, Value: int32be(origin.Partition)},
		kgo.RecordHeader{Key: retryOffset, Value: int64be(origin.Offset)},
		kgo.RecordHeader{Key: retryTime, Value: int64be(origin.Timestamp.UnixMilli())},
		kgo.RecordHeader{Key: retryTimeType, Value: []byte(timestampType(origin))},
		kgo.RecordHeader{Key: originGroup, Value: []byte(l.Group)},
		kgo.RecordHeader{Key: retryClass, Value: []byte(consumer.ErrorClass(l.Err))},
		kgo.RecordHeader{Key: retryText, Value: []byte(l.Err.Error())},
		kgo.RecordHeader{Key: retryOriginalTime, Value: minimal(origin.Timestamp.UnixMilli())},
		kgo.RecordHeader{Key: retryAttempts, Value: int32be(int32(l.Attempt + 1))},
		kgo.RecordHeader{Key: retryDue, Value: minimal(due.UnixMilli())},
	)
	return &kgo.Record{Topic: topic, Partition: origin.Partition, Key: origin.Key, Value: origin.Value, Headers: headers}
}

// original is a record as it was before it went through retry topics, and which
// attempt it is for. Handlers and dead letters see that one. On other topics such
// headers are left over from an earlier life and mean nothing.
func (rs retries) original(r *kgo.Record) (*kgo.Record, int) {
	topic, ok := lastHeader(r, retryTopic)
	if !rs.has(r.Topic) || !ok || len(topic) == 0 {
		return r, 1
	}
	origin := *r
	origin.Topic = string(topic)
	origin.Headers = applicationHeaders(r)
	if v, ok := lastHeader(r, retryPartition); ok {
		origin.Partition = int32(intOf(v))
	}
	if v, ok := lastHeader(r, retryOffset); ok {
		origin.Offset = intOf(v)
	}
	if v, ok := lastHeader(r, retryTime); ok {
		origin.Timestamp = time.UnixMilli(intOf(v))
	}
	if v, ok := lastHeader(r, retryTimeType); ok {
		origin.Attrs = attrsOf(string(v))
	}
	attempt := 1
	if v, ok := lastHeader(r, retryAttempts); ok {
		attempt = int(max(intOf(v), 1))
	}
	return &origin, attempt
}

func attrsOf(timestampType string) kgo.RecordAttrs {
	var set kgo.RecordAttrsOpts
	if timestampType == "LogAppendTime" {
		set.TimestampType = 1
	}
	return kgo.NewRecordAttrs(set)
}

func lastHeader(r *kgo.Record, name string) ([]byte, bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}

// minimal is Java's BigInteger.toByteArray.
func minimal(v int64) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(v))
	for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		b = b[1:]
	}
	return b
}

// intOf reads a big-endian two's-complement integer of up to eight bytes.
func intOf(b []byte) int64 {
	if len(b) == 0 || len(b) > 8 {
		return 0
	}
	v := int64(int8(b[0]))
	for _, c := range b[1:] {
		v = v<<8 | int64(c)
	}
	return v
}

// isRetryHeader reports whether a header was put on by a retry.
func isRetryHeader(name string) bool {
	return strings.HasPrefix(name, retryPrefix) || strings.HasPrefix(name, retryOriginPrefix) || strings.HasPrefix(name, retryFailurePrefix)
}

// deferring is the port of a partition whose consumer has retry topics.
type deferring[T any] struct{ *partition[T] }

var _ consumer.Deferrer = deferring[any]{}

// Defer publishes a failed delivery to the retry topic of its pause.
func (p deferring[T]) Defer(ctx context.Context, l consumer.Letter, pause time.Duration) (bool, error) {
	if hold := p.retries.opts.RetryTopics.Hold; hold != nil && hold(l.Err) {
		return false, nil
	}
	origin, _ := p.retries.original(p.batch[0])
	topic := p.retries.topicFor(origin.Topic, pause)
	err := p.dead.send(ctx, postponed(topic, origin, l, p.cfg.Now().Add(pause)))
	switch {
	case errors.Is(err, kerr.MessageTooLarge):
		return false, nil // the headers made it too large: it is held
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return false, fmt.Errorf("retry topic %s does not exist: create it with the partitions of %s, or let the consumer do so by CreateTopics: %w",
			topic, origin.Topic, err)
	case err != nil:
		return false, fmt.Errorf("publish to retry topic %s: %w", topic, err)
	}
	return true, nil
}

// LongestPause is unlimited: a partition may be held, fetching is paused then.
func (p deferring[T]) LongestPause() time.Duration { return math.MaxInt64 }

// ready is how many records at the front of the batch may be handled together
// now. In a retry topic it passes over those of other groups and waits until the
// first is due, while fetching is paused and polling goes on. False: stopped.
func (p *partition[T]) ready() (int, bool) {
	if !p.retries.has(p.id.Topic) {
		return len(p.batch), true
	}
	if n := p.front(p.retries.foreign); n > 0 {
		p.Done(n)
	}
	if len(p.batch) == 0 {
		return 0, true
	}
	at := due(p.batch[0])
	if !p.sleepUntil(at) {
		return 0, false
	}
	if now := p.cfg.Now(); now.After(at) {
		at = now
	}
	return p.front(func(r *kgo.Record) bool { return !p.retries.foreign(r) && !due(r).After(at) }), true
}

// front counts the first records of the batch that hold.
func (p *partition[T]) front(holds func(*kgo.Record) bool) int {
	n := slices.IndexFunc(p.batch, func(r *kgo.Record) bool { return !holds(r) })
	if n < 0 {
		return len(p.batch)
	}
	return n
}

// sleepUntil returns false when the partition was stopped meanwhile.
func (p *partition[T]) sleepUntil(at time.Time) bool {
	pause := at.Sub(p.cfg.Now())
	if pause <= 0 {
		return true
	}
	p.resting(true)
	defer p.resting(false)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.stop:
		return false
	case <-p.ctx.Done():
		return false
	}
}
