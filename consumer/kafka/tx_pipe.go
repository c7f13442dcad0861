package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// PipeHandler turns one event into the records that it causes; none is fine. It
// may be called again for the same event, so it must have no effect but its
// answer. A handler that writes to a database or calls a service belongs into a
// Consumer. Errors are those of consumer.Handler.
type PipeHandler func(ctx context.Context, ev consumer.Event) ([]*kgo.Record, error)

// PipeConfig is a consume–process–produce loop from Kafka to Kafka.
type PipeConfig struct {
	TxOptions
	Group   string
	Topics  []string
	Handler PipeHandler
	EventID consumer.EventIDSource
	Retry   consumer.RetryPolicy

	DeadLetterTopic string // "" is <topic>.DLT; has to exist
	BatchSize       int    // the most records in one transaction; 0 is 500

	SessionTimeout   time.Duration // 0 is 15 s, as in Options
	RebalanceTimeout time.Duration // 0 is 30 s
	Outage           time.Duration // longest wait for what is unavailable; 0 is 15 s

	Logger *slog.Logger     // nil: slog.Default()
	Now    func() time.Time // nil: time.Now
}

// Pipe consumes, processes and produces with the offsets inside the transaction:
// read_committed readers find the output of each input exactly one time, whatever
// crashes. Input is read_committed, too. An error of the handler repeats or, as a
// dead letter inside the same transaction, gives up its event alone; a rebalance
// aborts, and the partition's new owner begins where the last commit ended.
//
// The boundary: Kafka to Kafka, within one cluster. No database, cache or service
// is part of the transaction: what a handler does there may happen several times.
// Duplicates that the producer of the input has written are two inputs.
type Pipe struct {
	cfg  PipeConfig
	opts Options // for the dead letters' names
}

// NewPipe checks the config; it connects to nothing.
func NewPipe(cfg PipeConfig) (*Pipe, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.BatchSize == 0 {
		cfg.BatchSize = 500
	}
	if cfg.Outage == 0 {
		cfg.Outage = 15 * time.Second
	}
	tx, err := cfg.TxOptions.complete()
	if err != nil {
		return nil, fmt.Errorf("pipe %s: %w", cfg.Group, err)
	}
	cfg.TxOptions = tx
	opts, err := Options{Topics: cfg.Topics, DeadLetterTopic: cfg.DeadLetterTopic,
		SessionTimeout: cfg.SessionTimeout, RebalanceTimeout: cfg.RebalanceTimeout}.complete(cfg.Group)
	if err == nil {
		err = cfg.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("pipe %s: %w", cfg.Group, err)
	}
	return &Pipe{cfg: cfg, opts: opts}, nil
}

func (c PipeConfig) validate() error {
	switch {
	case c.Group == "":
		return errors.New("a group is required")
	case c.Handler == nil:
		return errors.New("a handler is required")
	case c.BatchSize < 0 || c.Outage < 0:
		return errors.New("batch size and outage wait must not be negative")
	case c.EventID.MessageID:
		return errors.New("event id: messages of Kafka have no property message_id")
	}
	return errors.Join(consumer.ValidateEventIDSource(c.EventID), c.Retry.Validate())
}

// Run works until ctx ends and returns nil then; what is not committed is aborted.
// The error ErrFenced ends it for good. Everything else is waited for: a broker
// that is down, a lost session, a topic that does not exist.
func (p *Pipe) Run(ctx context.Context) error {
	for pause := p.cfg.Outage / 32; ; pause = min(2*pause, p.cfg.Outage) {
		worked, err := p.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrFenced) {
			return fmt.Errorf("pipe %s: transactional id %s: %w", p.cfg.Group, p.cfg.TransactionalID, err)
		}
		if worked {
			pause = p.cfg.Outage / 32
		}
		p.cfg.Logger.Warn("pipe begins anew", "consumer_group", p.cfg.Group, "error", err, "after", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// session is one client, until it fails. worked: it committed something.
func (p *Pipe) session(ctx context.Context) (worked bool, _ error) {
	r := &pipeRun{Pipe: p, attempts: map[recordID]int{}, faults: map[recordID]fault{}}
	session, err := kgo.NewGroupTransactSession(p.client(r)...)
	if err != nil {
		return false, err
	}
	defer leave(session.Client())
	r.session = session
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		return false, fencing(err)
	}
	for ctx.Err() == nil {
		committed, err := r.turn(ctx)
		if err != nil {
			return worked, fencing(err)
		}
		worked = worked || committed
	}
	return worked, nil
}

func (p *Pipe) client(r *pipeRun) []kgo.Opt {
	return p.cfg.client(
		kgo.ConsumerGroup(p.cfg.Group),
		kgo.ConsumeTopics(p.cfg.Topics...),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(fetchWait),
		kgo.SessionTimeout(p.opts.SessionTimeout),
		kgo.HeartbeatInterval(min(3*time.Second, p.opts.SessionTimeout/4)),
		kgo.RebalanceTimeout(p.opts.RebalanceTimeout),
		kgo.RecordPartitioner(pipePartitioner{kgo.StickyKeyPartitioner(nil), sameOrByKey(), p.deadLetterTopics()}),
		kgo.OnPartitionsRevoked(r.revoked),
		kgo.OnPartitionsLost(r.revoked),
	)
}

func (p *Pipe) deadLetterTopics() map[string]bool {
	dead := map[string]bool{}
	for _, topic := range p.cfg.Topics {
		dead[p.opts.deadLetterTopic(p.cfg.Group, topic)] = true
	}
	return dead
}

// pipePartitioner keeps dead letters on their origin's partition number; the
// handler's records go by their key.
type pipePartitioner struct {
	byKey, letters kgo.Partitioner
	dead           map[string]bool
}

// ForTopic chooses by what the topic is for.
func (p pipePartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	if p.dead[topic] {
		return p.letters.ForTopic(topic)
	}
	return p.byKey.ForTopic(topic)
}

// Lag is how far the group is behind, by the offsets that were committed.
func (p *Pipe) Lag(ctx context.Context) (int64, error) {
	client, err := kgo.NewClient(p.cfg.Client...)
	if err != nil {
		return 0, fmt.Errorf("lag of %s: %w", p.cfg.Group, err)
	}
	defer client.Close()
	lags, err := kadm.NewClient(client).Lag(ctx, p.cfg.Group)
	if err != nil {
		return 0, fmt.Errorf("lag of %s: %w", p.cfg.Group, err)
	}
	l := lags[p.cfg.Group]
	if err := l.Error(); err != nil {
		return 0, fmt.Errorf("lag of %s: %w", p.cfg.Group, err)
	}
	return l.Lag.Total(), nil
}
