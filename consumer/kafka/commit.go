package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, p := range partitions {
		if o, ok := p.unsaved(); ok {
			if offsets[p.id.Topic] == nil {
				offsets[p.id.Topic] = map[int32]kgo.EpochOffset{}
			}
			offsets[p.id.Topic][p.id.Partition] = o
		}
	}
	if len(offsets) == 0 {
		return true
	}
	confirmed := c.commit(ctx, client, offsets)
	ok := true
	for _, p := range partitions {
		if o, sent := offsets[p.id.Topic][p.id.Partition]; sent {
			if confirmed[p.id.Topic][p.id.Partition] {
				p.setSaved(o)
			} else {
				ok = false
			}
		}
	}
	return ok
}

// commit sends the offsets and returns which ones the broker has confirmed.
func (c *Consumer[T]) commit(ctx context.Context, client *kgo.Client, offsets map[string]map[int32]kgo.EpochOffset) map[string]map[int32]bool {
	confirmed := map[string]map[int32]bool{}
	client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			c.cfg.Logger.Debug("offset commit failed", "consumer_group", c.cfg.Group, "error", err)
			return
		}
		for _, t := range resp.Topics {
			confirmed[t.Topic] = map[int32]bool{}
			for _, p := range t.Partitions {
				confirmed[t.Topic][p.Partition] = kerr.ErrorForCode(p.ErrorCode) == nil
			}
		}
	})
	return confirmed
}
