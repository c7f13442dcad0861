package rabbit

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
)

// Pause lets a running transaction finish and ends the session: what was
// delivered ahead goes back to the queue, where others may take it.
func (c *Consumer[T]) Pause() {
	c.gate.Close()
	select {
	case c.paused <- struct{}{}:
	default:
	}
}

// Resume goes on after Pause.
func (c *Consumer[T]) Resume() { c.gate.Open() }

// Status is what the consumer is doing now.
func (c *Consumer[T]) Status() consumer.Status {
	s := consumer.Status{Group: c.cfg.Group, Topics: []string{c.opts.Queue}, StaleAcks: c.acks.staleCount(), Reconnects: c.reconnects.Load()}
	c.meter.Fill(&s)
	session := c.shown()
	if session != nil {
		s.Assigned = []consumer.Partition{{Topic: c.opts.Queue}}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Started = c.started
	s.State = c.state(session == nil || session.isWaiting())
	return s
}

func (c *Consumer[T]) state(waiting bool) consumer.State {
	switch {
	case !c.running:
		return consumer.Stopped
	case c.gate.Closed():
		return consumer.Paused
	case waiting:
		return consumer.Waiting
	}
	return consumer.Running
}

// errNotRunning is returned by Lag before and after Run.
var errNotRunning = errors.New("rabbit: consumer is not running")

// Lag asks the broker how many messages are ready in the queue, and adds those
// that this consumer has not begun. What other consumers hold AMQP does not tell.
// A queue has no offsets: Committed is -1, and End is the lag.
func (c *Consumer[T]) Lag(ctx context.Context) ([]consumer.Position, error) {
	c.mu.Lock()
	running := c.running
	c.mu.Unlock()
	if !running {
		return nil, errNotRunning
	}
	var lag int64
	err := c.publisher.ask(ctx, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(c.opts.Queue, true, false, false, false, nil)
		lag = int64(q.Messages)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("messages of queue %s: %w", c.opts.Queue, err)
	}
	if s := c.shown(); s != nil {
		lag += s.unacknowledged()
	}
	return []consumer.Position{{Partition: consumer.Partition{Topic: c.opts.Queue}, Committed: -1, End: lag, Lag: lag}}, nil
}
