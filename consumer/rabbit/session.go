package rabbit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer"
)

// session is one generation of consuming: a connection, a channel, what the
// broker has delivered on it, and the worker's goroutine. A lost one is never
// mended, the next is made anew.
type session[T any] struct {
	c          *Consumer[T]
	conn       *amqp.Connection
	channel    *amqp.Channel
	generation uint64

	closed    chan *amqp.Error // the channel's end, with the broker's reason
	cancelled chan string      // the broker has cancelled us: the queue is gone

	ctx    context.Context // cuts off the transaction under way
	cancel context.CancelFunc
	stop   chan struct{} // closed: start no more transactions
	gone   chan struct{} // closed when the broker delivers no more
	ended  chan struct{} // closed when the worker has returned

	more  chan struct{} // a token when deliveries have come
	batch []held        // under way, of the worker's goroutine alone

	mu      sync.Mutex
	backlog []held
	oldest  time.Time // arrival of the first that is not finished, with waiting
	waiting bool
	done    int64
}

// held is a delivery that is not acknowledged.
type held struct {
	amqp.Delivery
	token   token
	attempt int
	arrived time.Time
}

// open connects and begins to consume.
func (c *Consumer[T]) open(ctx context.Context) (*session[T], error) {
	conn, err := c.opts.dial(ctx, "oncemore "+c.cfg.Group+" consume")
	if err != nil {
		return nil, err
	}
	s := &session[T]{c: c, conn: conn, stop: make(chan struct{}), gone: make(chan struct{}), ended: make(chan struct{}), more: make(chan struct{}, 1)}
	deliveries, err := s.subscribe()
	if err != nil {
		hangUp(conn)
		return nil, fmt.Errorf("consume queue %s: %w", c.opts.Queue, err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.generation = c.acks.open(s.channel)
	go s.read(deliveries)
	go s.work()
	return s, nil
}

func (s *session[T]) subscribe() (<-chan amqp.Delivery, error) {
	var err error
	if s.channel, err = s.conn.Channel(); err != nil {
		return nil, err
	}
	s.closed = s.channel.NotifyClose(make(chan *amqp.Error, 1))
	s.cancelled = s.channel.NotifyCancel(make(chan string, 1))
	if err := s.channel.Qos(s.c.prefetch(), 0, false); err != nil {
		return nil, err
	}
	return s.channel.Consume(s.c.opts.Queue, "", false, false, false, false, nil)
}

// read takes in what the broker delivers, with the time of arrival; the prefetch
// bounds it.
func (s *session[T]) read(deliveries <-chan amqp.Delivery) {
	defer close(s.gone)
	for d := range deliveries {
		h := held{token: token{s.generation, d.DeliveryTag}, arrived: time.Now()}
		h.Delivery, h.attempt = unwrapped(d)
		s.mu.Lock()
		s.backlog = append(s.backlog, h)
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// work handles the backlog batch by batch until the session is stopped.
func (s *session[T]) work() {
	defer close(s.ended)
	worker := consumer.NewWorker(s.c.cfg, s, &s.c.meter, &s.c.gate)
	for {
		s.batch = s.take()
		if s.batch == nil {
			return
		}
		if err := worker.Process(s.ctx, s.stop, s.deliveries()); err != nil {
			return // stopped, or cut off: what is not done will be delivered again
		}
	}
}

func (s *session[T]) deliveries() []consumer.Delivery {
	all := make([]consumer.Delivery, len(s.batch))
	for i, h := range s.batch {
		all[i] = consumer.NewDelivery(eventOf(s.c.cfg.Group, s.c.opts.Queue, h.Delivery), s.c.cfg.EventID)
		all[i].Attempt = h.attempt
	}
	return all
}

// take waits for deliveries and returns up to a batch of them: at once if there
// is a whole one, else what has come within the batch's waiting time. Nil: stopped.
func (s *session[T]) take() []held {
	size := min(s.c.cfg.BatchSize, s.c.prefetch())
	if !s.await(1, nil) {
		return nil
	}
	if wait := s.c.cfg.BatchWait; wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		s.await(size, timer.C)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.backlog), size)
	batch := s.backlog[:n:n]
	s.backlog = s.backlog[n:]
	return batch
}

// await waits until the backlog has n deliveries. False: not by then, or stopped.
func (s *session[T]) await(n int, until <-chan time.Time) bool {
	for {
		select {
		case <-s.stop:
			return false
		default:
		}
		s.mu.Lock()
		have := len(s.backlog)
		s.mu.Unlock()
		if have >= n {
			return true
		}
		select {
		case <-s.more:
		case <-s.stop:
			return false
		case <-until:
			return false
		}
	}
}

// System names the broker in traces.
func (s *session[T]) System() string { return "rabbitmq" }

// Done acknowledges the next n deliveries of the batch.
func (s *session[T]) Done(n int) {
	tokens := make([]token, n)
	for i, h := range s.batch[:n] {
		tokens[i] = h.token
	}
	s.batch = s.batch[n:]
	s.c.acks.ack(tokens)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += int64(n)
}

// DeadLetter publishes the letter of the first delivery that is not done.
func (s *session[T]) DeadLetter(ctx context.Context, l consumer.Letter) error {
	return s.c.deadLetter(ctx, s.batch[0].Delivery, l)
}

// Defer puts the first delivery that is not done into a retry queue.
func (s *session[T]) Defer(ctx context.Context, l consumer.Letter, pause time.Duration) (bool, error) {
	if !s.c.opts.RetryQueues {
		return false, nil
	}
	return s.c.postpone(ctx, s.batch[0].Delivery, l, pause)
}

// LongestPause is what is left of the time that a delivery may be held.
func (s *session[T]) LongestPause() time.Duration {
	return max(s.c.opts.holdLimit()-time.Since(s.batch[0].arrived), 0)
}

// Waiting notes that the worker waits, and since when what it waits with is here.
func (s *session[T]) Waiting(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = on
	if on {
		s.oldest = s.batch[0].arrived
	}
}

func (s *session[T]) isWaiting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

func (s *session[T]) finished() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// overdue reports whether the worker waits with a delivery that has been held too long.
func (s *session[T]) overdue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting && time.Since(s.oldest) >= s.c.opts.holdLimit()
}

// unacknowledged is how many deliveries are held, those under way left out.
func (s *session[T]) unacknowledged() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.backlog))
}

var errCancelled = errors.New("the broker cancelled the consumer: the queue was deleted, or moved")

// reason says why the broker delivers no more. It is asked once, after gone.
func (s *session[T]) reason() error {
	select {
	case err := <-s.closed:
		if err != nil {
			return err
		}
	default:
	}
	select {
	case <-s.cancelled:
		return errCancelled
	default:
		return amqp.ErrClosed
	}
}

// timedOut reports whether the broker has closed the channel because a delivery
// was not acknowledged in time.
func timedOut(err error) bool {
	var closed *amqp.Error
	return errors.As(err, &closed) && closed.Code == amqp.PreconditionFailed && strings.Contains(closed.Reason, "timed out")
}

// finish ends the session: the transaction under way goes on until it has ended,
// but no longer than the finish time-out once ctx has ended.
func (s *session[T]) finish(ctx context.Context) {
	close(s.stop)
	select {
	case <-s.ended:
	case <-ctx.Done():
		s.cutOff()
	}
	s.cancel()
	s.c.acks.close(s.generation)
	hangUp(s.conn) // after the last acknowledgement, which is sent before the farewell
	<-s.gone
}

// cutGrace is what a cut-off transaction gets for its rollback.
const cutGrace = 2 * time.Second

func (s *session[T]) cutOff() {
	select {
	case <-s.ended:
		return
	case <-time.After(s.c.opts.FinishTimeout):
	}
	s.cancel()
	select {
	case <-s.ended:
	case <-time.After(cutGrace):
		s.c.log.Error("handler ignores the end of its context, its delivery is given back without it", "queue", s.c.opts.Queue)
	}
}
