package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// KafkaOptions is what a publisher needs of Kafka.
type KafkaOptions struct {
	// Client holds how to connect: seed brokers and, where needed, TLS, SASL,
	// client id. Acks of all in-sync replicas, idempotence and partitioning by the
	// key's hash (as Java's) are the publisher's.
	Client []kgo.Opt
	// DeliveryTimeout is when a record that was not confirmed is tried anew; 0 is 10 s.
	DeliveryTimeout time.Duration
}

// Kafka publishes to topics. They are never created by sending to them.
type Kafka struct {
	client *kgo.Client
	opts   []kgo.Opt

	mu    sync.Mutex // one record at a time goes by alone
	alone *kgo.Client
}

// buffered is more than relays have on their way together.
const buffered = 200_000

// aloneBytes is the largest record that we try to send; the topic's
// max.message.bytes decides.
const aloneBytes = 64 << 20

// NewKafka makes a publisher. It connects when it is first used.
func NewKafka(o KafkaOptions) (*Kafka, error) {
	if o.DeliveryTimeout == 0 {
		o.DeliveryTimeout = 10 * time.Second
	}
	opts := append(o.Client[:len(o.Client):len(o.Client)],
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.RecordDeliveryTimeout(o.DeliveryTimeout),
		kgo.UnknownTopicRetries(1),
		kgo.ProducerLinger(0), // rows of one key follow each other: waiting would slow each
		kgo.MaxBufferedRecords(buffered),
	)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("outbox: connect to Kafka: %w", err)
	}
	return &Kafka{client: client, opts: opts}, nil
}

// Publish implements Publisher.
func (k *Kafka) Publish(ctx context.Context, r Row, done func(error)) {
	k.client.Produce(ctx, recordOf(r), func(_ *kgo.Record, err error) {
		if perhapsNeighbours(err) {
			go func() { done(k.publishAlone(ctx, r)) }()
			return
		}
		done(blameKafka(err))
	})
}

func recordOf(r Row) *kgo.Record {
	headers := make([]kgo.RecordHeader, 0, len(r.Headers)+1)
	named := false
	for _, h := range r.Headers {
		named = named || h.Name == HeaderEventID
		headers = append(headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
	if !named {
		headers = append(headers, kgo.RecordHeader{Key: HeaderEventID, Value: []byte(r.EventID)})
	}
	return &kgo.Record{Topic: r.Target, Key: r.Key, Value: r.Value, Headers: headers}
}

// perhapsNeighbours: the broker refuses whole batches, for what one record in
// them is or for what they are together.
func perhapsNeighbours(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) || errors.Is(err, kerr.InvalidRecord) ||
		errors.Is(err, kerr.InvalidTimestamp) || errors.Is(err, kerr.CorruptMessage)
}

// publishAlone sends the record in a batch of its own.
func (k *Kafka) publishAlone(ctx context.Context, r Row) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() != nil {
		return consumer.Unavailable(ctx.Err())
	}
	if k.alone == nil {
		client, err := kgo.NewClient(append(k.opts[:len(k.opts):len(k.opts)], kgo.ProducerBatchMaxBytes(aloneBytes), kgo.BrokerMaxWriteBytes(2*aloneBytes))...)
		if err != nil {
			return consumer.Unavailable(err)
		}
		k.alone = client
	}
	return blameKafka(k.alone.ProduceSync(ctx, recordOf(r)).FirstErr())
}

// blameKafka tells what the row is refused for from everything that passes. An
// unknown topic does not pass by itself.
func blameKafka(err error) error {
	var refused *kerr.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("the topic does not exist: %w", err)
	case errors.Is(err, kerr.CorruptMessage):
		return err
	case errors.As(err, &refused) && !refused.Retriable && !passes(refused):
		return err
	}
	return consumer.Unavailable(err)
}

// passes are errors that the protocol calls final, for this producer or this
// moment, but not for the record.
func passes(err *kerr.Error) bool {
	switch err.Code {
	case kerr.OutOfOrderSequenceNumber.Code, kerr.DuplicateSequenceNumber.Code, kerr.InvalidProducerEpoch.Code, kerr.UnknownProducerID.Code,
		kerr.ProducerFenced.Code, kerr.SaslAuthenticationFailed.Code, kerr.ClusterAuthorizationFailed.Code, kerr.UnknownServerError.Code,
		kerr.InvalidProducerIDMapping.Code:
		return true
	}
	return false
}

// Close ends the connections. Records on their way fail as unavailable.
func (k *Kafka) Close() {
	k.client.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alone != nil {
		k.alone.Close()
	}
}
