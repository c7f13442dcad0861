package dlq

import (
	"github.com/google/uuid"
)

// identity is what makes an arrival the same failure as another: a row of
// letter_identity. The bucket stands before the hash because neighbours in time
// then share pages (schema-probe.md); it is a pure function of the hashed facts
// and may never change without hashing anew.
type identity struct {
	bucket int32
	hash   uuid.UUID
}

// identify hashes cluster, topic id, group, origin and event id. Where the origin
// record is not fully known two different letters could look alike, so the dead
// letter's own place is hashed too: in doubt it is stored twice. The record's time
// is in it because a truncated log gives the same place to another record.
func (a *arrival) identify() identity {
	if a.from.broker == brokerRabbit {
		return a.identifyRabbit()
	}
	r := a.read
	h := newFactHash().text(a.from.cluster).text(string(a.from.topicID[:]))
	h.optional(r.Group).optional(r.OriginTopic).optional(r.EventID)
	for _, known := range []bool{r.OriginPartition != nil, r.OriginOffset != nil, r.OriginTime != nil} {
		h.number(map[bool]int64{true: 1}[known])
	}
	h.number(int64(deref(r.OriginPartition))).number(deref(r.OriginOffset)).number(originMS(a))
	if r.OriginTopic == nil || r.OriginPartition == nil || r.OriginOffset == nil {
		h.number(int64(a.from.partition)).number(a.from.offset).number(a.from.at.UnixMilli())
		h.text(string(a.message.Key)).text(string(a.message.Value))
	}
	return identity{bucket: a.bucket(), hash: h.sum()}
}

// identifyRabbit hashes cluster, queue, group, origin queue, event id and body: a
// queue has no positions by which a second dead letter of one failure could be
// told. Without an id nothing says that two messages are one, so each is a letter.
func (a *arrival) identifyRabbit() identity {
	r := a.read
	h := newFactHash().text(a.from.cluster).text("queue").text(a.from.source)
	h.optional(r.Group).optional(r.OriginQueue).optional(r.EventID).number(originMS(a)).text(string(a.message.Value))
	if r.EventID == nil {
		random := uuid.New()
		h.text(string(random[:]))
	}
	return identity{bucket: a.bucket(), hash: h.sum()}
}

// bucket is the hour of the origin record, else where in its partition it stood.
func (a *arrival) bucket() int32 {
	switch r := a.read; {
	case r.OriginTime != nil:
		return int32(originMS(a) / 3_600_000)
	case r.OriginOffset != nil:
		return int32(*r.OriginOffset >> 16 & 0x7fffffff)
	}
	return 0
}

func originMS(a *arrival) int64 {
	if a.read.OriginTime == nil {
		return 0
	}
	return a.read.OriginTime.UnixMilli()
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
