package outbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
)

// HeaderRow is the row's id in a message to RabbitMQ, by which a returned one is
// known. It stays the same when a row is published again.
const HeaderRow = "oncemore-outbox"

// RabbitOptions is what a publisher needs of RabbitMQ.
type RabbitOptions struct {
	URLs []string    // nodes of one cluster, tried in turn: amqp://user:password@host:port/vhost, or amqps
	TLS  *tls.Config // for amqps; nil: the system's roots
	// ConfirmTimeout is when a message that was not confirmed is tried anew, on a
	// new connection; 0 is 30 s.
	ConfirmTimeout time.Duration
	Heartbeat      time.Duration // 0 is 10 s
}

// Rabbit publishes to exchanges: persistent, mandatory, each message confirmed.
// A message that no queue takes is refused.
type Rabbit struct {
	opts RabbitOptions

	mu     sync.Mutex
	link   *rabbitLink // nil: not connected
	closed bool
	failed error // of the last attempt to connect
	retry  time.Time
}

const (
	rabbitDial  = 10 * time.Second
	rabbitPause = time.Second // between attempts to connect
	rabbitBye   = 2 * time.Second
	// rabbitHeaders is what we allow for properties: they have to fit one frame.
	rabbitHeaders = 100_000
)

// NewRabbit makes a publisher. It connects when it is first used.
func NewRabbit(o RabbitOptions) (*Rabbit, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("outbox: a URL of RabbitMQ is required")
	}
	for i, u := range o.URLs {
		if _, err := amqp.ParseURI(u); err != nil {
			return nil, fmt.Errorf("outbox: URL %d is not of the form amqp://user:password@host:port/vhost", i+1) // err may quote the password
		}
	}
	if o.ConfirmTimeout == 0 {
		o.ConfirmTimeout = 30 * time.Second
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 10 * time.Second
	}
	return &Rabbit{opts: o}, nil
}

// Publish implements Publisher.
func (r *Rabbit) Publish(ctx context.Context, row Row, done func(error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	message, err := publishingOf(row)
	if err != nil {
		go done(err)
		return
	}
	link, err := r.connect(ctx)
	if err == nil {
		err = link.publish(ctx, row, message, done)
	}
	if err != nil {
		go done(consumer.Unavailable(fmt.Errorf("publish to RabbitMQ: %w", err)))
	}
}

func publishingOf(row Row) (amqp.Publishing, error) {
	p := amqp.Publishing{
		Headers:   amqp.Table{HeaderEventID: row.EventID, HeaderRow: strconv.FormatInt(row.ID, 10)},
		MessageId: row.EventID, DeliveryMode: amqp.Persistent, Timestamp: row.CreatedAt, Body: row.Value,
	}
	size := 0
	for _, h := range row.Headers {
		size += len(h.Name) + len(h.Value)
		p.Headers[h.Name] = headerValue(h.Value)
		if strings.EqualFold(h.Name, "content-type") && len(h.Value) <= maxName {
			p.ContentType = string(h.Value)
		}
	}
	if size > rabbitHeaders {
		return p, fmt.Errorf("its headers have %d bytes, more than the %d that one frame takes", size, rabbitHeaders)
	}
	return p, nil
}

// headerValue is text, as most clients read it; null stays null.
func headerValue(v []byte) any {
	if v == nil {
		return nil
	}
	return string(v)
}

// connect returns the link, made anew where it is gone. The lock is held.
func (r *Rabbit) connect(ctx context.Context) (*rabbitLink, error) {
	switch {
	case r.closed:
		return nil, amqp.ErrClosed
	case r.link != nil && !r.link.ended():
		return r.link, nil
	case time.Now().Before(r.retry):
		return nil, r.failed
	}
	r.link, r.failed = nil, nil
	for _, u := range r.opts.URLs {
		link, err := dialRabbit(ctx, r.opts, u)
		if err == nil {
			r.link = link
			return link, nil
		}
		r.failed = errors.Join(r.failed, err)
	}
	r.retry = time.Now().Add(rabbitPause)
	return nil, r.failed
}

// Close hangs up. Messages on their way fail as unavailable.
func (r *Rabbit) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.link != nil {
		r.link.hangUp()
	}
}
