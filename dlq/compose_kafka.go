package dlq

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// compose makes the record without the headers that the framework added.
func (b kafkaBroker) compose(it *sendItem, of composing) {
	kept, err := StripHeaders(of.dialects, of.stored.dialect, of.body.Headers)
	if err != nil {
		it.leave(replayReason("reason.letter.dialect", "dialect", of.stored.dialect))
		return
	}
	rec := &kgo.Record{Topic: of.target.Topic, Key: of.body.Key, Value: of.body.Value, Partition: -1, Headers: kafkaHeaders(kept, of.replay, it.no)}
	if of.stored.partition != nil {
		rec.Partition = *of.stored.partition
	}
	it.message = &message{cluster: of.target.Cluster, record: rec, bytesFrom: of.from}
}

// kafkaHeaders adds the two headers by which a message is found again.
func kafkaHeaders(kept []Header, replay int64, item int) []kgo.RecordHeader {
	out := make([]kgo.RecordHeader, 0, len(kept)+2)
	for _, h := range kept {
		if h.Name != HeaderReplay && h.Name != HeaderItem {
			out = append(out, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
	}
	return append(out,
		kgo.RecordHeader{Key: HeaderReplay, Value: strconv.AppendInt(nil, replay, 10)},
		kgo.RecordHeader{Key: HeaderItem, Value: strconv.AppendInt(nil, int64(item), 10)})
}
