package dlq

import (
	"oncemore/dlq/amqpform"
	"oncemore/dlq/dialect"
)

// Message is a stored letter as its dialect reads it. What cannot be put together
// again is left out: a reader sees the rest.
func (b Body) Message(l Letter) *dialect.Message {
	if b.AMQP != nil {
		d, err := amqpform.Delivery(b.AMQP, fieldsOf(b.Headers), b.Value)
		if err != nil {
			d.Body = b.Value
		}
		return dialect.FromAMQP(l.Source, d)
	}
	m := &dialect.Message{Broker: l.Broker, Key: b.Key, Value: b.Value, From: dialect.Place{Topic: l.Source, TimestampMS: -1}}
	if l.DrainPartition != nil && l.DrainOffset != nil {
		m.From.Partition, m.From.Offset = *l.DrainPartition, *l.DrainOffset
	}
	for _, h := range b.Headers {
		m.Headers = append(m.Headers, dialect.Header{Name: h.Name, Value: h.Value})
	}
	return m
}
