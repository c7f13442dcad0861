package consumertest

import (
	"context"
	"errors"

	"oncemore/consumer"
)

// faultyStore fails on request.
type faultyStore[T any] struct {
	consumer.Store[T]
	fail, lose int // how many of the next transactions
}

func (s *faultyStore[T]) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[T], error) {
	claim, err := s.Store.Claim(ctx, group, ids)
	if err != nil {
		return nil, err
	}
	return &faultyClaim[T]{Claim: claim, store: s}, nil
}

// ClaimKeys locks the keys as the store does.
func (s *faultyStore[T]) ClaimKeys(ctx context.Context, group string, ids, keys []string) (consumer.Claim[T], error) {
	store, ok := s.Store.(consumer.KeyStore[T])
	if !ok {
		return nil, errors.New("consumertest: the store cannot lock keys")
	}
	claim, err := store.ClaimKeys(ctx, group, ids, keys)
	if err != nil {
		return nil, err
	}
	return &faultyClaim[T]{Claim: claim, store: s}, nil
}

type faultyClaim[T any] struct {
	consumer.Claim[T]
	store *faultyStore[T]
}

func (c *faultyClaim[T]) Commit(ctx context.Context) error {
	if c.store.fail > 0 {
		c.store.fail--
		return ErrInjected // Rollback follows
	}
	if err := c.Claim.Commit(ctx); err != nil {
		return err
	}
	if c.store.lose > 0 {
		c.store.lose--
		return consumer.Unavailable(errLost)
	}
	return nil
}

var (
	errLost    = errors.New("consumertest: the answer to COMMIT was lost")
	errClaimed = errors.New("consumertest: another transaction has claimed the event")
)
