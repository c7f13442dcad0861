package dlq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/consumer/rabbit"
)

// places asks whether the target is there; a queue cannot be searched later.
func (b *rabbitBroker) places(ctx context.Context, target sendTarget) (map[int32]int64, bool, error) {
	if b.seenLately(target) {
		return map[int32]int64{}, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, brokerAnswers)
	defer cancel()
	ask := b.exchangeThere
	name := target.Exchange
	if name == "" {
		ask, name = b.queueThere, target.Topic
	}
	there, err := ask(ctx, name)
	if there && err == nil {
		b.mu.Lock()
		if len(b.there) > mostAsked {
			clear(b.there)
		}
		b.there[sendTarget{Exchange: target.Exchange, Topic: target.Topic}] = time.Now()
		b.mu.Unlock()
	}
	return map[int32]int64{}, there, err
}

// thereFor is how long a target that was there counts as there. Should it have gone
// meanwhile, what is sent comes back as unroutable.
const thereFor = 2 * time.Second

func (b *rabbitBroker) seenLately(target sendTarget) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.there[sendTarget{Exchange: target.Exchange, Topic: target.Topic}]) < thereFor
}

// rabbitSender publishes for one step, on a connection of its own, with publisher
// confirms and mandatory.
type rabbitSender struct {
	broker *rabbitBroker
	link   *rabbitLink     // nil: not connected
	proven map[string]bool // exchanges that have taken a message of this link
}

func (b *rabbitBroker) newSender(time.Duration) (sender, error) {
	return &rabbitSender{broker: b}, nil
}

// rabbitLink is a connection with a channel in confirm mode. It is never mended.
type rabbitLink struct {
	conn    *amqp.Connection
	channel *amqp.Channel
	returns chan amqp.Return
	closed  chan *amqp.Error
	blocked chan amqp.Blocking
}

const (
	inFlight  = 512     // messages that wait for their confirmation at once: a whole chunk
	largeBody = 1 << 20 // from here on a message goes alone: should the broker refuse it, it is the one that was meant
)

func (s *rabbitSender) connect(ctx context.Context) error {
	if s.link != nil && !s.link.channel.IsClosed() {
		return nil
	}
	s.close()
	conn, err := s.broker.dial(ctx, "replay")
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		rabbit.HangUp(conn)
		return fmt.Errorf("open a channel for publishing on cluster %s: %w", s.broker.name, err)
	}
	s.link = &rabbitLink{conn: conn, channel: ch, returns: ch.NotifyReturn(make(chan amqp.Return, 2*inFlight)),
		closed: ch.NotifyClose(make(chan *amqp.Error, 1)), blocked: conn.NotifyBlocked(make(chan amqp.Blocking, 1024))}
	s.proven = map[string]bool{}
	return nil
}

func (s *rabbitSender) close() {
	if s.link != nil {
		rabbit.HangUp(s.link.conn)
		s.link = nil
	}
}

// send publishes in order, a window at a time. The first message to an exchange,
// and each large one, goes alone: when the broker closes the channel over it, it
// is known which message was meant.
func (s *rabbitSender) send(ctx context.Context, items []*sendItem) (late bool) {
	for len(items) > 0 {
		if err := s.connect(ctx); err != nil {
			fail(items, err)
			return false // nothing has left
		}
		window := s.window(items)
		items = items[len(window):]
		if late = s.sendWindow(ctx, window) || late; late {
			fail(items, context.DeadlineExceeded)
			return true
		}
	}
	return false
}

func fail(items []*sendItem, err error) {
	for _, it := range items {
		it.result = &sendResult{err: err}
	}
}

// window is the messages that may be under way together.
func (s *rabbitSender) window(items []*sendItem) []*sendItem {
	n := 0
	for n < len(items) && n < inFlight {
		m := items[n].message.rabbit
		if alone := !s.proven[m.exchange] || len(m.publishing.Body) >= largeBody; alone {
			return items[:max(n, 1)]
		}
		n++
	}
	return items[:n]
}

// sendWindow publishes and waits for every confirmation.
func (s *rabbitSender) sendWindow(ctx context.Context, items []*sendItem) (late bool) {
	confirms := make([]*amqp.DeferredConfirmation, len(items))
	for i, it := range items {
		m := it.message.rabbit
		if limit := s.link.conn.Config.FrameSize; limit > 0 && m.frame > limit {
			it.result = &sendResult{err: &frameError{m.frame, limit}, surely: true}
			continue
		}
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			it.result = &sendResult{err: context.DeadlineExceeded}
			continue
		}
		confirm, err := s.link.channel.PublishWithDeferredConfirm(m.exchange, m.key, true, false, m.publishing)
		if err != nil {
			it.result = &sendResult{err: err}
			continue
		}
		confirms[i] = confirm
	}
	return s.await(ctx, items, confirms)
}

// await takes the broker's answers. What is open when the channel ends, or the
// time, has no answer, unless it was alone.
func (s *rabbitSender) await(ctx context.Context, items []*sendItem, confirms []*amqp.DeferredConfirmation) (late bool) {
	returned := map[string]*amqp.Return{}
	for i, it := range items {
		if confirms[i] == nil {
			continue
		}
		acked, err := confirms[i].WaitContext(ctx)
		s.link.takeReturns(returned)
		switch r := returned[strconv.Itoa(it.no)]; {
		case err != nil:
			it.result = &sendResult{err: fmt.Errorf("no confirmation%s: %w", s.link.blockedBy(), err)}
			late = true
		case r != nil:
			it.result = &sendResult{err: fmt.Errorf("%s (%d)", r.ReplyText, r.ReplyCode), surely: true}
			s.proven[it.message.rabbit.exchange] = true
		case acked:
			it.result = &sendResult{partition: -1, offset: -1}
			s.proven[it.message.rabbit.exchange] = true
		case s.link.channel.IsClosed():
			it.result = s.link.ended(len(items) == 1)
		default:
			it.result = nacked(it.message.rabbit.exchange)
			s.proven[it.message.rabbit.exchange] = true
		}
	}
	return late
}

// errNacked is what a broker means that refuses to confirm: it gives no reason.
var errNacked = errors.New("nacked by the broker: a queue is full or cannot be written to now")

// nacked is what a nack means. RabbitMQ confirms what every queue has taken that
// the message was routed to, and nacks what one of them refused: the others have
// it all the same. Through the default exchange there is only one.
func nacked(exchange string) *sendResult {
	return &sendResult{err: errNacked, surely: exchange == "", partly: exchange != ""}
}

// frameError is a message whose headers do not fit.
type frameError struct{ frame, limit int }

func (e *frameError) Error() string {
	return fmt.Sprintf("its headers take %d bytes, and the broker takes frames of %d (frame_max)", e.frame, e.limit)
}

// takeReturns notes what came back as unroutable, by item. A return comes before
// its confirmation.
func (l *rabbitLink) takeReturns(into map[string]*amqp.Return) {
	for {
		select {
		case r, open := <-l.returns:
			if !open {
				return
			}
			if item, ok := r.Headers[HeaderItem].(string); ok {
				into[item] = &r
			}
		default:
			return
		}
	}
}

// ended is the result of a message that was under way when the channel ended. One
// that was alone is what the broker complains about.
func (l *rabbitLink) ended(alone bool) *sendResult {
	var err error = amqp.ErrClosed
	select {
	case reason, open := <-l.closed:
		if open && reason != nil {
			err = reason
			l.closed = remembered(reason) // for those after it
		}
	default:
	}
	var refused *amqp.Error
	definite := errors.As(err, &refused) && refused.Server && (refused.Code == amqp.AccessRefused || refused.Code == amqp.NotFound ||
		refused.Code == amqp.PreconditionFailed || refused.Code == amqp.ResourceLocked)
	return &sendResult{err: err, surely: alone && definite}
}

func remembered(reason *amqp.Error) chan *amqp.Error {
	again := make(chan *amqp.Error, 1)
	again <- reason
	return again
}

// blockedBy says that the broker blocks publishers, if it does.
func (l *rabbitLink) blockedBy() (text string) {
	for {
		select {
		case b, open := <-l.blocked:
			if !open {
				return text
			}
			text = ""
			if b.Active {
				text = ", the broker blocks publishers: " + b.Reason
			}
		default:
			return text
		}
	}
}
