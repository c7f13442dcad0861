package kafka

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// eventOf is the record as an event without id.
func eventOf(group string, r *kgo.Record) consumer.Event {
	return consumer.Event{
		Group: group, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Key: r.Key, Value: r.Value, Headers: headersOf(r), Time: r.Timestamp,
	}
}

func headersOf(r *kgo.Record) []consumer.Header {
	if len(r.Headers) == 0 {
		return nil
	}
	headers := make([]consumer.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = consumer.Header{Name: h.Key, Value: h.Value}
	}
	return headers
}

// trace adds the trace of ctx to a record that names none.
func trace(ctx context.Context, r *kgo.Record) {
	was := headersOf(r)
	for _, h := range consumer.Traced(ctx, was)[len(was):] {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
}

// The headers of Spring for Apache Kafka's DeadLetterPublishingRecoverer, which
// many tools read (KafkaHeaders.java).
const (
	springPrefix    = "kafka_dlt-"
	springAttempt   = "kafka_deliveryAttempt"
	headerEventID   = "event-id"
	originTopic     = springPrefix + "original-topic"
	originPartition = springPrefix + "original-partition"
	originOffset    = springPrefix + "original-offset"
	originTime      = springPrefix + "original-timestamp"
	originTimeType  = springPrefix + "original-timestamp-type"
	originGroup     = springPrefix + "original-consumer-group"
	exceptionClass  = springPrefix + "exception-fqcn"
	exceptionText   = springPrefix + "exception-message"
	exceptionStack  = springPrefix + "exception-stacktrace"
	addedHeader     = springPrefix + "added-header" // ours: names the application header that we added, which a replay leaves out
)

// deadRecord is the dead letter of a record: key, value and application headers
// as they came, the marks of an earlier failure replaced by those of this one.
func deadRecord(topic string, origin *kgo.Record, l consumer.Letter) *kgo.Record {
	return &kgo.Record{
		Topic: topic, Partition: origin.Partition, // a wish; see sameOrByKey
		Key: origin.Key, Value: origin.Value,
		Headers: append(applicationHeaders(origin), failureHeaders(origin, l)...),
	}
}

func applicationHeaders(r *kgo.Record) []kgo.RecordHeader {
	kept := make([]kgo.RecordHeader, 0, len(r.Headers)+12)
	for _, h := range r.Headers {
		if !strings.HasPrefix(h.Key, springPrefix) && h.Key != springAttempt && !isRetryHeader(h.Key) {
			kept = append(kept, h)
		}
	}
	return kept
}

func failureHeaders(origin *kgo.Record, l consumer.Letter) []kgo.RecordHeader {
	headers := []kgo.RecordHeader{
		{Key: originTopic, Value: []byte(origin.Topic)},
		{Key: originPartition, Value: int32be(origin.Partition)},
		{Key: originOffset, Value: int64be(origin.Offset)},
		{Key: originTime, Value: int64be(origin.Timestamp.UnixMilli())},
		{Key: originTimeType, Value: []byte(timestampType(origin))},
		{Key: originGroup, Value: []byte(l.Group)},
		{Key: exceptionClass, Value: []byte(consumer.ErrorClass(l.Err))},
		{Key: exceptionText, Value: []byte(l.Err.Error())},
		{Key: exceptionStack, Value: []byte(consumer.ErrorTrace(l.Err))},
		{Key: springAttempt, Value: int32be(int32(l.Attempt))},
	}
	if carried, ok := l.Header(headerEventID); l.ID != "" && (!ok || string(carried) != l.ID) {
		headers = append(headers, kgo.RecordHeader{Key: addedHeader, Value: []byte(headerEventID)},
			kgo.RecordHeader{Key: headerEventID, Value: []byte(l.ID)})
	}
	return headers
}

// timestampType names who set the record's timestamp, as Java's TimestampType does.
func timestampType(r *kgo.Record) string {
	switch r.Attrs.TimestampType() {
	case 0:
		return "CreateTime"
	case 1:
		return "LogAppendTime"
	}
	return "NoTimestampType"
}

func int32be(v int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
func int64be(v int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }

// sameOrByKey keeps a dead letter on the partition number of its origin where
// the dead-letter topic has it; else the key decides.
func sameOrByKey() kgo.Partitioner {
	byKey := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		fallback := byKey.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if int(r.Partition) < n {
				return int(r.Partition)
			}
			return fallback.Partition(r, n)
		}
	})
}
