package dlq

import (
	"crypto/sha256"
	"fmt"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/dlq/amqpform"
	"oncemore/dlq/dialect"
)

// queueArrival is a delivery on its way into the tables.
type queueArrival struct {
	*arrival
	tag         uint64
	redelivered bool
	hash        messageHash
}

// messageHash tells messages apart: body and properties without the counts that
// the broker keeps of deliveries.
type messageHash [sha256.Size]byte

// arriveFromQueue reads a delivery. Errors: a header that the codec does not know.
func arriveFromQueue(set *dialect.Set, cluster, queue string, source DrainSource, groups GroupBook, d amqp.Delivery, log *slog.Logger) (*queueArrival, error) {
	fields, err := amqpform.Fields(d.Headers)
	if err != nil {
		return nil, fmt.Errorf("read delivery of %s: %w", queue, err)
	}
	a := &arrival{message: dialect.FromAMQP(queue, d), headers: EncodeHeaders(typedHeaders(fields)), envelope: amqpform.Envelope(d),
		from: arrivedAt{cluster: cluster, broker: brokerRabbit, source: queue, partition: -1, offset: -1}}
	conf := source.Configured
	conf.Group = "" // it counts less than what is known of the queue
	a.understand(set, conf, log, func(r *dialect.Reading) { amendQueue(r, cluster, source, groups) })
	return &queueArrival{arrival: a, tag: d.DeliveryTag, redelivered: d.Redelivered, hash: hashOf(d, fields)}, nil
}

// amendQueue completes what a letter of RabbitMQ says: a message to the default
// exchange went to the queue of its key, and the group is that of the queue that
// failed, by the config or else by the queue's own name.
func amendQueue(r *dialect.Reading, cluster string, source DrainSource, groups GroupBook) {
	if r.OriginQueue == nil && r.OriginExchange != nil && *r.OriginExchange == "" && r.OriginRoutingKey != nil {
		r.OriginQueue = r.OriginRoutingKey
	}
	if r.OriginQueue != nil && *r.OriginQueue == "" {
		r.OriginQueue = nil
	}
	if r.Group != nil {
		return
	}
	if r.OriginQueue != nil {
		if declared := groups.Reading(cluster, *r.OriginQueue); len(declared) > 0 {
			r.Group = &declared[0]
			return
		}
	}
	if group := source.Configured.Group; group != "" {
		r.Group = &group
		return
	}
	r.Group = r.OriginQueue
}

func hashOf(d amqp.Delivery, fields []amqpform.Field) (sum messageHash) {
	h := newFactHash().text(string(amqpform.Envelope(d)))
	for _, f := range fields {
		if !countsDeliveries(f.Name) {
			h.text(f.Name).text(string(f.Type)).text(string(f.Value))
		}
	}
	h.text(string(d.Body))
	h.Sum(sum[:0])
	return sum
}

// countsDeliveries: these differ from one delivery of a message to the next.
func countsDeliveries(name string) bool {
	return name == "x-delivery-count" || name == "x-acquired-count"
}
