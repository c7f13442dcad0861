package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/rabbit"
)

const (
	queueBatch    = 1000 // deliveries of one transaction
	firstPrefetch = 50   // before it is known how large messages are
	mostPrefetch  = 2 * queueBatch
	leastPrefetch = 20
	queueBytes    = 32 << 20 // of deliveries that are handed out ahead, about
	gatherFor     = 20 * time.Millisecond
	idleAfter     = 500 * time.Millisecond // without a delivery; then what is settled is forgotten
)

// queueDrain drains one queue.
type queueDrain struct {
	d      *RabbitDrainer
	name   string
	source DrainSource
	typed  bool // the management API says that it is no stream
	log    *slog.Logger
}

// run drains until ctx ends or the queue is gone. A queue that is gone is found
// again when it is made again.
func (q *queueDrain) run(ctx context.Context) {
	work := q.drain
	if q.source.Copy {
		work = q.copyAgain
	}
	for wait := retryMin; ctx.Err() == nil; wait = min(2*wait, retryMax) {
		began := time.Now()
		err := work(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		q.d.failed(q.name, err)
		if isGone(err) || errors.Is(err, errStream) {
			q.log.InfoContext(ctx, "queue is not drained", "error", err)
			return
		}
		q.log.WarnContext(ctx, "drain interrupted, going on soon", "error", err)
		if time.Since(began) > retryMax {
			wait = retryMin
		}
		pause(ctx, wait)
	}
}

var errCancelled = errors.New("the broker cancelled the consumer: the queue was deleted, or moved")

func isGone(err error) bool {
	var refused *amqp.Error
	return errors.As(err, &refused) && refused.Code == amqp.NotFound
}

// queueSession is one channel's life. It is never mended: a delivery is
// acknowledged on the channel that it came by, or not at all.
type queueSession struct {
	*queueDrain
	queueHold
	channel    *amqp.Channel
	deliveries <-chan amqp.Delivery
	closed     chan *amqp.Error
	cancelled  chan string
	tag        string
	prefetch   int
}

// drain consumes on one channel. It returns nil when ctx has ended and what was in
// hand is done.
func (q *queueDrain) drain(ctx context.Context) error {
	s, err := q.open(ctx)
	if err != nil {
		return err
	}
	defer s.channel.Close()
	if err := s.consume(firstPrefetch); err != nil {
		return err
	}
	for {
		batch, err := s.gather(ctx)
		if len(batch) > 0 {
			if err := s.handle(ctx, batch); err != nil {
				return err
			}
		}
		if err != nil || ctx.Err() != nil {
			s.forget(context.WithoutCancel(ctx))
			return err
		}
		if err := s.tune(batch); err != nil {
			return err
		}
	}
}

func (q *queueDrain) open(ctx context.Context) (*queueSession, error) {
	if !q.typed {
		if err := q.probe(ctx); err != nil {
			return nil, err
		}
		q.typed = true
	}
	conn, err := q.d.connection(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel for queue %s: %w", q.name, err)
	}
	s := &queueSession{queueDrain: q, channel: ch, closed: ch.NotifyClose(make(chan *amqp.Error, 1)), cancelled: ch.NotifyCancel(make(chan string, 1)),
		queueHold: queueHold{cluster: q.d.broker.name, queue: q.name, session: uuid.New(), copies: q.source.Copy}}
	if _, err := q.d.conf.Pool.Exec(ctx, sqlOldUnacked, s.args()); err != nil {
		_ = ch.Close()
		return nil, fmt.Errorf("forget old deliveries of %s: %w", q.name, err)
	}
	return s, nil
}

// probe refuses a stream, which AMQP does not tell apart: it is the one kind that
// does not know basic.get. That ends the connection, so it has one of its own; a
// message that it takes goes back with it.
func (q *queueDrain) probe(ctx context.Context) error {
	conn, err := q.d.broker.dial(ctx, "probe")
	if err != nil {
		return err
	}
	defer rabbit.HangUp(conn)
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel for queue %s: %w", q.name, err)
	}
	_, _, err = ch.Get(q.name, false)
	var refused *amqp.Error
	if errors.As(err, &refused) && refused.Code == amqp.NotImplemented {
		return errStream
	}
	return err
}

// drainTag begins the tags of our own consumers.
const drainTag = "oncemore-"

func (s *queueSession) consume(prefetch int) error {
	if err := s.channel.Qos(prefetch, 0, false); err != nil {
		return fmt.Errorf("set prefetch of queue %s: %w", s.name, err)
	}
	s.tag, s.prefetch = drainTag+uuid.NewString(), prefetch
	var err error
	if s.deliveries, err = s.channel.Consume(s.name, s.tag, false, false, false, false, nil); err != nil {
		return fmt.Errorf("consume queue %s: %w", s.name, err)
	}
	return nil
}

// tune lets the broker hand out as much ahead as fits into memory: prefetch counts
// messages, whatever their size.
func (s *queueSession) tune(batch []amqp.Delivery) error {
	if len(batch) == 0 {
		return nil
	}
	size := 0
	for _, d := range batch {
		size += len(d.Body) + 1024
	}
	want := min(max(queueBytes/(size/len(batch)), leastPrefetch), mostPrefetch)
	if want < 2*s.prefetch && want > s.prefetch/2 {
		return nil
	}
	if err := s.channel.Cancel(s.tag, false); err != nil {
		return fmt.Errorf("change prefetch of queue %s: %w", s.name, err)
	}
	var rest []amqp.Delivery
	for d := range s.deliveries { // until the cancellation is there
		rest = append(rest, d)
	}
	if len(rest) > 0 {
		if err := s.handle(context.Background(), rest); err != nil {
			return err
		}
	}
	return s.consume(want)
}

// gather waits for deliveries and takes what has come within a moment. Its error
// says why no more will come.
func (s *queueSession) gather(ctx context.Context) (batch []amqp.Delivery, err error) {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	wait := idle.C
	var over <-chan time.Time
	size := 0
	for len(batch) < queueBatch && size < queueBytes {
		select {
		case d, open := <-s.deliveries:
			if !open {
				return batch, s.reason()
			}
			batch, size = append(batch, d), size+len(d.Body)
			if over == nil {
				over, wait = time.After(gatherFor), nil
			}
		case <-over:
			return batch, nil
		case <-wait:
			s.forget(ctx)
			if err := s.look(); err != nil {
				return batch, err
			}
			idle.Reset(2 * time.Second)
		case <-ctx.Done():
			return batch, nil
		}
	}
	return batch, nil
}

// reason says why the broker delivers no more.
func (s *queueSession) reason() error {
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

// handle stores deliveries and acknowledges them.
func (s *queueSession) handle(ctx context.Context, batch []amqp.Delivery) error {
	ctx, cancel := finishing(ctx)
	defer cancel()
	stored, err := s.store(ctx, batch)
	if err != nil {
		return err
	}
	s.d.reached(momentStored)
	if err := s.channel.Ack(batch[len(batch)-1].DeliveryTag, true); err != nil {
		return fmt.Errorf("acknowledge deliveries of %s: %w", s.name, err)
	}
	ready, err := s.confirmAcks()
	if err != nil {
		return err
	}
	s.settled = append(s.settled, stored.rows...)
	s.d.drained(s.name, stored.letters, ready)
	return nil
}

// confirmAcks asks the queue something on the same channel: the answer comes after
// the acknowledgements, and says how much is ready.
func (s *queueSession) confirmAcks() (ready int64, err error) {
	q, err := s.channel.QueueDeclarePassive(s.name, true, false, false, false, nil)
	if err != nil {
		return -1, fmt.Errorf("look at queue %s: %w", s.name, err)
	}
	return int64(q.Messages), nil
}

// look shows how much is ready while nothing comes.
func (s *queueSession) look() error {
	ready, err := s.confirmAcks()
	if err != nil {
		return err
	}
	s.d.drained(s.name, 0, ready)
	return nil
}

// storedBatch is what came of a batch: the rows that stand for it until it is known
// to be acknowledged, and how many letters or occurrences it brought.
type storedBatch struct {
	rows    []int64
	letters int
}

// store commits the batch's letters. It tries until that is done or the time to
// finish is over. One that the database refuses is stored by itself.
func (s *queueSession) store(ctx context.Context, batch []amqp.Delivery) (storedBatch, error) {
	arrivals := s.read(ctx, batch)
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		out, err := s.storeOnce(ctx, arrivals)
		if dataFault(err) {
			s.log.WarnContext(ctx, "batch of dead letters refused, storing one by one", "deliveries", len(arrivals), "error", err)
			out, err = s.storeSingly(ctx, arrivals)
		}
		if err == nil || ctx.Err() != nil {
			return out, err
		}
		s.log.ErrorContext(ctx, "dead letters not stored, trying again", "error", err)
		s.d.failed(s.name, err)
		pause(ctx, wait)
	}
}

// read understands the deliveries. One whose headers the codec does not know, which
// the client would not have delivered, is kept without them.
func (s *queueSession) read(ctx context.Context, batch []amqp.Delivery) []*queueArrival {
	arrivals := make([]*queueArrival, len(batch))
	for i, d := range batch {
		a, err := arriveFromQueue(s.d.conf.Dialects, s.cluster, s.name, s.source, s.d.conf.Groups, d, s.log)
		if err != nil {
			s.log.ErrorContext(ctx, "headers of a dead letter cannot be stored and are left out", "error", err)
			d.Headers = nil
			a, _ = arriveFromQueue(s.d.conf.Dialects, s.cluster, s.name, s.source, s.d.conf.Groups, d, s.log) // has no headers to fail by
		}
		arrivals[i] = a
	}
	return arrivals
}

func (s *queueSession) storeOnce(ctx context.Context, batch []*queueArrival) (storedBatch, error) {
	var row int64
	kept := 0
	take := s.take(batch, &row)
	err := s.d.intake.commit(ctx, arrivalsOf(batch), func(ctx context.Context, tx pgx.Tx, all []*arrival) (time.Time, []*arrival, error) {
		now, keep, err := take(ctx, tx, all)
		kept = len(keep)
		return now, keep, err
	})
	if err != nil {
		return storedBatch{}, err
	}
	s.settled = nil // its rows went with the commit
	return storedBatch{rows: []int64{row}, letters: kept}, nil
}

func arrivalsOf(batch []*queueArrival) []*arrival {
	arrivals := make([]*arrival, len(batch))
	for i, a := range batch {
		arrivals[i] = a.arrival
	}
	return arrivals
}

// storeSingly stores one by one. What is refused even so is stored as unknown,
// with nothing but its bytes.
func (s *queueSession) storeSingly(ctx context.Context, batch []*queueArrival) (out storedBatch, err error) {
	for _, a := range batch {
		one, err := s.storeOnce(ctx, []*queueArrival{a})
		if dataFault(err) {
			s.log.ErrorContext(ctx, "dead letter refused, stored as unknown", "error", err)
			a.forget()
			one, err = s.storeOnce(ctx, []*queueArrival{a})
		}
		if err != nil {
			return out, err
		}
		out.rows, out.letters = append(out.rows, one.rows...), out.letters+one.letters
	}
	return out, nil
}

// forget drops the rows of what is known to be acknowledged, when no commit is to
// come that would do it.
func (s *queueSession) forget(ctx context.Context) {
	if len(s.settled) == 0 {
		return
	}
	if _, err := s.d.conf.Pool.Exec(ctx, sqlDropUnacked, pgx.NamedArgs{"ids": s.settled}); err != nil {
		if ctx.Err() == nil {
			s.log.WarnContext(ctx, "acknowledged deliveries not forgotten, trying later", "error", err)
		}
		return
	}
	s.settled = nil
}

// momentStored is between the commit of letters and their acknowledgement.
const momentStored moment = "stored"
