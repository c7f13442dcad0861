package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"oncemore/consumer"
)

// Pause lets running transactions finish and starts no more; the consumer keeps
// polling and stays in its group.
func (c *Consumer[T]) Pause() {
	c.gate.Close()
	for _, p := range c.all() {
		p.request(true)
	}
}

// Resume goes on after Pause.
func (c *Consumer[T]) Resume() {
	c.gate.Open()
	for _, p := range c.all() {
		p.request(false)
	}
}

// Status is what the consumer is doing now.
func (c *Consumer[T]) Status() consumer.Status {
	s := consumer.Status{Group: c.cfg.Group, Topics: topics{group: c.cfg.Group, opts: c.opts, retries: c.retries}.subscribed(),
		Assigned: []consumer.Partition{}, Reconnects: c.evicted.Load()}
	c.meter.Fill(&s)
	waiting := false
	for _, p := range c.all() {
		s.Assigned = append(s.Assigned, p.id)
		waiting = waiting || p.waiting()
	}
	slices.SortFunc(s.Assigned, byName)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Started = c.started
	s.State = c.state(waiting || c.preparing)
	return s
}

func (c *Consumer[T]) state(waiting bool) consumer.State {
	switch {
	case !c.running:
		return consumer.Stopped
	case c.gate.Closed():
		return consumer.Paused
	case waiting:
		return consumer.Waiting
	}
	return consumer.Running
}

func byName(a, b consumer.Partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// errNotRunning is returned by Lag before and after Run.
var errNotRunning = errors.New("kafka: consumer is not running")

// Lag asks the broker how far the whole group is, on all of its topics that exist.
func (c *Consumer[T]) Lag(ctx context.Context) ([]consumer.Position, error) {
	admin := c.admin.Load()
	if admin == nil {
		return nil, errNotRunning
	}
	committed, err := admin.FetchOffsets(ctx, c.cfg.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nothing was committed yet
		return nil, fmt.Errorf("offsets of %s: %w", c.cfg.Group, err)
	}
	names := c.topics.subscribed()
	starts, err := admin.ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("start offsets of %s: %w", c.cfg.Group, err)
	}
	ends, err := admin.ListEndOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", c.cfg.Group, err)
	}
	return positions(committed, starts, ends), nil
}

// positions counts from the log's start where nothing is committed, as the
// consumer will.
func positions(committed kadm.OffsetResponses, starts, ends kadm.ListedOffsets) []consumer.Position {
	var all []consumer.Position
	ends.Each(func(end kadm.ListedOffset) {
		if end.Err != nil {
			return
		}
		p := consumer.Position{Partition: consumer.Partition{Topic: end.Topic, Partition: end.Partition}, Committed: -1, End: end.Offset}
		from := int64(0)
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok {
			from = start.Offset
		}
		if o, ok := committed.Lookup(end.Topic, end.Partition); ok && o.Err == nil && o.At >= 0 {
			p.Committed = o.At
			from = max(from, o.At)
		}
		p.Lag = max(end.Offset-from, 0)
		all = append(all, p)
	})
	slices.SortFunc(all, func(a, b consumer.Position) int { return byName(a.Partition, b.Partition) })
	return all
}
