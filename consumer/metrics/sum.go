package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"oncemore/consumer"
)

// summed is the status of a group's members in this process.
type summed struct {
	consumer.Status
	states map[consumer.State]int
}

func (s *summed) add(m consumer.Status) {
	s.Consumed += m.Consumed
	s.Duplicates += m.Duplicates
	s.Filtered += m.Filtered
	s.Retried += m.Retried
	s.DeadLettered += m.DeadLettered
	s.Discarded += m.Discarded
	s.Transactions += m.Transactions
	s.Fallbacks += m.Fallbacks
	s.Contention += m.Contention
	s.StaleAcks += m.StaleAcks
	s.Reconnects += m.Reconnects
	s.Assigned = append(s.Assigned, m.Assigned...)
	s.BatchSize, s.ClaimSeconds = plus(s.BatchSize, m.BatchSize), plus(s.ClaimSeconds, m.ClaimSeconds)
	s.states[m.State]++
	if m.LastErrorAt.After(s.LastErrorAt) {
		s.LastErrorAt = m.LastErrorAt
	}
}

func plus(a, b consumer.Histogram) consumer.Histogram {
	if len(a.Bounds) == 0 {
		return b
	}
	counts := slices.Clone(a.Counts)
	for i := range counts {
		counts[i] += b.Counts[i]
	}
	return consumer.Histogram{Bounds: a.Bounds, Counts: counts, Count: a.Count + b.Count, Sum: a.Sum + b.Sum}
}

func (s *summed) collect(out chan<- prometheus.Metric) {
	for _, r := range []struct {
		name string
		n    int64
	}{
		{"consumed", s.Consumed}, {"duplicate_store", s.Duplicates - s.Filtered}, {"duplicate_filter", s.Filtered},
		{"discarded", s.Discarded}, {"dead_lettered", s.DeadLettered},
	} {
		counter(out, deliveries, r.n, s.Group, r.name)
	}
	counter(out, retried, s.Retried, s.Group)
	counter(out, transactions, s.Transactions, s.Group)
	counter(out, fallbacks, s.Fallbacks, s.Group)
	counter(out, contention, s.Contention, s.Group)
	counter(out, staleAcks, s.StaleAcks, s.Group)
	counter(out, reconnects, s.Reconnects, s.Group)
	histogram(out, batchSize, s.BatchSize, s.Group)
	histogram(out, claimSeconds, s.ClaimSeconds, s.Group)
	gauge(out, assigned, float64(len(s.Assigned)), s.Group)
	for _, st := range []consumer.State{consumer.Running, consumer.Paused, consumer.Waiting, consumer.Stopped} {
		gauge(out, state, float64(s.states[st]), s.Group, string(st))
	}
	if !s.LastErrorAt.IsZero() {
		gauge(out, lastError, float64(s.LastErrorAt.UnixMilli())/1000, s.Group)
	}
}

func counter(out chan<- prometheus.Metric, d *prometheus.Desc, n int64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func gauge(out chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func histogram(out chan<- prometheus.Metric, d *prometheus.Desc, h consumer.Histogram, labels ...string) {
	buckets := make(map[float64]uint64, len(h.Bounds))
	for i, bound := range h.Bounds {
		buckets[bound] = uint64(h.Counts[i])
	}
	out <- prometheus.MustNewConstHistogram(d, uint64(h.Count), h.Sum, buckets, labels...)
}

func number(n int32) string { return strconv.Itoa(int(n)) }
