package dlq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/rabbit"
)

// RabbitOptions is how a cluster of RabbitMQ is reached.
type RabbitOptions struct {
	URLs []string    // its nodes, tried in turn: amqp://user:password@host:port/vhost
	TLS  *tls.Config // for amqps and https; nil: the system's roots

	// ManagementURL is the management API, http://user:password@host:port. Without
	// it queues are drained by their full names only, and what a replay to an
	// exchange reaches is not known.
	ManagementURL string

	// KeepExpiration sends a message's own time to live again with a replay, which
	// may let it expire before a consumer sees it.
	KeepExpiration bool
	// Expirations say otherwise for letters of single sources; the first that
	// matches counts.
	Expirations []Expiration
}

// Expiration is whether letters of a source keep their time to live.
type Expiration struct {
	Source string // queue, or a pattern
	Keep   bool
}

// keepsExpiration reports whether a letter of the queue is sent with its own time
// to live.
func (b *rabbitBroker) keepsExpiration(queue string) bool {
	for i, source := range b.expirations {
		if source.re.MatchString(queue) {
			return b.opts.Expirations[i].Keep
		}
	}
	return b.opts.KeepExpiration
}

// rabbitBroker is a cluster of RabbitMQ.
type rabbitBroker struct {
	name string
	opts RabbitOptions
	api  *rabbit.Management // nil: not configured

	expirations []sourcePattern // of opts.Expirations

	mu    sync.Mutex
	asked map[string]bool          // queues that are looked up one by one
	there map[sendTarget]time.Time // when targets were last seen, by exchange and key

	asking sync.Mutex // one question at a time
	conn   *amqp.Connection
}

var _ broker = (*rabbitBroker)(nil)

func newRabbitBroker(name string, opts RabbitOptions) (*rabbitBroker, error) {
	if len(opts.URLs) == 0 {
		return nil, errors.New("a URL is required")
	}
	for i, u := range opts.URLs {
		if _, err := amqp.ParseURI(u); err != nil {
			return nil, fmt.Errorf("URL %d is not of the form amqp://user:password@host:port/vhost", i+1) // err may quote the password
		}
	}
	b := &rabbitBroker{name: name, opts: opts, asked: map[string]bool{}, there: map[sendTarget]time.Time{}}
	var sources []DrainSource
	for _, e := range opts.Expirations {
		sources = append(sources, DrainSource{Pattern: e.Source})
	}
	var err error
	if b.expirations, err = compileSources(sources); err != nil {
		return nil, err
	}
	if b.api, err = rabbit.NewManagement(opts.ManagementURL, opts.TLS, opts.URLs...); err != nil && !errors.Is(err, rabbit.ErrNoManagement) {
		return nil, err
	}
	return b, nil
}

func (b *rabbitBroker) dial(ctx context.Context, what string) (*amqp.Connection, error) {
	conn, err := rabbit.Dial(ctx, b.opts.URLs, b.opts.TLS, "oncemore "+what)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", b.name, err)
	}
	return conn, nil
}

// ask puts a question on a channel of its own: a wrong one costs only that
// channel.
func (b *rabbitBroker) ask(ctx context.Context, question func(*amqp.Channel) error) error {
	b.asking.Lock()
	defer b.asking.Unlock()
	if b.conn == nil || b.conn.IsClosed() {
		conn, err := b.dial(ctx, "console")
		if err != nil {
			return err
		}
		b.conn = conn
	}
	ch, err := b.conn.Channel()
	if err != nil {
		return fmt.Errorf("cluster %s: %w", b.name, err)
	}
	defer ch.Close()
	return question(ch)
}

// readyCount is how many messages of a queue wait for a consumer; -1: not known.
func (b *rabbitBroker) readyCount(ctx context.Context, queue string) int64 {
	ctx, cancel := context.WithTimeout(ctx, brokerAnswers)
	defer cancel()
	n := int64(-1)
	err := b.ask(ctx, func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err == nil {
			n = int64(q.Messages)
		}
		return err
	})
	if err != nil {
		return -1
	}
	return n
}

func (b *rabbitBroker) close() {
	b.asking.Lock()
	defer b.asking.Unlock()
	if b.conn != nil {
		rabbit.HangUp(b.conn)
		b.conn = nil
	}
	if b.api != nil {
		b.api.Close()
	}
}
