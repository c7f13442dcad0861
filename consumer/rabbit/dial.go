package rabbit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	dialTimeout  = 10 * time.Second // for connecting and for signing in, each
	writeTimeout = 30 * time.Second // a broker that takes nothing for so long is gone
	closeTimeout = 2 * time.Second  // for the farewell
)

// dial connects to the first node that answers. The client's own recovery stays
// off: it reuses delivery tags of a lost channel, and was seen to acknowledge
// messages that nobody had handled.
func (o Options) dial(ctx context.Context, name string) (*amqp.Connection, error) {
	var all []error
	for _, u := range o.URLs {
		conn, err := o.dialOne(ctx, u, name)
		if err == nil {
			return conn, nil
		}
		all = append(all, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("connect to RabbitMQ: %w", errors.Join(all...))
}

func (o Options) dialOne(ctx context.Context, url, name string) (*amqp.Connection, error) {
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(name)
	var raw net.Conn
	var unwatch func() bool
	conn, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat: o.Heartbeat, Properties: properties, TLSClientConfig: o.TLS.Clone(),
		Dial: func(network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			raw = &bounded{Conn: c}
			unwatch = context.AfterFunc(ctx, func() { c.Close() }) // cuts the sign-in off
			return raw, c.SetDeadline(time.Now().Add(dialTimeout)) // the client lifts it when it is signed in
		},
	})
	if unwatch != nil && !unwatch() && err == nil { // ended meanwhile
		_ = conn.CloseDeadline(time.Now())
		return nil, ctx.Err()
	}
	return conn, err
}

// bounded is a connection that ends: a write that a blocked broker does not take,
// and a farewell that it does not answer while its heartbeats go on. For each of
// those the client would push the deadline out.
type bounded struct {
	net.Conn

	mu   sync.Mutex
	last time.Time // deadline of the farewell; zero before
}

func (c *bounded) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = t
	return c.Conn.SetDeadline(t)
}

func (c *bounded) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetReadDeadline(c.atMost(t))
}

func (c *bounded) Write(b []byte) (int, error) {
	if err := c.limitWrite(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *bounded) limitWrite(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.SetWriteDeadline(c.atMost(t))
}

func (c *bounded) atMost(t time.Time) time.Time {
	if !c.last.IsZero() && (t.IsZero() || t.After(c.last)) {
		return c.last
	}
	return t
}

// hangUp says goodbye, within bounds.
func hangUp(conn *amqp.Connection) {
	_ = conn.CloseDeadline(time.Now().Add(closeTimeout)) // gone already, or gone now
}
