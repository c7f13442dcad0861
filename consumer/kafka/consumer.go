package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// Consumer runs one member of a consumer group. It implements consumer.Runner.
type Consumer[T any] struct {
	cfg   consumer.Config[T]
	opts  Options
	meter consumer.Meter
	gate  consumer.Gate

	dead    *deadLetters
	topics  topics
	retries retries
	dirty   chan struct{} // a token when an offset has moved

	commitMu sync.Mutex // orders commits: a late one must not rewind a partition that was given away

	mu         sync.Mutex
	partitions map[consumer.Partition]*partition[T]
	started    time.Time
	running    bool
	preparing  bool         // waiting for store or broker before joining the group
	owned      atomic.Int64 // how many partitions there are
	evicted    atomic.Int64 // how often the broker had given our partitions to others
	admin      atomic.Pointer[kadm.Client]
}

var _ consumer.Runner = (*Consumer[any])(nil)

// New checks the config. It connects to nothing: an unreachable broker or
// database is no error here, Run waits for them.
func New[T any](cfg consumer.Config[T], opts Options) (*Consumer[T], error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	if cfg.EventID.MessageID {
		return nil, fmt.Errorf("consumer %s: event id: messages of Kafka have no property message_id", cfg.Group)
	}
	opts, err = opts.complete(cfg.Group)
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", cfg.Group, err)
	}
	retries, err := newRetries(cfg.Group, cfg.Retry, opts)
	if err != nil {
		return nil, fmt.Errorf("consumer %s: %w", cfg.Group, err)
	}
	return &Consumer[T]{cfg: cfg, opts: opts, retries: retries, dirty: make(chan struct{}, 1),
		partitions: map[consumer.Partition]*partition[T]{}}, nil
}

// errRunTwice is returned by a second Run.
var errRunTwice = errors.New("kafka: consumer runs already, or has run")

// Run joins the group and consumes until ctx ends. Then transactions under way
// get FinishTimeout, offsets are committed and the group is left. It returns nil
// after that, and an error only for what no waiting will mend.
func (c *Consumer[T]) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	producer, err := newProducer(c.opts)
	if err != nil {
		return fmt.Errorf("consumer %s: %w", c.cfg.Group, err)
	}
	defer producer.Close()
	c.use(producer)
	if err := c.prepare(ctx); err != nil {
		return nil // ctx ended while waiting
	}
	client, err := c.join()
	if err != nil {
		return fmt.Errorf("consumer %s: %w", c.cfg.Group, err)
	}
	c.consume(ctx, client)
	return nil
}

func (c *Consumer[T]) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started.IsZero() {
		return errRunTwice
	}
	c.started, c.running, c.preparing = c.cfg.Now(), true, true
	return nil
}

func (c *Consumer[T]) end() {
	c.admin.Store(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.preparing = false, false
}

// use sets up what needs only the producer's connection.
func (c *Consumer[T]) use(producer *kgo.Client) {
	c.dead = &deadLetters{producer: producer, opts: c.opts, now: c.cfg.Now}
	admin := kadm.NewClient(producer)
	c.topics = topics{admin: admin, group: c.cfg.Group, opts: c.opts, retries: c.retries, log: c.cfg.Logger.With("consumer_group", c.cfg.Group)}
	c.admin.Store(admin)
}

// askTimeout bounds one question to the broker or the database at start.
const askTimeout = 15 * time.Second

// prepare waits until store and topics can be used. Its error is that of ctx.
func (c *Consumer[T]) prepare(ctx context.Context) error {
	for pause := c.cfg.Outage / 32; ; pause = min(2*pause, c.cfg.Outage) {
		err := c.ready(ctx)
		if err == nil {
			c.mu.Lock()
			c.preparing = false
			c.mu.Unlock()
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.meter.Note(err, c.cfg.Now())
		c.cfg.Logger.Warn("consumer cannot start yet", "consumer_group", c.cfg.Group, "error", err, "after", pause)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func (c *Consumer[T]) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := c.cfg.Store.Check(ctx, c.cfg.Group); err != nil {
		return err
	}
	if err := c.topics.prepare(ctx); err != nil {
		return err
	}
	if err := c.topics.warnOfAcks(ctx); err != nil {
		c.topics.log.Warn("cannot say what acks=all is worth", "error", err)
	}
	return nil
}

// fetchWait is how long the broker may hold a fetch that finds nothing. A
// partition that is resumed waits for the fetch under way, so this is short.
const fetchWait = 100 * time.Millisecond

// Fetches in flight and not yet taken hold this much at most, beside the backlogs:
// a member's memory does not depend on how much waits in the topic.
const (
	fetchBytes          = 8 << 20
	fetchPartitionBytes = 1 << 20
	fetchesInFlight     = 3
)

// join makes the group member. Committing is ours alone: auto-commit is off, and
// offsets are saved only after the database's commit.
func (c *Consumer[T]) join() (*kgo.Client, error) {
	return kgo.NewClient(append(c.opts.Client[:len(c.opts.Client):len(c.opts.Client)],
		kgo.ConsumerGroup(c.cfg.Group),
		kgo.ConsumeTopics(c.topics.subscribed()...),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.FetchMaxPartitionBytes(fetchPartitionBytes),
		kgo.MaxConcurrentFetches(fetchesInFlight),
		kgo.MetadataMaxAge(time.Minute), // how soon a new replay topic is seen
		kgo.SessionTimeout(c.opts.SessionTimeout),
		kgo.HeartbeatInterval(min(3*time.Second, c.opts.SessionTimeout/4)),
		kgo.RebalanceTimeout(c.opts.RebalanceTimeout),
		kgo.OnPartitionsAssigned(c.assigned),
		kgo.OnPartitionsRevoked(c.revoked),
		kgo.OnPartitionsLost(c.lost),
	)...)
}

// consume polls until ctx ends, then gives everything back. Polling never waits
// for a handler: records go into the partitions' backlogs.
func (c *Consumer[T]) consume(ctx context.Context, client *kgo.Client) {
	committing, stopCommitting := context.WithCancel(context.WithoutCancel(ctx))
	var committer sync.WaitGroup
	committer.Go(func() { c.commitLoop(committing, client) })
	for ctx.Err() == nil {
		c.dispatch(client.PollFetches(ctx))
		client.AllowRebalance()
	}
	c.giveBack(client, c.all(), true)
	stopCommitting()
	committer.Wait()
	leave(client)
}

// leaveTimeout bounds the farewell to a broker that does not answer.
const leaveTimeout = 5 * time.Second

func leave(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = client.LeaveGroupContext(ctx) // else the session time-out tells the broker
	client.CloseAllowingRebalance()
}

func (c *Consumer[T]) dispatch(fetches kgo.Fetches) {
	fetches.EachError(func(topic string, partition int32, err error) {
		if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
			return
		}
		c.meter.Note(err, c.cfg.Now())
		c.cfg.Logger.Warn("fetch failed", "consumer_group", c.cfg.Group, "topic", topic, "partition", partition, "error", err)
	})
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if len(f.Records) == 0 {
			return
		}
		c.mu.Lock()
		p := c.partitions[consumer.Partition{Topic: f.Topic, Partition: f.Partition}]
		c.mu.Unlock()
		if p != nil {
			p.add(f.Records)
		}
	})
}
