package outbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
)

// rabbitLink is one connection with a channel in confirm mode. It is never
// repaired: what is on its way when it ends is published again on the next.
type rabbitLink struct {
	conn    *amqp.Connection
	channel *amqp.Channel

	mu      sync.Mutex
	waiting map[uint64]*unconfirmed // by delivery tag
	over    bool
}

// unconfirmed is a message on its way.
type unconfirmed struct {
	row  Row
	at   time.Time
	done func(error)
}

// notices is how many of the broker's notices may wait to be read.
const notices = 1024

func dialRabbit(ctx context.Context, o RabbitOptions, url string) (*rabbitLink, error) {
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("oncemore outbox")
	conn, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat: o.Heartbeat, Properties: properties, TLSClientConfig: o.TLS.Clone(),
		Dial: func(network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{Timeout: rabbitDial}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return c, c.SetDeadline(time.Now().Add(rabbitDial)) // the client lifts it when it is signed in
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	l := &rabbitLink{conn: conn, waiting: map[uint64]*unconfirmed{}}
	if l.channel, err = conn.Channel(); err == nil {
		err = l.channel.Confirm(false)
	}
	if err != nil {
		l.hangUp()
		return nil, fmt.Errorf("open a channel for publishing: %w", err)
	}
	go l.read(o.ConfirmTimeout, l.channel.NotifyReturn(make(chan amqp.Return, notices)),
		l.channel.NotifyPublish(make(chan amqp.Confirmation, notices)), l.channel.NotifyClose(make(chan *amqp.Error, 1)))
	return l, nil
}

// publish sends one message; one caller at a time. After an error done is not called.
func (l *rabbitLink) publish(ctx context.Context, row Row, message amqp.Publishing, done func(error)) error {
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return amqp.ErrClosed
	}
	tag := l.channel.GetNextPublishSeqNo()
	l.waiting[tag] = &unconfirmed{row: row, at: time.Now(), done: done} // first: the confirmation may be faster than we
	l.mu.Unlock()
	err := l.channel.PublishWithContext(ctx, row.Exchange, row.Target, true, false, message)
	if err != nil && l.take(tag) != nil {
		l.hangUp()
		return err
	}
	return nil
}

func (l *rabbitLink) take(tag uint64) *unconfirmed {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.waiting[tag]
	delete(l.waiting, tag)
	return u
}

var (
	errUnroutable = errors.New("RabbitMQ found no queue for it")
	errNacked     = errors.New("RabbitMQ refused it: the queue is full, or cannot be written to now")
	errSilent     = errors.New("no confirmation in time")
)

// read takes what the broker says until the channel ends. A return comes before
// its confirmation.
func (l *rabbitLink) read(patience time.Duration, returns <-chan amqp.Return, confirms <-chan amqp.Confirmation, closed <-chan *amqp.Error) {
	returned := map[string]bool{}
	beat := time.NewTicker(min(patience/4, time.Second))
	defer beat.Stop()
	for {
		select {
		case r, open := <-returns:
			noteReturn(returned, r, open)
			if !open {
				returns = nil
			}
		case c, open := <-confirms:
			if !open {
				confirms = nil
				continue
			}
			for len(returns) > 0 {
				r, open := <-returns
				noteReturn(returned, r, open)
			}
			l.confirm(c, returned)
		case <-beat.C:
			if l.oldest(patience) {
				l.hangUp()
			}
		case err := <-closed:
			l.end(err)
			return
		}
	}
}

func noteReturn(returned map[string]bool, r amqp.Return, open bool) {
	if id, ok := r.Headers[HeaderRow].(string); ok && open {
		returned[id] = true
	}
}

func (l *rabbitLink) confirm(c amqp.Confirmation, returned map[string]bool) {
	u := l.take(c.DeliveryTag)
	if u == nil {
		return
	}
	id := strconv.FormatInt(u.row.ID, 10)
	switch {
	case returned[id]:
		delete(returned, id)
		u.done(errUnroutable)
	case !c.Ack:
		u.done(errNacked)
	default:
		u.done(nil)
	}
}

// oldest reports whether a message waits longer than patience.
func (l *rabbitLink) oldest(patience time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.waiting {
		if time.Since(u.at) > patience {
			return true
		}
	}
	return false
}

// end gives back what was on its way. The broker closes a channel for one message
// that it does not take; the others are not to blame.
func (l *rabbitLink) end(cause *amqp.Error) {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting, l.over = map[uint64]*unconfirmed{}, true
	l.mu.Unlock()
	for _, u := range waiting {
		switch {
		case toBlame(cause, u.row):
			u.done(fmt.Errorf("RabbitMQ refused it: %w", cause))
		case cause == nil:
			u.done(consumer.Unavailable(errSilent))
		default:
			u.done(consumer.Unavailable(cause))
		}
	}
	l.hangUp()
}

// toBlame reports whether the channel was closed for this row: its exchange is
// not there or must not be written to, or it is too large.
func toBlame(cause *amqp.Error, row Row) bool {
	if cause == nil {
		return false
	}
	switch cause.Code {
	case amqp.NotFound, amqp.AccessRefused:
		return strings.Contains(cause.Reason, "exchange '"+row.Exchange+"'")
	case amqp.PreconditionFailed:
		return strings.Contains(cause.Reason, fmt.Sprintf("message size %d ", len(row.Value)))
	}
	return false
}

func (l *rabbitLink) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over || l.channel.IsClosed()
}

// hangUp says goodbye, within bounds.
func (l *rabbitLink) hangUp() {
	go func() { _ = l.conn.CloseDeadline(time.Now().Add(rabbitBye)) }() // gone already, or gone now
}
