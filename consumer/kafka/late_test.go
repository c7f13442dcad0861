package kafka

import (
	"context"
	"slices"
	"testing"
	"time"

	"oncemore/consumer"
	"oncemore/consumer/pgstore"
)

// lateStore hands over the answers to its commits only when it is released,
// whatever their contexts say.
type lateStore struct {
	consumer.Store[pgstore.Tx]
	release chan struct{}
}

func (s lateStore) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[pgstore.Tx], error) {
	c, err := s.Store.Claim(ctx, group, ids)
	return lateClaim{c, s.release}, err
}

type lateClaim struct {
	consumer.Claim[pgstore.Tx]
	release chan struct{}
}

func (c lateClaim) Commit(ctx context.Context) error {
	err := c.Claim.Commit(ctx)
	<-c.release
	return err
}

// A member learns of a commit after its partition was revoked and given to
// another, which is further on: the late offset must not take the group back.
func TestCommitAfterRevokeTakesNothingBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, addr string) {
		const each = 5
		s := openShop(t, addr, 2)
		for i := range 2 * each {
			s.publish(paymentOn(i, i%2))
		}
		cfg := s.config()
		cfg.BatchSize = 1
		late := cfg
		store := lateStore{cfg.Store, make(chan struct{})}
		late.Store = store
		opts := options(addr, s.topic) // nobody is to be put out of the group meanwhile
		opts.SessionTimeout, opts.RebalanceTimeout = 10*time.Second, 30*time.Second
		first := s.runWith(late, opts)
		s.await("both partitions are in the middle of a transaction", func() bool { return s.records() == 2 })
		second := s.runWith(cfg, opts)
		var moved int32
		s.await("one partition moves", func() bool {
			for _, p := range second.Status().Assigned {
				if p.Topic == s.topic {
					moved = p.Partition
				}
			}
			return len(second.Status().Assigned) > 0 && committed(t, s.client(t), s.group, s.topic)[moved] == each
		})
		close(store.release)
		s.await("the first goes on with the other", func() bool { return first.Status().Consumed >= each })
		s.holds(3*commitRetry, "the offset stays", func() bool { return committed(t, s.client(t), s.group, s.topic)[moved] == each })
		s.settled(2 * each)
		if s.records() != 2*each || slices.ContainsFunc(first.Status().Assigned, func(p consumer.Partition) bool { return p.Topic == s.topic && p.Partition == moved }) {
			t.Errorf("%d records; the first member has %v", s.records(), first.Status().Assigned)
		}
		if d := second.Status().Duplicates; d != 1 {
			t.Errorf("%d duplicates at the second member, want the one that was committed late", d)
		}
	})
}
