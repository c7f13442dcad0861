package dlq

import (
	"errors"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"oncemore/dlq/amqpform"
	"oncemore/dlq/dialect"
)

// rabbitMessage is what an item sends to RabbitMQ.
type rabbitMessage struct {
	exchange   string // "": the default one, whose keys are queues
	key        string
	publishing amqp.Publishing
	frame      int // bytes of its header frame
}

// compose makes the message as its producer published it: what the dialect, the
// broker and an earlier replay added is left out, user_id as well, and
// the expiration unless the config keeps it.
func (b *rabbitBroker) compose(it *sendItem, of composing) {
	delivery, err := amqpform.Delivery(of.stored.body.AMQP, fieldsOf(of.body.Headers), of.body.Value)
	if err != nil {
		it.leave(replayReason("reason.letter.body", "error", err.Error()))
		return
	}
	again, err := of.dialects.Resend(of.stored.dialect, delivery, dialect.ResendOptions{KeepExpiration: b.keepsExpiration(of.stored.source)})
	var refusal *dialect.Refusal
	switch {
	case errors.As(err, &refusal):
		it.leave(Reason{Key: refusal.Key, Args: refusal.Args, Text: refusal.Text})
		return
	case err != nil:
		it.leave(replayReason("reason.letter.dialect", "dialect", of.stored.dialect))
		return
	}
	m := &rabbitMessage{exchange: of.target.Exchange, key: of.target.Topic, publishing: again.Publishing}
	m.mark(of.replay, it.no)
	if m.frame, err = amqpform.HeaderFrame(m.publishing); err != nil {
		it.leave(replayReason("reason.letter.body", "error", err.Error()))
		return
	}
	it.message = &message{cluster: of.target.Cluster, rabbit: m, bytesFrom: of.from}
}

// mark adds the headers by which a failure of this replay is known when it comes
// back. They take the place of those of an earlier one.
func (m *rabbitMessage) mark(replay int64, item int) {
	headers := make(amqp.Table, len(m.publishing.Headers)+2)
	for name, value := range m.publishing.Headers {
		if !brokersOwn(name) {
			headers[name] = value
		}
	}
	headers[HeaderReplay], headers[HeaderItem] = strconv.FormatInt(replay, 10), strconv.Itoa(item)
	m.publishing.Headers = headers
}
