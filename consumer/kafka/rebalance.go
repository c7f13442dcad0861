package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncemore/consumer"
)

// assigned starts a goroutine for each new partition.
func (c *Consumer[T]) assigned(_ context.Context, client *kgo.Client, which map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range flatten(which) {
		p := newPartition(id, c, client)
		c.partitions[id] = p
		c.owned.Store(int64(len(c.partitions)))
		if c.gate.Closed() {
			p.request(true)
		}
		go p.run(&c.meter, &c.gate)
	}
}

// revoked finishes what is under way and commits it: the next owner starts there.
func (c *Consumer[T]) revoked(_ context.Context, client *kgo.Client, which map[string][]int32) {
	c.giveBack(client, c.pick(which), true)
}

// lost discards: another member owns the partitions already, so that a commit of
// ours would come too late. What a transaction still does is a duplicate there.
func (c *Consumer[T]) lost(_ context.Context, client *kgo.Client, which map[string][]int32) {
	if gone := c.pick(which); len(gone) > 0 {
		c.evicted.Add(1)
		c.giveBack(client, gone, false)
	}
}

// giveBack ends the partitions' workers, within the finish time-out when they
// may commit, at once when not, and forgets the partitions.
func (c *Consumer[T]) giveBack(client *kgo.Client, gone []*partition[T], commit bool) {
	for _, p := range gone {
		p.halt()
		if !commit {
			p.cancel()
		}
	}
	c.awaitEnd(gone)
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	if commit {
		c.save(context.Background(), client, gone)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range gone {
		if c.partitions[p.id] == p {
			delete(c.partitions, p.id)
		}
	}
	c.owned.Store(int64(len(c.partitions)))
}

// cutGrace is what a cut-off transaction gets for its rollback.
const cutGrace = 2 * time.Second

// awaitEnd waits for the workers; those that take too long are cut off, and
// left behind if their handler ignores even that.
func (c *Consumer[T]) awaitEnd(gone []*partition[T]) {
	deadline := time.After(c.opts.FinishTimeout)
	for _, p := range gone {
		select {
		case <-p.ended:
		case <-deadline:
			c.cutOff(gone)
			return
		}
	}
	for _, p := range gone {
		p.cancel()
	}
}

func (c *Consumer[T]) cutOff(gone []*partition[T]) {
	for _, p := range gone {
		p.cancel()
	}
	deadline := time.After(cutGrace)
	for _, p := range gone {
		select {
		case <-p.ended:
		case <-deadline:
			c.cfg.Logger.Error("handler ignores the end of its context, partition is given back without it",
				"consumer_group", c.cfg.Group, "topic", p.id.Topic, "partition", p.id.Partition)
			return
		}
	}
}

func (c *Consumer[T]) pick(which map[string][]int32) []*partition[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	var picked []*partition[T]
	for _, id := range flatten(which) {
		if p := c.partitions[id]; p != nil {
			picked = append(picked, p)
		}
	}
	return picked
}

func (c *Consumer[T]) all() []*partition[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*partition[T], 0, len(c.partitions))
	for _, p := range c.partitions {
		all = append(all, p)
	}
	return all
}

func flatten(which map[string][]int32) []consumer.Partition {
	var ids []consumer.Partition
	for topic, partitions := range which {
		for _, n := range partitions {
			ids = append(ids, consumer.Partition{Topic: topic, Partition: n})
		}
	}
	return ids
}
