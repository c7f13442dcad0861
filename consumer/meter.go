package consumer

import (
	"sync"
	"sync/atomic"
	"time"
)

// Meter counts what a consumer's workers do. Its zero value is ready.
type Meter struct {
	consumed, duplicates, filtered, retried, deadLettered, discarded, contention atomic.Int64

	mu          sync.Mutex
	lastError   string
	lastErrorAt time.Time
}

// Note keeps err as the last error.
func (m *Meter) Note(err error, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastError, m.lastErrorAt = err.Error(), at
}

// Fill writes the counters and the last error into a status.
func (m *Meter) Fill(s *Status) {
	s.Consumed, s.Duplicates = m.consumed.Load(), m.duplicates.Load()
	s.Filtered = m.filtered.Load()
	s.Retried, s.DeadLettered = m.retried.Load(), m.deadLettered.Load()
	s.Discarded, s.Contention = m.discarded.Load(), m.contention.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	s.LastError, s.LastErrorAt = m.lastError, m.lastErrorAt
}
