package dlq

import (
	"log/slog"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/dlq/dialect"
)

// partitionBatch is records of one partition that are stored together: those from
// From on, in order, after which the position is Next. Offsets may have holes.
type partitionBatch struct {
	cluster    string
	Topic      string
	TopicID    uuid.UUID
	Partition  int32
	From, Next int64
	Records    []*kgo.Record
	conf       dialect.Configured
	cursor     *drainCursor // that fetched it
	reread     bool         // below a position that was passed once: copies are possible
}

// arrive reads a record of Kafka.
func arrive(set *dialect.Set, part *partitionBatch, record *kgo.Record, log *slog.Logger) *arrival {
	a := &arrival{message: messageOf(record), headers: EncodeHeaders(headersOf(record)), from: arrivedAt{
		cluster: part.cluster, broker: brokerKafka, source: part.Topic, topicID: part.TopicID,
		partition: record.Partition, offset: record.Offset, at: record.Timestamp, reread: part.reread,
	}}
	return a.understand(set, part.conf, log, nil)
}

func headersOf(record *kgo.Record) []Header {
	headers := make([]Header, len(record.Headers))
	for i, h := range record.Headers {
		headers[i] = Header{Name: h.Key, Value: h.Value}
	}
	return headers
}

func messageOf(record *kgo.Record) *dialect.Message {
	m := &dialect.Message{Broker: dialect.Kafka, Key: record.Key, Value: record.Value, Headers: make([]dialect.Header, len(record.Headers))}
	m.From = dialect.Place{Topic: record.Topic, Partition: record.Partition, Offset: record.Offset, TimestampMS: record.Timestamp.UnixMilli()}
	for i, h := range record.Headers {
		m.Headers[i] = dialect.Header{Name: h.Key, Value: h.Value}
	}
	return m
}
