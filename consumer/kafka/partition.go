package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// A partition holds at most this much before its fetching is paused; it goes on
// at half of it.
const (
	backlogBatches = 100     // in batches,
	backlogRecords = 2000    // but at least in records,
	backlogBytes   = 8 << 20 // and never more than in bytes
)

// pause is why fetching of a partition is paused; several reasons may hold.
type pause uint8

const (
	pauseBacklog pause = 1 << iota
	pauseWaiting
	pauseRequested
)

// partition is an assigned partition: its backlog, its worker's goroutine and
// how far the database has come.
type partition[T any] struct {
	id     consumer.Partition
	cfg    consumer.Config[T]
	client *kgo.Client
	dead   *deadLetters
	moved  func() // tells the committer that done has moved

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
		id: id, cfg: c.cfg, client: client, dead: c.dead, moved: c.moved,
		stop: make(chan struct{}), ended: make(chan struct{}), more: make(chan struct{}, 1),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// run handles the backlog batch by batch until the partition is stopped.
func (p *partition[T]) run(meter *consumer.Meter, gate *consumer.Gate) {
	defer close(p.ended)
	worker := consumer.NewWorker(p.cfg, p, meter, gate)
	for {
		p.batch = p.take()
		if p.batch == nil {
			return
		}
		if err := worker.Process(p.ctx, p.stop, p.deliveries()); err != nil {
			return // stopped, or cut off: what is not done will be delivered again
		}
	}
}

func (p *partition[T]) deliveries() []consumer.Delivery {
	all := make([]consumer.Delivery, len(p.batch))
	for i, r := range p.batch {
		all[i] = consumer.NewDelivery(eventOf(p.cfg.Group, r), p.cfg.EventID)
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
	limit := max(backlogBatches*p.cfg.BatchSize, backlogRecords)
	return len(p.backlog) > limit/part || p.bytes > backlogBytes/part
}

func size(r *kgo.Record) int { return len(r.Key) + len(r.Value) + 64 }

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
	return p.dead.publish(ctx, p.batch[0], l)
}

// Waiting pauses fetching while the worker waits for a retry or an outage.
func (p *partition[T]) Waiting(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setPause(pauseWaiting, on)
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
