package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncemore/consumer"
)

const (
	commitTimeout = 5 * time.Second
	commitEvery   = 50 * time.Millisecond  // a busy consumer gathers what it commits
	commitRetry   = 500 * time.Millisecond // after a commit that failed
)

// moved tells the committer that an offset may be saved.
func (c *Consumer[T]) moved() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// commitLoop saves offsets as they move, one commit at a time.
func (c *Consumer[T]) commitLoop(ctx context.Context, client *kgo.Client) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.dirty:
		}
		pause := commitEvery
		if !c.commitNow(ctx, client) {
			c.moved() // ask again; a rebalance may have refused it
			pause = commitRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (c *Consumer[T]) commitNow(ctx context.Context, client *kgo.Client) bool {
	c.commitMu.Lock()
	defer c.commitMu.Unlock()
	return c.save(ctx, client, c.all())
}

// save commits what the partitions have finished, with commitMu held. It
// reports whether the broker has confirmed all of it.
func (c *Consumer[T]) save(ctx context.Context, client *kgo.Client, partitions []*partition[T]) bool {
	offsets := map[consumer.Partition]kgo.EpochOffset{}
	for _, p := range partitions {
		if o, moved := p.unsaved(); moved {
			offsets[p.id] = o
		}
	}
	if len(offsets) == 0 {
		return true
	}
	confirmed := c.commit(ctx, client, offsets)
	for _, p := range partitions {
		if confirmed[p.id] {
			p.setSaved(offsets[p.id])
		}
	}
	return len(confirmed) == len(offsets)
}

// commit sends the offsets and returns those partitions whose offset the broker
// has confirmed.
func (c *Consumer[T]) commit(ctx context.Context, client *kgo.Client, offsets map[consumer.Partition]kgo.EpochOffset) map[consumer.Partition]bool {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	confirmed := map[consumer.Partition]bool{}
	client.CommitOffsetsSync(ctx, byTopic(offsets), func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			c.cfg.Logger.Debug("offset commit failed", "consumer_group", c.cfg.Group, "error", err)
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if kerr.ErrorForCode(p.ErrorCode) == nil {
					confirmed[consumer.Partition{Topic: t.Topic, Partition: p.Partition}] = true
				}
			}
		}
	})
	return confirmed
}

func byTopic(offsets map[consumer.Partition]kgo.EpochOffset) map[string]map[int32]kgo.EpochOffset {
	topics := map[string]map[int32]kgo.EpochOffset{}
	for id, o := range offsets {
		if topics[id.Topic] == nil {
			topics[id.Topic] = map[int32]kgo.EpochOffset{}
		}
		topics[id.Topic][id.Partition] = o
	}
	return topics
}
