package rabbit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
)

// The headers of Spring AMQP's RepublishMessageRecoverer, which many tools read,
// and ours beside them. Spring's prefixes are kept, so that what strips its
// headers from a message strips ours, too.
const (
	failurePrefix   = "x-exception-"
	originPrefix    = "x-original-"
	exceptionText   = failurePrefix + "message"
	exceptionStack  = failurePrefix + "stacktrace"
	exceptionClass  = failurePrefix + "class"     // ours
	exceptionTime   = failurePrefix + "timestamp" // ours; whole seconds
	attempts        = failurePrefix + "attempts"  // ours; int32
	originExchange  = originPrefix + "exchange"
	originKey       = originPrefix + "routingKey"
	originQueue     = originPrefix + "queue"         // ours
	originGroup     = originPrefix + "consumerGroup" // ours
	originExpiry    = originPrefix + "expiration"    // ours; the property would let the letter expire
	originEventID   = originPrefix + "eventId"       // ours; where the message has another event-id header
	originAdded     = originPrefix + "addedHeader"   // ours; the header that the message did not have
	headerEventID   = "event-id"
	headroom        = 1024 // left free in a frame
	largestMessage  = 8 << 10
	smallestMessage = 256
)

// deadLetter publishes the letter of a delivery, and returns nil once it is
// confirmed to lie in the dead-letter queue.
func (c *Consumer[T]) deadLetter(ctx context.Context, d amqp.Delivery, l consumer.Letter) error {
	queue := c.opts.DeadLetterQueue
	now := c.cfg.Now()
	err := c.publisher.publish(ctx, queue, func(frameMax int) amqp.Publishing { return letterOf(d, l, now, frameMax) })
	switch {
	case errors.Is(err, errUnroutable):
		return fmt.Errorf("dead-letter queue %s does not exist: declare it, or let the consumer do so by DeclareQueues: %w", queue, err)
	case err != nil:
		return fmt.Errorf("publish dead letter to %s: %w", queue, err)
	}
	return nil
}

// letterOf is the dead letter of a delivery: body, properties and application
// headers as they came, the marks of an earlier failure replaced by those of this one.
func letterOf(d amqp.Delivery, l consumer.Letter, at time.Time, frameMax int) amqp.Publishing {
	m := publishing(d)
	for name, value := range d.Headers {
		switch {
		case strings.HasPrefix(name, failurePrefix) || strings.HasPrefix(name, originPrefix):
			delete(m.Headers, name)
		case routes(name):
			delete(m.Headers, name)
			m.Headers[originPrefix+name] = value
		}
	}
	room := newRoom(m, frameMax)
	for _, f := range failureFields(d, l, at) {
		room.put(f.name, f.value)
	}
	room.putText(exceptionText, l.Err.Error(), min(largestMessage, max(room.left/2, smallestMessage)))
	room.putText(exceptionStack, stackOf(l.Err), room.left)
	return m
}

type field struct {
	name  string
	value any
}

// failureFields are the short ones, the most needed first.
func failureFields(d amqp.Delivery, l consumer.Letter, at time.Time) []field {
	fields := []field{{originQueue, l.Queue}, {originExchange, d.Exchange}, {originKey, d.RoutingKey}, {originGroup, l.Group}}
	switch carried, ok := l.Header(headerEventID); {
	case l.ID == "" || ok && string(carried) == l.ID:
	case ok:
		fields = append(fields, field{originEventID, l.ID})
	default:
		fields = append(fields, field{originAdded, headerEventID}, field{headerEventID, l.ID})
	}
	fields = append(fields, field{attempts, int32(l.Attempt)}, field{exceptionTime, at.Truncate(time.Second)},
		field{exceptionClass, shorten(valid(consumer.ErrorClass(l.Err)), maxShort)})
	if d.Expiration != "" {
		fields = append(fields, field{originExpiry, d.Expiration})
	}
	return fields
}

// stackOf begins as Java's stack traces do, since that is where tools look for
// the class.
func stackOf(err error) string {
	return fmt.Sprintf("%s: %s\n%s", strings.TrimPrefix(consumer.ErrorClass(err), "*"), err, consumer.ErrorTrace(err))
}

// room adds headers to a message as long as they fit into a frame.
type room struct {
	message amqp.Publishing
	left    int
}

func newRoom(m amqp.Publishing, frameMax int) *room {
	if frameMax <= 0 {
		frameMax = 128 << 10 // no limit was agreed; the broker's default
	}
	return &room{message: m, left: frameMax - headroom - headerSize(m)}
}

// put adds a header, unless it does not fit: the message's own headers come first.
func (r *room) put(name string, value any) {
	if n := 1 + len(name) + fieldSize(value); n <= r.left {
		r.message.Headers[name] = value
		r.left -= n
	}
}

// putText adds a text, shortened to most bytes.
func (r *room) putText(name, text string, most int) {
	most = min(most, r.left-1-len(name)-fieldSize(""))
	if cut := shorten(valid(text), most); cut != "" {
		r.put(name, cut)
	}
}
