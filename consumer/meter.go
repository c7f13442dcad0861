package consumer

import (
	"sync"
	"sync/atomic"
	"time"
)

// Meter counts what a consumer's workers do. Its zero value is ready.
type Meter struct {
	consumed, duplicates, filtered, retried, deadLettered, discarded atomic.Int64
	transactions, fallbacks, contention                              atomic.Int64

	mu          sync.Mutex
	batches     histogram
	claims      histogram
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
	s.Transactions, s.Fallbacks = m.transactions.Load(), m.fallbacks.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	s.BatchSize, s.ClaimSeconds = m.batches.snapshot(batchBounds), m.claims.snapshot(secondBounds)
	s.LastError, s.LastErrorAt = m.lastError, m.lastErrorAt
}

// committed counts a transaction of that many deliveries.
func (m *Meter) committed(deliveries int) {
	m.transactions.Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches.observe(float64(deliveries), batchBounds)
}

// claimed notes how long a claim took, also one that failed.
func (m *Meter) claimed(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claims.observe(took.Seconds(), secondBounds)
}

// Histogram is how many observations were at most each of Bounds, and all of them.
type Histogram struct {
	Bounds []float64 `json:"bounds"` // ascending
	Counts []int64   `json:"counts"` // cumulative, one for each bound
	Count  int64     `json:"count"`
	Sum    float64   `json:"sum"`
}

var (
	batchBounds  = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
	secondBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
)

// histogram has a place for each bound, and one beyond.
type histogram struct {
	counts [14]int64
	sum    float64
}

func (h *histogram) observe(v float64, bounds []float64) {
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

func (h *histogram) snapshot(bounds []float64) Histogram {
	s := Histogram{Bounds: bounds, Counts: make([]int64, len(bounds)), Sum: h.sum}
	for i := range bounds {
		s.Count += h.counts[i]
		s.Counts[i] = s.Count
	}
	s.Count += h.counts[len(bounds)]
	return s
}
