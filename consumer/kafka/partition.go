package kafka

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// A partition holds at most this much before its fetching is paused; it goes on
// at half of it.
const (
	backlogBatches = 20       // in batches,
	backlogRecords = 2000     // but at least in records,
	backlogBytes   = 12 << 20 // and never more than its share of this, for all partitions of a member,
	backlogLeast   = 64 << 10 // but at least this
)

// pause is why fetching of a partition is paused; several reasons may hold.
type pause uint8

const (
	pauseBacklog pause = 1 << iota
	pauseWaiting
	pauseRequested
	pauseDue // a retry topic's next record is not due
)

// partition is an assigned partition: its backlog, its worker's goroutine and
// how far the database has come.
type partition[T any] struct {
	id      consumer.Partition
	cfg     consumer.Config[T]
	client  *kgo.Client
	dead    *deadLetters
	retries retries
	moved   func()        // tells the committer that done has moved
	owned   *atomic.Int64 // partitions of the member

	ctx    context.Context // cuts off the transaction under way
	cancel context.CancelFunc
	stop   chan struct{} // closed: start no more transactions
	ended  chan struct{} // closed when the goroutine has returned

	more  chan struct{} // a token when records have come
	batch []*kgo.Record // under way, of the goroutine alone

	mu      sync.Mutex
	backlog []*kgo.Record
	bytes   int
	pauses  pause
	stopped bool
	done    kgo.EpochOffset // next offset after what is finished; Offset 0 nothing yet
	saved   kgo.EpochOffset // what of it the broker has confirmed
}

func newPartition[T any](id consumer.Partition, c *Consumer[T], client *kgo.Client) *partition[T] {
	p := &partition[T]{
		id: id, cfg: c.cfg, client: client, dead: c.dead, retries: c.retries, moved: c.moved, owned: &c.owned,
		stop: make(chan struct{}), ended: make(chan struct{}), more: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// run handles the backlog batch by batch until the partition is stopped.
func (p *partition[T]) run(meter *consumer.Meter, gate *consumer.Gate) {
	defer close(p.ended)
	worker := consumer.NewWorker(p.cfg, p.port(), meter, gate)
	for {
		p.batch = p.take()
		if p.batch == nil {
			return
		}
		for len(p.batch) > 0 {
			n, ok := p.ready()
			if !ok {
				return
			}
			if err := worker.Process(p.ctx, p.stop, p.deliveries(n)); err != nil {
				return // stopped, or cut off: what is not done will be delivered again
			}
		}
	}
}

func (p *partition[T]) port() consumer.Port {
	if p.retries.opts.RetryTopics != nil {
		return deferring[T]{p}
	}
	return p
}

// deliveries are the first n records of the batch.
func (p *partition[T]) deliveries(n int) []consumer.Delivery {
	all := make([]consumer.Delivery, n)
	for i, r := range p.batch[:n] {
		origin, attempt := p.retries.original(r)
		all[i] = consumer.NewDelivery(eventOf(p.cfg.Group, origin), p.cfg.EventID)
		all[i].Attempt = attempt
	}
	return all
}

// add puts fetched records behind the others.
func (p *partition[T]) add(records []*kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.backlog = append(p.backlog, records...)
	for _, r := range records {
		p.bytes += size(r)
	}
	if p.full(1) {
		p.setPause(pauseBacklog, true)
	}
	p.signal()
}

// full reports whether the backlog holds more than its limit divided by part.
func (p *partition[T]) full(part int) bool {
	records := max(backlogBatches*p.cfg.BatchSize, backlogRecords)
	bytes := max(backlogBytes/max(int(p.owned.Load()), 1), backlogLeast)
	return len(p.backlog) > records/part || p.bytes > bytes/part
}

// recordBytes is what a record costs beside its bytes: kgo.Record and pointers to it.
const recordBytes = 320

func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value) + recordBytes
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 48
	}
	return n
}

func (p *partition[T]) signal() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// take waits for records and returns up to a batch of them: at once if there is
// a whole one, else what has come within the batch's waiting time. Nil: stopped.
func (p *partition[T]) take() []*kgo.Record {
	for p.count() == 0 {
		select {
		case <-p.more:
		case <-p.stop:
			return nil
		case <-p.ctx.Done():
			return nil
		}
	}
	p.fill()
	return p.cut()
}

func (p *partition[T]) fill() {
	if p.cfg.BatchWait <= 0 {
		return
	}
	timer := time.NewTimer(p.cfg.BatchWait)
	defer timer.Stop()
	for p.count() < p.cfg.BatchSize {
		select {
		case <-p.more:
		case <-timer.C:
			return
		case <-p.stop:
			return
		}
	}
}

func (p *partition[T]) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.backlog)
}

func (p *partition[T]) cut() []*kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.backlog), p.cfg.BatchSize)
	batch := p.backlog[:n:n]
	p.backlog = p.backlog[n:]
	for _, r := range batch {
		p.bytes -= size(r)
	}
	if !p.full(2) {
		p.setPause(pauseBacklog, false)
	}
	return batch
}

// System names the broker in traces.
func (p *partition[T]) System() string { return "kafka" }

// Done moves the partition's offset past the next n records of the batch.
func (p *partition[T]) Done(n int) {
	p.mu.Lock()
	last := p.batch[n-1]
	p.batch = p.batch[n:]
	p.done = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
	p.mu.Unlock()
	p.moved()
}

// DeadLetter publishes the letter of the first record that is not done.
func (p *partition[T]) DeadLetter(ctx context.Context, l consumer.Letter) error {
	origin, _ := p.retries.original(p.batch[0])
	return p.dead.publish(ctx, origin, l)
}

// Waiting pauses fetching while the worker waits for a retry or an outage.
func (p *partition[T]) Waiting(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setPause(pauseWaiting, on)
}

// resting pauses fetching while the next record of a retry topic is not due.
func (p *partition[T]) resting(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setPause(pauseDue, on)
}

// request pauses or resumes fetching because somebody asked for it.
func (p *partition[T]) request(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setPause(pauseRequested, on)
}

// setPause is called with the lock held.
func (p *partition[T]) setPause(why pause, on bool) {
	before := p.pauses
	if on {
		p.pauses |= why
	} else {
		p.pauses &^= why
	}
	if p.stopped || (before == 0) == (p.pauses == 0) {
		return
	}
	which := map[string][]int32{p.id.Topic: {p.id.Partition}}
	if p.pauses != 0 {
		p.client.PauseFetchPartitions(which)
	} else {
		p.client.ResumeFetchPartitions(which)
	}
}

func (p *partition[T]) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pauses&pauseWaiting != 0
}

// halt starts no more transactions and takes no more records. A pause outlives
// the assignment in kgo, so it is undone here.
func (p *partition[T]) halt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if p.pauses != 0 {
		p.client.ResumeFetchPartitions(map[string][]int32{p.id.Topic: {p.id.Partition}})
	}
	p.stopped = true
	p.backlog = nil
	close(p.stop)
}

// unsaved returns the offset that the broker has not confirmed yet.
func (p *partition[T]) unsaved() (kgo.EpochOffset, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done, p.done != p.saved
}

func (p *partition[T]) setSaved(o kgo.EpochOffset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.saved = o
}
