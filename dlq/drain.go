package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/dlq/dialect"
)

const (
	batchRecords = 2000             // of one transaction
	batchBytes   = 32 << 20         // of one transaction
	storers      = 2                // transactions at once; one spends half its time waiting
	fetchBytes   = 16 << 20         // of one fetch from a broker
	newTopicsIn  = 4 * time.Second  // how often topics are looked for
	pollFor      = time.Second      // a poll also ends to look after stale partitions
	finishIn     = 10 * time.Second // for the batch in hand when Run ends
	retryMin     = 200 * time.Millisecond
	retryMax     = 5 * time.Second
)

// DrainerConfig is what a Drainer works with.
type DrainerConfig struct {
	Pool     *pgxpool.Pool
	Cluster  *Cluster
	Sources  []DrainSource // the first that matches a topic or queue counts
	Dialects *dialect.Set
	Log      *slog.Logger
	Clock    func() time.Time // nil: time.Now
	Group    string           // Kafka group used for assignment; "": oncemore-drain-<cluster>
	Groups   GroupBook        // RabbitMQ: which group a queue is consumed by
}

// Drain moves the dead letters of one cluster into the tables.
type Drain interface {
	// Run drains until ctx ends, then finishes what is in hand, at most 10 s.
	Run(ctx context.Context) error
	// Status says how far each source is that this process drains, by name.
	Status() []SourceStatus
}

// NewDrain prepares the drain that the cluster's broker needs.
func NewDrain(conf DrainerConfig) Drain {
	if conf.Cluster.IsRabbit() {
		return NewRabbitDrainer(conf)
	}
	return NewDrainer(conf)
}

// Drainer moves the dead letters of one Kafka cluster into the tables. Any number
// of processes may drain one cluster: a Kafka group shares the partitions among
// them, and the position in the database, which moves in the letters' own
// transaction, decides who is stale. The group's offsets are only for display.
type Drainer struct {
	conf    DrainerConfig
	intake  *intake
	sources []sourcePattern
	invalid error // of the sources
	client  *kgo.Client

	mu      sync.Mutex
	cursors map[topicPartition]*drainCursor
	status  map[string]*SourceStatus
}

// NewDrainer prepares a drain; nothing is connected before Run.
func NewDrainer(conf DrainerConfig) *Drainer {
	if conf.Clock == nil {
		conf.Clock = time.Now
	}
	if conf.Group == "" {
		conf.Group = drainGroupPrefix + conf.Cluster.Name
	}
	sources, err := compileSources(conf.Sources)
	return &Drainer{
		conf: conf, sources: sources, invalid: err,
		intake:  newIntake(conf.Pool, conf.Cluster.Name, conf.Dialects, conf.Log),
		cursors: map[topicPartition]*drainCursor{}, status: map[string]*SourceStatus{},
	}
}

// Run drains until ctx ends, then finishes the batch in hand, at most 10 s. It
// returns nil then. An unreachable broker or database is waited for. Errors:
// ErrBadPattern.
func (d *Drainer) Run(ctx context.Context) error {
	if d.invalid != nil {
		return d.invalid
	}
	if len(d.sources) == 0 {
		<-ctx.Done()
		return nil
	}
	client, err := d.conf.Cluster.NewClient(d.options()...)
	if err != nil {
		return fmt.Errorf("drain cluster %s: %w", d.conf.Cluster.Name, err)
	}
	d.client = client
	defer d.leave()
	var lanes [storers]chan batch
	var storing sync.WaitGroup
	for i := range lanes {
		lanes[i] = make(chan batch, 1)
		storing.Go(func() { d.storeAll(ctx, lanes[i]) })
	}
	d.fetch(ctx, lanes)
	storing.Wait()
	return nil
}

func (d *Drainer) options() []kgo.Opt {
	var topics []string
	for _, s := range d.sources {
		topics = append(topics, globPattern(s.Pattern))
	}
	return []kgo.Opt{
		kgo.ConsumerGroup(d.conf.Group),
		kgo.ConsumeRegex(), kgo.ConsumeTopics(topics...), kgo.ConsumeExcludeTopics("^" + internalPrefix),
		kgo.MetadataMinAge(time.Second), kgo.MetadataMaxAge(newTopicsIn),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.AdjustFetchOffsetsFn(d.assigned),
		kgo.OnPartitionsRevoked(d.revoked), kgo.OnPartitionsLost(d.revoked),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // an aborted dead letter was never one
		kgo.KeepControlRecords(),                     // so that the position passes a transaction's end
		kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchBytes / 2), kgo.FetchMaxWait(500 * time.Millisecond),
		// A replica that is put out too early does no harm: its transaction is
		// fenced. So one that died is replaced soon.
		kgo.SessionTimeout(8 * time.Second), kgo.HeartbeatInterval(2 * time.Second), kgo.RebalanceTimeout(20 * time.Second),
	}
}

// leave gives the partitions back, so that another replica takes them at once.
func (d *Drainer) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := d.client.LeaveGroupContext(ctx); err != nil {
		d.conf.Log.Warn("drain could not leave its group", "cluster", d.conf.Cluster.Name, "error", err)
	}
	d.client.CloseAllowingRebalance()
}

// batch is parts that are stored together, as they were read.
type batch struct {
	parts    []*partitionBatch
	arrivals []*arrival
	counts   []int // records of each part
}

// fetch polls until ctx ends, and reads what comes. Fetching and reading go on
// while the batches before are stored. A partition keeps to its lane, and so its
// order.
func (d *Drainer) fetch(ctx context.Context, lanes [storers]chan batch) {
	for _, lane := range lanes {
		defer close(lane)
	}
	for ctx.Err() == nil {
		for i, parts := range intoLanes(d.poll(ctx)) {
			for _, cut := range split(parts) {
				d.give(ctx, lanes[i], cut)
			}
		}
	}
}

// intoLanes spreads partitions over the storers.
func intoLanes(parts []*partitionBatch) (lanes [storers][]*partitionBatch) {
	for _, p := range parts {
		i := (uint32(p.TopicID[15]) + uint32(p.Partition)) % storers
		lanes[i] = append(lanes[i], p)
	}
	return lanes
}

func (d *Drainer) give(ctx context.Context, lane chan<- batch, parts []*partitionBatch) {
	b := batch{parts: parts, arrivals: d.intake.read(parts)}
	for _, p := range parts {
		b.counts = append(b.counts, len(p.Records))
	}
	d.addInHand(parts, 1)
	select {
	case lane <- b:
	case <-ctx.Done():
	}
}

// poll fetches once.
func (d *Drainer) poll(ctx context.Context) []*partitionBatch {
	pollCtx, cancel := context.WithTimeout(ctx, pollFor)
	fetches := d.client.PollRecords(pollCtx, storers*batchRecords)
	cancel()
	renewed, failing := d.noteErrors(ctx, fetches)
	parts := d.sort(ctx, fetches)
	d.client.AllowRebalance()
	d.renew(ctx, renewed)
	if failing && len(parts) == 0 {
		pause(ctx, retryMin) // the client gives an error again at once
	}
	return parts
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// noteErrors shows what went wrong, and returns the topics that are not the ones
// we know any more: deleted, and perhaps made again.
func (d *Drainer) noteErrors(ctx context.Context, fetches kgo.Fetches) (renewed []string, failing bool) {
	fetches.EachError(func(topic string, partition int32, err error) {
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			return
		case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
			if !slices.Contains(renewed, topic) {
				renewed = append(renewed, topic)
			}
			return
		}
		failing = true
		d.conf.Log.WarnContext(ctx, "fetch of dead letters failed", "cluster", d.conf.Cluster.Name, "topic", topic, "partition", partition, "error", err)
		if topic != "" {
			d.failed(topic, err)
		}
	})
	return renewed, failing
}

// renew forgets topics, so that they are found again under their new id: the
// client does not take it over by itself.
func (d *Drainer) renew(ctx context.Context, topics []string) {
	if len(topics) == 0 {
		return
	}
	d.conf.Log.WarnContext(ctx, "dead-letter topics were deleted", "cluster", d.conf.Cluster.Name, "topics", topics)
	d.mu.Lock()
	for tp := range d.cursors {
		if slices.Contains(topics, tp.topic) {
			delete(d.cursors, tp)
		}
	}
	d.mu.Unlock()
	d.client.PurgeTopicsFromConsuming(topics...)
}

// storeAll stores what comes down a lane, until it is closed or the time to finish
// is over.
func (d *Drainer) storeAll(ctx context.Context, lane <-chan batch) {
	for b := range lane {
		if !d.storeUntilDone(ctx, b) {
			return
		}
	}
}

// storeUntilDone tries a batch until it is stored or another replica has it. It
// returns false when the time to finish is over.
func (d *Drainer) storeUntilDone(ctx context.Context, b batch) bool {
	ctx, cancel := finishing(ctx)
	defer cancel()
	defer d.addInHand(b.parts, -1)
	for wait := retryMin; ; wait = min(2*wait, retryMax) {
		err := d.intake.store(ctx, b.parts, b.arrivals)
		switch {
		case err == nil:
			d.stored(b)
			return true
		case errors.Is(err, errStale):
			d.stale(ctx, b.parts)
			return true
		case ctx.Err() != nil:
			return false
		}
		d.conf.Log.ErrorContext(ctx, "dead letters not stored, trying again", "cluster", d.conf.Cluster.Name, "error", err)
		for _, p := range b.parts {
			d.failed(p.Topic, err)
		}
		pause(ctx, wait)
	}
}

// finishing is a context that outlives ctx by finishIn.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-longer.Done():
		case <-time.After(finishIn):
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}

// split cuts parts into batches of at most batchRecords and about batchBytes.
func split(parts []*partitionBatch) [][]*partitionBatch {
	var batches [][]*partitionBatch
	var batch []*partitionBatch
	records, size := 0, 0
	flush := func() {
		if len(batch) > 0 {
			batches, batch, records, size = append(batches, batch), nil, 0, 0
		}
	}
	for _, p := range parts {
		for rest := p; rest != nil; {
			head, tail := rest.cut(batchRecords-records, batchBytes-size)
			if head == nil {
				flush()
				continue
			}
			batch, records, size = append(batch, head), records+len(head.Records), size+head.bytes()
			if rest = tail; rest != nil {
				flush()
			}
		}
	}
	flush()
	return batches
}

// cut takes as many records as fit, at least one of an empty batch.
func (p *partitionBatch) cut(records, size int) (head, tail *partitionBatch) {
	n, taken := 0, 0
	for n < len(p.Records) && n < records && (taken < size || size == batchBytes && n == 0) {
		taken += recordBytes(p.Records[n])
		n++
	}
	switch {
	case n == len(p.Records):
		return p, nil
	case n == 0:
		return nil, p
	}
	first, second := *p, *p
	first.Records, second.Records = p.Records[:n], p.Records[n:]
	first.Next, second.From = second.Records[0].Offset, second.Records[0].Offset
	return &first, &second
}

func (p *partitionBatch) bytes() int {
	n := 0
	for _, r := range p.Records {
		n += recordBytes(r)
	}
	return n
}

func recordBytes(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
