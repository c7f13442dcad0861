package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

const (
	// publishTimeout is when an unconfirmed dead letter is reported and tried again.
	publishTimeout = 10 * time.Second
	// letterBytes is the largest dead letter that we try to send; the topic's
	// max.message.bytes decides.
	letterBytes = 64 << 20
)

// deadLetters publishes dead letters: acks from all in-sync replicas,
// idempotent, at most 5 requests in flight (what franz-go does when idempotent).
type deadLetters struct {
	producer *kgo.Client
	opts     Options
	now      func() time.Time
}

func newProducer(opts Options) (*kgo.Client, error) {
	return kgo.NewClient(append(opts.Client[:len(opts.Client):len(opts.Client)],
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(sameOrByKey()),
		kgo.ProducerBatchMaxBytes(letterBytes),
		kgo.RecordDeliveryTimeout(publishTimeout),
		kgo.UnknownTopicRetries(1),
		kgo.ProducerLinger(0),
	)...)
}

// publish returns nil once the broker has confirmed the letter. Where the topic
// refuses its size, the stack trace is left out, which is said in its place.
func (d *deadLetters) publish(ctx context.Context, origin *kgo.Record, l consumer.Letter) error {
	topic := d.opts.deadLetterTopic(l.Group, origin.Topic)
	record := deadRecord(topic, origin, l)
	err := d.send(ctx, record)
	if errors.Is(err, kerr.MessageTooLarge) {
		err = d.send(ctx, withoutStack(record))
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		err = fmt.Errorf("dead-letter topic %s does not exist: create it with the partitions of %s, or let the consumer do so by CreateTopics: %w",
			topic, origin.Topic, err)
	case errors.Is(err, kerr.MessageTooLarge):
		err = fmt.Errorf("dead-letter topic %s refuses a record of this size even without its stack trace: raise its max.message.bytes: %w", topic, err)
	case err != nil:
		err = fmt.Errorf("publish dead letter to %s: %w", topic, err)
	}
	return err
}

// send waits for the confirmation no longer than ctx: a record in flight is not
// taken back, it may still arrive, and a second copy of a letter is harmless.
func (d *deadLetters) send(ctx context.Context, r *kgo.Record) error {
	r.Timestamp = d.now()
	confirmed := make(chan error, 1)
	d.producer.Produce(ctx, r, func(_ *kgo.Record, err error) { confirmed <- err })
	select {
	case err := <-confirmed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withoutStack is a copy of a dead letter whose stack trace was cut.
func withoutStack(r *kgo.Record) *kgo.Record {
	cut := *r
	cut.Headers = append([]kgo.RecordHeader(nil), r.Headers...)
	for i, h := range cut.Headers {
		if h.Key == exceptionStack {
			note := fmt.Sprintf("(%d bytes left out: the topic's max.message.bytes is smaller than the record)", len(h.Value))
			cut.Headers[i].Value = []byte(note)
		}
	}
	return &cut
}
