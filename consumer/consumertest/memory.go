package consumertest

import (
	"context"
	"sync"

	"oncemore/consumer"
)

// Memory keeps consume records in memory, for handlers whose effect is not in a
// database: there is nothing that it could roll back. It is safe for concurrent
// use; of transactions that claim one id, or lock one key, at the same time, the
// later ones get contention.
type Memory[T any] struct {
	tx T

	mu      sync.Mutex
	records map[record]bool // true: committed, false: claimed
	keys    map[string]bool // locked
}

type record struct{ group, id string }

// NewMemory makes a store whose transactions hand tx to every handler.
func NewMemory[T any](tx T) *Memory[T] {
	return &Memory[T]{tx: tx, records: map[record]bool{}, keys: map[string]bool{}}
}

// Has reports whether the group has consumed the event.
func (m *Memory[T]) Has(group, eventID string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[record{group, eventID}]
}

// Check is always content.
func (m *Memory[T]) Check(context.Context, string) error { return nil }

// Claim implements consumer.Store.
func (m *Memory[T]) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[T], error) {
	return m.ClaimKeys(ctx, group, ids, nil)
}

// ClaimKeys implements consumer.KeyStore.
func (m *Memory[T]) ClaimKeys(_ context.Context, group string, ids, keys []string) (consumer.Claim[T], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &memoryClaim[T]{store: m, group: group, fresh: map[string]bool{}}
	for _, key := range keys {
		if m.keys[key] {
			c.undo()
			return nil, consumer.Contention(errClaimed)
		}
		m.keys[key] = true
		c.keys = append(c.keys, key)
	}
	for _, id := range ids {
		committed, there := m.records[record{group, id}]
		if there && !committed {
			c.undo()
			return nil, consumer.Contention(errClaimed)
		}
		if !there {
			m.records[record{group, id}] = false
			c.fresh[id] = true
		}
	}
	return c, nil
}

// Unrecorded implements consumer.Unrecorder: every id is fresh.
func (m *Memory[T]) Unrecorded() consumer.Store[T] { return unrecorded[T]{m} }

// unrecorded is a Memory that only locks keys.
type unrecorded[T any] struct{ *Memory[T] }

// Claim begins a transaction without records.
func (u unrecorded[T]) Claim(ctx context.Context, group string, ids []string) (consumer.Claim[T], error) {
	return u.ClaimKeys(ctx, group, ids, nil)
}

// ClaimKeys locks the keys.
func (u unrecorded[T]) ClaimKeys(ctx context.Context, group string, _, keys []string) (consumer.Claim[T], error) {
	claim, err := u.Memory.ClaimKeys(ctx, group, nil, keys)
	if err != nil {
		return nil, err
	}
	return allFresh[T]{claim}, nil
}

type allFresh[T any] struct{ consumer.Claim[T] }

// Fresh is always true.
func (allFresh[T]) Fresh(string) bool { return true }

type memoryClaim[T any] struct {
	store *Memory[T]
	group string
	fresh map[string]bool
	keys  []string
	ended bool
}

func (c *memoryClaim[T]) Fresh(id string) bool  { return c.fresh[id] }
func (c *memoryClaim[T]) Tx() T                 { return c.store.tx }
func (c *memoryClaim[T]) Blame(err error) error { return err }

func (c *memoryClaim[T]) Commit(context.Context) error {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	c.ended = true
	for id := range c.fresh {
		c.store.records[record{c.group, id}] = true
	}
	c.unlock()
	return nil
}

func (c *memoryClaim[T]) Rollback(context.Context) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if !c.ended {
		c.undo()
	}
}

// undo gives the ids back; the store is locked.
func (c *memoryClaim[T]) undo() {
	c.ended = true
	for id := range c.fresh {
		delete(c.store.records, record{c.group, id})
	}
	c.unlock()
}

func (c *memoryClaim[T]) unlock() {
	for _, key := range c.keys {
		delete(c.store.keys, key)
	}
}
