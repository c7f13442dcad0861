package dlq

import (
	"context"
	"fmt"
	"sync"
)

// sendResult is what the broker said of one message.
type sendResult struct {
	partition int32 // -1: a queue has none
	offset    int64
	err       error // nil: confirmed
	surely    bool  // err means that the broker did not take it
	partly    bool  // err means that not every queue took it; some may have
}

// refused reports whether the broker surely did not take the message.
func (r *sendResult) refused() bool { return r.err != nil && r.surely }

// connect makes the senders that the chunk needs before its intent is committed.
func (s *step) connect(_ context.Context, c *chunk) error {
	for _, it := range c.going() {
		if _, err := s.sender(it.message.cluster); err != nil {
			return err
		}
	}
	return nil
}

func (s *step) sender(cluster string) (sender, error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	if snd := s.senders[cluster]; snd != nil {
		return snd, nil
	}
	on := s.r.clusters[cluster]
	if on == nil {
		return nil, fmt.Errorf("cluster %s is not configured", cluster)
	}
	snd, err := on.broker.newSender(s.r.opts.SendTimeout)
	if err != nil {
		return nil, err
	}
	if s.senders == nil {
		s.senders = map[string]sender{}
	}
	s.senders[cluster] = snd
	return snd, nil
}

// publish sends what the chunk claimed, in order, each cluster's side by side,
// and waits for the brokers' answers until the chunk's time is over. Then the
// senders that have not answered are closed: what came of their messages is for
// the search to say.
func (s *step) publish(ctx context.Context, c *chunk) {
	ctx, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	going := c.going()
	ctx, sent := traceSending(ctx, nil, s.id, going)
	defer sent()
	to := map[string][]*sendItem{}
	for _, it := range going {
		to[it.message.cluster] = append(to[it.message.cluster], it)
	}
	var answers sync.WaitGroup
	for cluster, items := range to {
		snd, err := s.sender(cluster)
		if err != nil {
			for _, it := range items {
				it.result = &sendResult{err: err}
			}
			continue
		}
		answers.Go(func() {
			if !snd.send(ctx, items) {
				return
			}
			s.sending.Lock()
			defer s.sending.Unlock()
			snd.close()
			delete(s.senders, cluster)
		})
	}
	answers.Wait()
}

func (c *chunk) going() []*sendItem {
	var going []*sendItem
	for _, it := range c.items {
		if it.goes() {
			going = append(going, it)
		}
	}
	return going
}

func (s *step) dropSenders() {
	for _, snd := range s.senders {
		snd.close()
	}
	s.senders = nil
}

// readEnds reads where the places that the chunk sends to end now, and settles
// each message's partition: the one it came from, if it is there.
func (s *step) readEnds(ctx context.Context, c *chunk) error {
	c.ends = endOffsets{}
	missing := map[int32]bool{}
	for _, it := range c.going() {
		target := c.targets[it.targetID]
		if _, asked := c.ends[target.ID]; !asked {
			cluster := s.r.clusters[target.Cluster]
			if cluster == nil {
				return fmt.Errorf("cluster %s is not configured", target.Cluster)
			}
			ends, there, err := cluster.broker.places(ctx, target)
			if err != nil {
				return fmt.Errorf("ends of %s: %w", target.Topic, err)
			}
			c.ends[target.ID], missing[target.ID] = ends, !there
		}
		if missing[target.ID] {
			it.leave(reason("reason.unknown.target_missing", "topic", target.Topic))
			continue
		}
		it.message.settle(c.ends[target.ID])
	}
	return nil
}
