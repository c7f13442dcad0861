package consumertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"oncemore/consumer"
)

// Consumer is a member of a group on a Broker. It implements consumer.Runner.
type Consumer[T any] struct {
	broker *Broker
	cfg    consumer.Config[T]
	topics []string
	meter  consumer.Meter
	gate   consumer.Gate
	faults faults

	mu      sync.Mutex
	started time.Time
	running bool
	work    sync.WaitGroup
	jobs    map[consumer.Partition]*job
	crashes int64
}

var _ consumer.Runner = (*Consumer[any])(nil)

// NewConsumer makes a member of cfg.Group that reads the topics, with the config
// and the clock of the service. See Start for tests that need no more.
func NewConsumer[T any](b *Broker, cfg consumer.Config[T], topics ...string) (*Consumer[T], error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	if len(topics) == 0 {
		return nil, errors.New("consumertest: a topic is required")
	}
	c := &Consumer[T]{broker: b, cfg: cfg, topics: append(slices.Clone(topics), cfg.Group+".replay"), jobs: map[consumer.Partition]*job{}}
	c.cfg.Store = faultyStore[T]{cfg.Store, &c.faults}
	b.subscribe(cfg.Group, c.topics) // from now on Wait waits for the group
	return c, nil
}

// Start runs a member until the test ends. Pauses take no time, by a Clock, unless
// the config has a clock; nothing is logged unless it has a logger.
func Start[T any](t testing.TB, b *Broker, cfg consumer.Config[T], topics ...string) *Consumer[T] {
	t.Helper()
	cfg, err := ready(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewConsumer(b, cfg, topics...)
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Store.Check(t.Context(), cfg.Group); err != nil {
		t.Fatal(err)
	}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { c.lives(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// Crash lets the member's process die at that point, the next times that it comes
// there. A new one begins at once, where the acknowledgements ended.
func (c *Consumer[T]) Crash(at Point, times int) { c.faults.plan(at, times) }

// finishTimeout is what a transaction under way gets when the member stops.
const finishTimeout = 2 * time.Second

// Run consumes until ctx ends. A transaction under way gets two seconds then. It
// returns nil after that, and an error for a second call.
func (c *Consumer[T]) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	c.lives(ctx)
	return nil
}

// begin joins the group.
func (c *Consumer[T]) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started.IsZero() {
		return errors.New("consumertest: consumer runs already, or has run")
	}
	c.started, c.running = c.cfg.Now(), true
	c.broker.join(c.cfg.Group, c)
	return nil
}

// lives runs one life after another; all but the last end with a crash.
func (c *Consumer[T]) lives(ctx context.Context) {
	defer c.end()
	for c.live(ctx) {
		c.mu.Lock()
		c.crashes++
		c.mu.Unlock()
	}
}

func (c *Consumer[T]) end() {
	c.broker.leave(c.cfg.Group, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
}

// live works on what is assigned until ctx ends, or the process dies: true.
func (c *Consumer[T]) live(ctx context.Context) (died bool) {
	alive, die := context.WithCancel(context.WithoutCancel(ctx))
	defer die()
	c.faults.live(die)
	for {
		mine, changed := c.broker.assigned(c.cfg.Group, c)
		c.follow(alive, mine)
		select {
		case <-changed:
		case <-alive.Done():
			c.stopAll()
			return true
		case <-ctx.Done():
			time.AfterFunc(finishTimeout, die)
			c.stopAll()
			return false
		}
	}
}

// follow begins to work on new partitions and stops with those of others. The next
// owner waits until the work has ended.
func (c *Consumer[T]) follow(alive context.Context, mine map[consumer.Partition]chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, j := range c.jobs {
		if mine[id] == nil {
			close(j.stop)
			delete(c.jobs, id)
		}
	}
	for id, lane := range mine {
		if c.jobs[id] == nil {
			c.jobs[id] = &job{stop: make(chan struct{})}
			j := c.jobs[id]
			c.work.Go(func() { c.attend(alive, id, lane, j) })
		}
	}
}

func (c *Consumer[T]) stopAll() {
	c.mu.Lock()
	for _, j := range c.jobs {
		close(j.stop)
	}
	clear(c.jobs)
	c.mu.Unlock()
	c.work.Wait()
}

// job is the work on one partition.
type job struct {
	stop  chan struct{}
	mu    sync.Mutex
	waits bool
}

// attend handles a partition's events in order until it is stopped or dies.
func (c *Consumer[T]) attend(ctx context.Context, id consumer.Partition, lane chan struct{}, j *job) {
	select {
	case lane <- struct{}{}:
		defer func() { <-lane }()
	case <-j.stop:
		return
	case <-ctx.Done():
		return
	}
	port := &lanePort[T]{c: c, id: id, job: j}
	worker := consumer.NewWorker(c.cfg, port, &c.meter, &c.gate)
	for {
		events, twice := c.broker.batch(ctx, j.stop, c.cfg.Group, id, c.cfg.BatchSize)
		if events == nil || worker.Process(ctx, j.stop, c.deliveries(events)) != nil || ctx.Err() != nil {
			return
		}
		if twice && !port.again(func() error { return worker.Process(ctx, j.stop, c.deliveries(events)) }) {
			return
		}
	}
}

func (c *Consumer[T]) deliveries(events []consumer.Event) []consumer.Delivery {
	all := make([]consumer.Delivery, len(events))
	for i, ev := range events {
		ev.Group = c.cfg.Group
		all[i] = consumer.NewDelivery(ev, c.cfg.EventID)
	}
	return all
}

// lanePort is the worker's broker for one partition.
type lanePort[T any] struct {
	c      *Consumer[T]
	id     consumer.Partition
	job    *job
	repeat bool // delivered again: acknowledged before
}

func (p *lanePort[T]) again(process func() error) bool {
	p.repeat = true
	defer func() { p.repeat = false }()
	return process() == nil
}

// Done acknowledges, unless the process dies meanwhile.
func (p *lanePort[T]) Done(n int) {
	if p.repeat {
		return
	}
	p.c.broker.acknowledge(p.c.cfg.Group, p.id, p.c.faults.acknowledged(n))
}

// DeadLetter keeps the letter; a replay's goes where the origin's would.
func (p *lanePort[T]) DeadLetter(_ context.Context, l consumer.Letter) error {
	topic := l.Topic
	if topic == p.c.cfg.Group+".replay" {
		topic = p.c.topics[0]
	}
	p.c.broker.bury(topic, l)
	return nil
}

// Waiting is shown by Status.
func (p *lanePort[T]) Waiting(on bool) {
	p.job.mu.Lock()
	defer p.job.mu.Unlock()
	p.job.waits = on
}

// System names the broker in traces.
func (p *lanePort[T]) System() string { return "memory" }

// Pause lets running transactions finish and starts no more.
func (c *Consumer[T]) Pause() { c.gate.Close() }

// Resume goes on after Pause.
func (c *Consumer[T]) Resume() { c.gate.Open() }

// Status is what the member is doing; Reconnects counts its crashes.
func (c *Consumer[T]) Status() consumer.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := consumer.Status{Group: c.cfg.Group, Topics: c.topics, Started: c.started, Reconnects: c.crashes, State: consumer.Running, Assigned: []consumer.Partition{}}
	c.meter.Fill(&s)
	for id, j := range c.jobs {
		s.Assigned = append(s.Assigned, id)
		j.mu.Lock()
		if j.waits {
			s.State = consumer.Waiting
		}
		j.mu.Unlock()
	}
	switch {
	case !c.running:
		s.State = consumer.Stopped
	case c.gate.Closed():
		s.State = consumer.Paused
	}
	return s
}

// Lag is the group's, on all partitions that it reads.
func (c *Consumer[T]) Lag(context.Context) ([]consumer.Position, error) {
	return c.broker.positions(c.cfg.Group), nil
}
