package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrFenced says that this instance may not write under its transactional id any
// more: another instance has started with the same id, or the broker has aborted
// a transaction of ours that outlasted TransactionTimeout. What was under way is
// invisible to read_committed readers. Start a new instance with an id of its own.
var ErrFenced = errors.New("kafka: fenced: another instance has started with this transactional id, or a transaction outlasted its time-out")

// ErrInDoubt says that the answer to the commit of a transaction was lost: all
// of it is visible, or nothing. Sending it again may repeat it, so readers have to
// recognise event ids.
var ErrInDoubt = errors.New("kafka: not known whether the transaction was committed")

// TxOptions is what transactions need of Kafka.
type TxOptions struct {
	// Client holds how to connect, as in Options.
	Client []kgo.Opt

	// TransactionalID names this instance: the same after its restart, no two
	// instances at a time, such as "billing-0" for the first replica. By it a
	// restarted instance ends what its predecessor left open, and a predecessor
	// that still lives is fenced.
	TransactionalID string

	// TransactionTimeout is when the broker aborts a transaction whose owner has
	// gone silent; until then read_committed readers wait. 0 is 30 s; the broker's
	// transaction.max.timeout.ms limits it.
	TransactionTimeout time.Duration
}

func (o TxOptions) complete() (TxOptions, error) {
	if o.TransactionalID == "" {
		return o, errors.New("a transactional id is required")
	}
	if o.TransactionTimeout < 0 {
		return o, errors.New("transaction time-out must not be negative")
	}
	if o.TransactionTimeout == 0 {
		o.TransactionTimeout = 30 * time.Second
	}
	return o, refuseOptions(o.Client)
}

// client are the options of a transactional producer, behind those to connect.
func (o TxOptions) client(more ...kgo.Opt) []kgo.Opt {
	return append(append(o.Client[:len(o.Client):len(o.Client)],
		kgo.TransactionalID(o.TransactionalID),
		kgo.TransactionTimeout(o.TransactionTimeout),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(letterBytes),
		kgo.RecordDeliveryTimeout(publishTimeout),
		kgo.UnknownTopicRetries(1),
		kgo.ProducerLinger(0),
	), more...)
}

// TxProducer sends records to several topics and partitions all or nothing. It
// is safe for concurrent use; its transactions run one after the other.
//
// The boundary: a Kafka transaction covers Kafka only. No database is part of it,
// so a row written beside SendAtomically may exist without the records, or the
// records without the row. What belongs to a database's transaction goes through
// the outbox. And only readers with isolation level read_committed see all or
// nothing; kgo's default, like Java's, is read_uncommitted.
type TxProducer struct {
	opts TxOptions

	mu     sync.Mutex
	client *kgo.Client // nil: to be made
	fenced error
	closed bool
}

// NewTxProducer checks the options. It connects to nothing; an earlier instance
// of the same id is fenced by Start, or by the first SendAtomically.
func NewTxProducer(o TxOptions) (*TxProducer, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("transactional producer %s: %w", o.TransactionalID, err)
	}
	return &TxProducer{opts: o}, nil
}

// Start fences earlier instances with this id and aborts what they left open.
func (p *TxProducer) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.connected(ctx)
	return p.told(err, "start")
}

// SendAtomically makes all records visible to read_committed readers, or none of
// them. It returns nil once the commit is confirmed. Errors: ErrFenced, for ever;
// ErrInDoubt; any other says that nothing is visible and the call may be repeated.
// Records without a header traceparent get that of ctx, if it has one.
func (p *TxProducer) SendAtomically(ctx context.Context, records ...*kgo.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	client, err := p.connected(ctx)
	if err != nil {
		return p.told(err, "start")
	}
	if len(records) == 0 {
		return nil
	}
	if err := client.BeginTransaction(); err != nil {
		p.drop()
		return p.told(err, "begin")
	}
	for _, r := range records {
		trace(ctx, r)
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		p.abort(ctx)
		return p.told(err, "send")
	}
	return p.commit(ctx)
}

// endTimeout bounds the end of a transaction, which goes on after ctx has ended:
// a caller that hangs up must not leave readers waiting.
const endTimeout = 15 * time.Second

func (p *TxProducer) commit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := p.client.EndTransaction(ctx, kgo.TryCommit)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.OperationNotAttempted), errors.Is(err, kerr.TransactionAbortable):
		p.abort(ctx)
		return p.told(err, "commit")
	}
	p.drop()
	if !isFenced(err) {
		err = fmt.Errorf("%w: %w", ErrInDoubt, err)
	}
	return p.told(err, "commit")
}

// abort makes the transaction invisible. Where that fails the client is given
// up: its successor aborts by asking for the same id.
func (p *TxProducer) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	err := p.client.AbortBufferedRecords(ctx)
	if err == nil {
		err = p.client.EndTransaction(ctx, kgo.TryAbort)
	}
	if err != nil {
		p.drop()
	}
}

func (p *TxProducer) connected(ctx context.Context) (*kgo.Client, error) {
	switch {
	case p.fenced != nil:
		return nil, p.fenced
	case p.closed:
		return nil, kgo.ErrClientClosed
	case p.client != nil:
		return p.client, nil
	}
	client, err := kgo.NewClient(p.opts.client()...)
	if err != nil {
		return nil, err
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		return nil, err
	}
	p.client = client
	return client, nil
}

func (p *TxProducer) drop() {
	if p.client != nil {
		p.client.Close()
		p.client = nil
	}
}

// told names the act and the id, and remembers being fenced: coming back would
// fence the successor in turn.
func (p *TxProducer) told(err error, act string) error {
	if err == nil || errors.Is(err, ErrFenced) {
		return err
	}
	err = fmt.Errorf("transactional id %s: %s: %w", p.opts.TransactionalID, act, fencing(err))
	if errors.Is(err, ErrFenced) {
		p.fenced = err
		p.drop()
	}
	return err
}

// Close waits for the transaction under way and disconnects.
func (p *TxProducer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.drop()
}

func isFenced(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// fencing marks the broker's words for being fenced with ErrFenced.
func fencing(err error) error {
	if isFenced(err) && !errors.Is(err, ErrFenced) {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return err
}
