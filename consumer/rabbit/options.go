// Package rabbit runs consumers on RabbitMQ, 3.10 or newer, by amqp091-go.
//
// A consumer reads one queue, classic or quorum. Where Kafka keeps order within a
// partition, a queue keeps it as far as one consumer alone reads it, fails
// nothing and loses no connection: competing consumers, redelivery after a lost
// connection and retry queues each change it.
package rabbit

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Options is what a consumer needs of RabbitMQ.
type Options struct {
	Queue string // what the group consumes; it is never created here

	// URLs are the nodes of one cluster, tried in turn: amqp://user:password@host:port/vhost,
	// or amqps. They share user, password and virtual host.
	URLs []string
	TLS  *tls.Config // for amqps and for an https ManagementURL; nil: the system's roots

	// ManagementURL is the management API, http://user:password@host:port; without
	// a user it is asked as the one of URLs. With it the consumer can warn at start
	// of queues that would drop messages; AMQP alone cannot tell.
	ManagementURL string

	// Prefetch is how many deliveries the broker hands out before the first is
	// acknowledged; 0 is twice the batch size.
	Prefetch int

	// DeadLetterQueue takes what the group gives up on; "" is <queue>.dlq. Letters
	// go there through the default exchange, persistent, mandatory and confirmed.
	DeadLetterQueue string

	// DeclareQueues makes a missing dead-letter queue at start, as a quorum queue.
	// Without it a missing one is an error that the consumer waits on.
	DeclareQueues bool

	// RetryQueues makes retries non-blocking. A failed delivery goes to the queue
	// <queue>.retry.<pause>, from where the broker brings it back when the pause is
	// over: those behind it do not wait, and ORDER IS GIVEN UP. These queues are
	// declared by the consumer: quorum, at-least-once dead-lettering, one for each
	// pause of the policy and, rounded up, for longer ones that RetryAfter asks for.
	//
	// Without RetryQueues a failed delivery is held until its next attempt and
	// those behind it wait; New then refuses a policy whose pauses together exceed
	// half of ConsumerTimeout, and RetryAfter waits no longer than that.
	RetryQueues bool

	// ConsumerTimeout is how long the broker leaves a delivery unacknowledged before
	// it closes the channel and delivers again (its consumer_timeout); 0 is 30 min,
	// the broker's default. A handler that takes longer is survived: its commit
	// holds, and what comes again is a duplicate. Deliveries that wait for an
	// outage are given back after half of it.
	ConsumerTimeout time.Duration

	Heartbeat time.Duration // 0 is 10 s
	// FinishTimeout bounds how long a transaction under way may go on after the
	// consumer was told to stop; 0 is 10 s. What is not finished is rolled back and
	// delivered again.
	FinishTimeout time.Duration
}

func (o Options) complete(batchSize int) (Options, error) {
	if o.Prefetch == 0 {
		o.Prefetch = min(2*batchSize, math.MaxUint16)
	}
	if o.DeadLetterQueue == "" {
		o.DeadLetterQueue = o.Queue + ".dlq"
	}
	if o.ConsumerTimeout == 0 {
		o.ConsumerTimeout = 30 * time.Minute
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 10 * time.Second
	}
	if o.FinishTimeout == 0 {
		o.FinishTimeout = 10 * time.Second
	}
	return o, o.validate()
}

// maxShort is the longest short string of AMQP in bytes: a queue's name, say.
const maxShort = 255

func (o Options) validate() error {
	switch {
	case o.Queue == "":
		return errors.New("a queue is required")
	case strings.HasPrefix(o.Queue, "amq."):
		return fmt.Errorf("queue %q: names that begin with amq. are the broker's", o.Queue)
	case len(o.Queue) > maxShort || len(o.DeadLetterQueue) > maxShort:
		return fmt.Errorf("queue names have at most %d bytes; the dead-letter queue is %q", maxShort, o.DeadLetterQueue)
	case o.DeadLetterQueue == o.Queue:
		return fmt.Errorf("queue %q cannot be its own dead-letter queue", o.Queue)
	case len(o.URLs) == 0:
		return errors.New("a URL is required")
	case o.Prefetch < 0 || o.Prefetch > math.MaxUint16:
		return fmt.Errorf("prefetch must be between 1 and %d", math.MaxUint16)
	case o.ConsumerTimeout < 0 || o.Heartbeat < 0 || o.FinishTimeout < 0:
		return errors.New("time-outs must not be negative")
	}
	for i, u := range o.URLs {
		if _, err := amqp.ParseURI(u); err != nil {
			return fmt.Errorf("URL %d is not of the form amqp://user:password@host:port/vhost", i+1) // err may quote the password
		}
	}
	if u, err := url.Parse(o.ManagementURL); o.ManagementURL != "" && (err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "http")) {
		return errors.New("management URL is not of the form http://host:port")
	}
	return nil
}

// holdLimit is how long a delivery may wait unacknowledged: long before the
// broker's time-out, since those behind it wait as long.
func (o Options) holdLimit() time.Duration { return o.ConsumerTimeout / 2 }

// checkHold refuses a blocking policy that would hold a delivery too long.
func (o Options) checkHold(pauses []time.Duration) error {
	if o.RetryQueues {
		return nil
	}
	total := time.Duration(0)
	for _, p := range pauses {
		if total += p; total > o.holdLimit() {
			return fmt.Errorf("retries would hold a delivery longer than half of the consumer time-out of %s: shorten them or set RetryQueues", o.ConsumerTimeout)
		}
	}
	return nil
}
