package rabbit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
)

// What a delivery carries through a retry queue. It is taken off when the
// delivery comes back, so that handlers and dead letters see the message as it was.
const (
	retryPrefix   = "oncemore-retry-"
	retryAttempt  = retryPrefix + "attempt" // int32: which attempt comes next
	retryExchange = retryPrefix + "exchange"
	retryKey      = retryPrefix + "key"
	retryExpiry   = retryPrefix + "expiration"
	retryAside    = retryPrefix + "own-" // headers that the broker would act on or overwrite
)

// retryRoom is what has to be free in a frame for a delivery to go through a
// retry queue: our marks, and the history that the broker adds.
const retryRoom = 4 << 10

// longPauses are those offered to RetryAfter beyond the policy's.
var longPauses = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// retryPauses are the pauses that have a queue, ascending: the policy's own and,
// above them, the long ones.
func retryPauses(policy []time.Duration) []time.Duration {
	pauses := append(slices.Clone(policy), longPauses...)
	slices.Sort(pauses)
	return slices.Compact(pauses)
}

// rung is the shortest of pauses that lasts at least d, else the longest.
func rung(pauses []time.Duration, d time.Duration) time.Duration {
	for _, p := range pauses {
		if p >= d {
			return p
		}
	}
	return pauses[len(pauses)-1]
}

// RetryQueue names the queue where failed deliveries of queue wait for pause.
func RetryQueue(queue string, pause time.Duration) string {
	text := pause.String() // 1m30s, 1m0s, 1h0m0s
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return queue + ".retry." + text
}

// retryArgs let the broker bring a message back to queue when its pause is over.
// At-least-once dead-lettering keeps it until the queue has it; it needs a quorum
// queue that refuses rather than drops.
func retryArgs(queue string, pause time.Duration) amqp.Table {
	return amqp.Table{
		amqp.QueueTypeArg:           amqp.QueueTypeQuorum,
		amqp.QueueMessageTTLArg:     pause.Milliseconds(),
		amqp.QueueOverflowArg:       amqp.QueueOverflowRejectPublish,
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": queue,
		"x-dead-letter-strategy":    "at-least-once",
	}
}

// postpone moves a failed delivery into the retry queue of its pause. It returns
// false for one with headers so large that they would outgrow a frame there.
func (c *Consumer[T]) postpone(ctx context.Context, d amqp.Delivery, l consumer.Letter, pause time.Duration) (bool, error) {
	pause = rung(c.pauses, pause)
	queue := RetryQueue(c.opts.Queue, pause)
	fits, err := c.publisher.publishDeclared(ctx, queue, retryArgs(c.opts.Queue, pause), wrapped(d, l.Attempt+1))
	if err != nil {
		return false, fmt.Errorf("publish to retry queue %s: %w", queue, err)
	}
	return fits, nil
}

// publishDeclared declares the queue, unless this connection has done so, and
// publishes to it. It returns false for a message that would outgrow a frame.
func (p *publisher) publishDeclared(ctx context.Context, queue string, args amqp.Table, m amqp.Publishing) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.connect(ctx)
	if err != nil {
		return false, err
	}
	if limit := l.conn.Config.FrameSize; limit > 0 && headerSize(m) > limit-retryRoom {
		return false, nil
	}
	if !l.declared[queue] {
		err := l.ask(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(queue, true, false, false, false, args)
			return err
		})
		if err != nil {
			return false, fmt.Errorf("declare it: %w", err)
		}
		l.declared[queue] = true
	}
	if err := p.send(ctx, l, queue, m); err != nil {
		delete(l.declared, queue) // it may be gone
		return false, err
	}
	return true, nil
}

// wrapped is a delivery as it lies in a retry queue.
func wrapped(d amqp.Delivery, attempt int) amqp.Publishing {
	m := publishing(d)
	for name, value := range d.Headers {
		if routes(name) || isDeath(name) {
			delete(m.Headers, name)
			m.Headers[retryAside+name] = value
		}
	}
	m.Headers[retryAttempt] = int32(attempt)
	m.Headers[retryExchange], m.Headers[retryKey] = d.Exchange, d.RoutingKey
	if d.Expiration != "" {
		m.Headers[retryExpiry] = d.Expiration
	}
	return m
}

// unwrapped is a delivery as it was before it went through retry queues, and
// which attempt it is for.
func unwrapped(d amqp.Delivery) (amqp.Delivery, int) {
	attempt, ok := d.Headers[retryAttempt].(int32)
	if !ok || attempt < 1 {
		return d, 1
	}
	d.Exchange, _ = d.Headers[retryExchange].(string)
	d.RoutingKey, _ = d.Headers[retryKey].(string)
	d.Expiration, _ = d.Headers[retryExpiry].(string)
	headers := maps.Clone(d.Headers)
	maps.DeleteFunc(headers, func(name string, _ any) bool { return isDeath(name) || strings.HasPrefix(name, retryPrefix) })
	for name, value := range d.Headers {
		if own, ok := strings.CutPrefix(name, retryAside); ok {
			headers[own] = value
		}
	}
	d.Headers = headers
	return d, int(attempt)
}
