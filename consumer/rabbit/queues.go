package rabbit

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// prepare looks after the queues at start: makes what is missing, if it may, and
// warns of what is not as it should be. It fails when the broker cannot be asked.
func (c *Consumer[T]) prepare(ctx context.Context) error {
	if there, err := c.exists(ctx, c.opts.Queue); err != nil {
		return err
	} else if !there {
		c.log.Warn("queue does not exist, it is consumed once it does")
	}
	if err := c.prepareDeadLetters(ctx); err != nil {
		return err
	}
	if err := c.prepareRetries(ctx); err != nil {
		return err
	}
	c.warnOfDrops(ctx)
	return nil
}

func (c *Consumer[T]) prepareDeadLetters(ctx context.Context) error {
	name := c.opts.DeadLetterQueue
	there, err := c.exists(ctx, name)
	switch {
	case err != nil || there:
		return err
	case c.opts.DeclareQueues:
		return c.declare(ctx, name, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	}
	c.log.Warn("dead-letter queue does not exist: declare it, or let the consumer do so by DeclareQueues", "dead_letter_queue", name)
	return nil
}

// prepareRetries declares the queues of the policy's pauses; longer ones follow
// when they are needed.
func (c *Consumer[T]) prepareRetries(ctx context.Context) error {
	if !c.opts.RetryQueues {
		return nil
	}
	for _, pause := range c.cfg.Retry.Pauses() {
		if err := c.declare(ctx, RetryQueue(c.opts.Queue, pause), retryArgs(c.opts.Queue, pause)); err != nil {
			return err
		}
	}
	return nil
}

func (c *Consumer[T]) declare(ctx context.Context, name string, args amqp.Table) error {
	err := c.publisher.ask(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	})
	if err != nil {
		return fmt.Errorf("declare queue %s: %w", name, err)
	}
	return nil
}

// exists asks without creating.
func (c *Consumer[T]) exists(ctx context.Context, name string) (bool, error) {
	err := c.publisher.ask(ctx, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.NotFound {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up queue %s: %w", name, err)
	}
	return true, nil
}

// warnOfDrops says which queues may lose messages by themselves. It is advice: a
// management API that does not answer holds nothing up.
func (c *Consumer[T]) warnOfDrops(ctx context.Context) {
	if c.opts.ManagementURL == "" {
		c.log.Info("whether the queues drop messages is not known: AMQP does not tell, give the management URL")
		return
	}
	api, err := newManagement(c.opts)
	if err != nil {
		c.log.Warn("cannot ask the management API", "error", err)
		return
	}
	defer api.close()
	major, err := api.major(ctx)
	if err != nil {
		c.log.Warn("cannot ask the management API", "error", err)
		return
	}
	for _, name := range []string{c.opts.Queue, c.opts.DeadLetterQueue} {
		q, err := api.queue(ctx, name)
		switch {
		case errors.Is(err, errNoQueue): // warned of already
		case err != nil:
			c.log.Warn("cannot look up queue", "name", name, "error", err)
		default:
			for _, why := range q.drops(major) {
				c.log.Warn("queue may drop messages", "name", name, "because", why)
			}
			c.warnOfTimeout(q)
		}
	}
}

func (c *Consumer[T]) warnOfTimeout(q queueInfo) {
	if t, ok := q.consumerTimeout(); ok && q.Name == c.opts.Queue && t < c.opts.ConsumerTimeout {
		c.log.Warn("queue has a shorter consumer time-out than this consumer reckons with: set ConsumerTimeout", "queue_has", t, "consumer_has", c.opts.ConsumerTimeout)
	}
}
