package rabbit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// confirmTimeout is when an unconfirmed publish is reported and tried again.
const confirmTimeout = 30 * time.Second

var (
	errUnroutable = errors.New("the broker found no queue for it")
	errRefused    = errors.New("the broker refused it: the queue is full, or cannot be written to now")
)

// publisher publishes to queues through the default exchange, one message at a
// time, each mandatory and confirmed. It has a connection of its own: a broker
// that blocks publishers must still take acknowledgements.
type publisher struct {
	opts Options
	name string

	mu   sync.Mutex
	link *link // nil: not connected
}

// link is a connection with a channel in confirm mode.
type link struct {
	conn     *amqp.Connection
	channel  *amqp.Channel
	returns  chan amqp.Return
	blocked  chan amqp.Blocking
	declared map[string]bool // retry queues
}

// publish returns nil once the broker has confirmed the message in that queue.
// build makes it for the connection's largest frame. After an error the message
// may still arrive, so that a second copy is possible and a lost one is not.
func (p *publisher) publish(ctx context.Context, queue string, build func(frameMax int) amqp.Publishing) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.connect(ctx)
	if err != nil {
		return err
	}
	return p.send(ctx, l, queue, build(l.conn.Config.FrameSize))
}

func (p *publisher) send(ctx context.Context, l *link, queue string, m amqp.Publishing) error {
	confirm, err := l.channel.PublishWithDeferredConfirm("", queue, true, false, m)
	if err != nil {
		p.drop()
		return err
	}
	wait, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	confirmed, err := confirm.WaitContext(wait)
	if err != nil {
		reason := l.blockedBy()
		p.drop() // a late confirm must not meet the next message
		return fmt.Errorf("no confirmation%s: %w", reason, err)
	}
	select {
	case <-l.returns: // comes before the confirmation
		return errUnroutable
	default:
	}
	switch {
	case confirmed:
		return nil
	case l.channel.IsClosed():
		p.drop()
		return errors.New("the channel was closed before the confirmation")
	}
	return errRefused
}

// blockedBy says that the broker blocks publishers, if it does.
func (l *link) blockedBy() (text string) {
	for {
		select {
		case b := <-l.blocked:
			text = ""
			if b.Active {
				text = ", the broker blocks publishers: " + b.Reason
			}
		default:
			return text
		}
	}
}

// connect returns the link, made anew where it is gone. The lock is held.
func (p *publisher) connect(ctx context.Context) (*link, error) {
	if p.link != nil && !p.link.channel.IsClosed() {
		return p.link, nil
	}
	p.drop()
	conn, err := p.opts.dial(ctx, p.name)
	if err != nil {
		return nil, err
	}
	channel, err := confirming(conn)
	if err != nil {
		hangUp(conn)
		return nil, fmt.Errorf("open a channel for publishing: %w", err)
	}
	p.link = &link{conn: conn, channel: channel, declared: map[string]bool{},
		returns: channel.NotifyReturn(make(chan amqp.Return, 1)), blocked: conn.NotifyBlocked(make(chan amqp.Blocking, blockings))}
	return p.link, nil
}

// blockings is how often the broker may block and unblock us during the life of
// a connection before it has to wait for us to notice. We look when a
// confirmation is missing.
const blockings = 1024

func confirming(conn *amqp.Connection) (*amqp.Channel, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	return channel, channel.Confirm(false)
}

// drop ends the link. The lock is held.
func (p *publisher) drop() {
	if p.link != nil {
		hangUp(p.link.conn)
		p.link = nil
	}
}

func (p *publisher) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop()
}

// ask runs questions to the broker on a channel of their own: a wrong one costs
// only that channel.
func (p *publisher) ask(ctx context.Context, question func(*amqp.Channel) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, err := p.connect(ctx)
	if err != nil {
		return err
	}
	return l.ask(question)
}

func (l *link) ask(question func(*amqp.Channel) error) error {
	channel, err := l.conn.Channel()
	if err != nil {
		return err
	}
	defer channel.Close()
	return question(channel)
}
