// Package metrics shows consumers and outboxes to Prometheus, for services that
// embed the library. The library itself does not import it.
//
//	registry.MustRegister(metrics.Consumers(time.Second, points, stock))
//	registry.MustRegister(metrics.Outbox("orders", time.Second, box.Stats))
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"oncemore/consumer"
	"oncemore/consumer/outbox"
)

var group = []string{"consumer_group"}

var (
	deliveries   = desc("consumer_deliveries_total", "Deliveries that are finished, by what became of them: consumed, duplicate_store and duplicate_filter (recognised in the database or by the filter before it), discarded, dead_lettered.", "result")
	retried      = desc("consumer_retries_total", "Attempts that failed and were, or will be, repeated.")
	transactions = desc("consumer_transactions_total", "Committed transactions.")
	batchSize    = desc("consumer_batch_size", "Deliveries of committed transactions.")
	claimSeconds = desc("consumer_claim_seconds", "From BEGIN until records and keys were claimed: waits for locks of other transactions show here.")
	fallbacks    = desc("consumer_fallbacks_total", "Batches rolled back for an event of theirs, whose deliveries then ran alone.")
	contention   = desc("consumer_contention_total", "Transactions repeated for contention: deadlocks, lock time-outs.")
	staleAcks    = desc("consumer_stale_acks_total", "RabbitMQ: deliveries finished after their channel was lost, acknowledged when they come again.")
	reconnects   = desc("consumer_reconnects_total", "RabbitMQ: connections made anew. Kafka: memberships of the group that were lost.")
	state        = desc("consumer_state", "Members of this process by the state that they are in.", "state")
	assigned     = desc("consumer_assigned_partitions", "Partitions, or queues, that the consumer owns.")
	lastError    = desc("consumer_last_error_timestamp_seconds", "When the last error was; absent without one.")
	lag          = desc("consumer_lag", "Records between the committed offset and the end; RabbitMQ: messages of the queue that are not finished. Absent if the broker does not answer.", "topic", "partition")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, append(group[:1:1], labels...), nil)
}

type consumers struct {
	timeout time.Duration
	runners []consumer.Runner
}

// Consumers collects what the consumers of this process do. Members of one group
// are summed. Their brokers are asked for the lag at each scrape, for at most
// timeout all together; 0 is a second, negative asks none.
func Consumers(timeout time.Duration, runners ...consumer.Runner) prometheus.Collector {
	if timeout == 0 {
		timeout = time.Second
	}
	return consumers{timeout, runners}
}

// Describe is empty: which partitions there are changes.
func (c consumers) Describe(chan<- *prometheus.Desc) {}

// Collect reads the figures.
func (c consumers) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.groups() {
		s.collect(out)
	}
	if c.timeout > 0 {
		c.lags(out)
	}
}

// groups are the statuses, one for each group in the order of the runners.
func (c consumers) groups() []*summed {
	var all []*summed
	byName := map[string]*summed{}
	for _, r := range c.runners {
		status := r.Status()
		if byName[status.Group] == nil {
			byName[status.Group] = &summed{Status: consumer.Status{Group: status.Group}, states: map[consumer.State]int{}}
			all = append(all, byName[status.Group])
		}
		byName[status.Group].add(status)
	}
	return all
}

// lags asks one member of each group: what it says is the whole group's.
func (c consumers) lags(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	asked := map[string]bool{}
	for _, r := range c.runners {
		name := r.Status().Group
		if asked[name] {
			continue
		}
		positions, err := r.Lag(ctx)
		if err != nil {
			continue // the next member may know
		}
		asked[name] = true
		for _, p := range positions {
			gauge(out, lag, float64(p.Lag), name, p.Topic, number(p.Partition.Partition))
		}
	}
}

// Outbox collects the figures of an outbox under a name. read is (*outbox.Box).Stats;
// it gets at most timeout, 0 is a second. An outbox that does not answer is left out.
func Outbox(name string, timeout time.Duration, read func(context.Context) (outbox.Stats, error)) prometheus.Collector {
	if timeout == 0 {
		timeout = time.Second
	}
	return box{name, timeout, read}
}

type box struct {
	name    string
	timeout time.Duration
	read    func(context.Context) (outbox.Stats, error)
}

var (
	pending = prometheus.NewDesc("outbox_pending_rows", "Rows that are not sent; counting ends at 100,000.", []string{"outbox"}, nil)
	oldest  = prometheus.NewDesc("outbox_oldest_pending_seconds", "Age of the oldest of them, by the database's clock; 0 with none.", []string{"outbox"}, nil)
	dead    = prometheus.NewDesc("outbox_dead_rows", "Rows that the broker refused for good; each holds back its key.", []string{"outbox"}, nil)
)

// Describe names the three metrics.
func (b box) Describe(out chan<- *prometheus.Desc) {
	out <- pending
	out <- oldest
	out <- dead
}

// Collect asks the outbox.
func (b box) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	s, err := b.read(ctx)
	if err != nil {
		return
	}
	gauge(out, pending, float64(s.Pending), b.name)
	gauge(out, oldest, s.Oldest.Seconds(), b.name)
	gauge(out, dead, float64(s.Dead), b.name)
}
