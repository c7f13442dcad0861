package web

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"oncemore/dlq"
	"oncemore/internal/fleet"
)

var (
	lettersDesc  = prometheus.NewDesc("oncemore_letters", "Letters by state.", []string{"state"}, nil)
	waitingDesc  = prometheus.NewDesc("oncemore_drain_waiting_records", "Records of a dead-letter topic that are not stored yet, as far as this process drains it.", []string{"cluster", "source"}, nil)
	drainedDesc  = prometheus.NewDesc("oncemore_drain_records_total", "Records stored since the start of this process.", []string{"cluster", "source"}, nil)
	groupLagDesc = prometheus.NewDesc("oncemore_consumer_lag_records", "Records between the committed offsets and the ends.", []string{"cluster", "consumer_group"}, nil)
)

// The consumers' counters, all replicas summed.
var (
	recordsDesc      = consumerDesc("records", "Records of a consumer group by result. filtered are duplicates that Redis recognised, counted in duplicate as well; retried are attempts.", "result")
	transactionsDesc = consumerDesc("transactions", "Committed transactions; the records per transaction are the batch size.")
	fallbacksDesc    = consumerDesc("fallbacks", "Batches rolled back for an event of theirs, whose deliveries then ran alone.")
	contentionDesc   = consumerDesc("contention", "Transactions repeated because they lost against others: deadlocks, lock time-outs.")
	staleAcksDesc    = consumerDesc("stale_acks", "RabbitMQ: deliveries finished after their channel was lost, acknowledged when they come again.")
	reconnectsDesc   = consumerDesc("reconnects", "RabbitMQ: connections made anew. Kafka: memberships of the group that were lost.")
)

func consumerDesc(name, help string, more ...string) *prometheus.Desc {
	return prometheus.NewDesc("oncemore_consumer_"+name+"_total", help, append([]string{"cluster", "consumer_group"}, more...), nil)
}

// collector reads the console's numbers when they are scraped. What cannot be
// read is left out, never zero.
type collector struct{ s *Server }

// Describe is empty: which groups and sources there are changes.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads all numbers within five seconds.
func (c collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c.letters(ctx, out)
	for _, status := range c.s.drained() {
		gauge(out, waitingDesc, status.Waiting, status.Cluster, status.Source)
		counter(out, drainedDesc, status.Drained, status.Cluster, status.Source)
	}
	c.consumers(ctx, out)
	c.outboxes(ctx, out)
	c.alerts(ctx, out)
	c.findings(ctx, out)
	c.reconciliations(ctx, out)
	c.compensations(ctx, out)
}

func (c collector) letters(ctx context.Context, out chan<- prometheus.Metric) {
	for name, state := range letterStates {
		n, bounded, err := c.s.Letters.Count(ctx, dlq.LetterFilter{State: state})
		if err != nil || bounded {
			c.s.Logger.Warn("letters not counted for the metrics", "state", name, "error", err)
			return
		}
		gauge(out, lettersDesc, n, name)
	}
}

func (c collector) consumers(ctx context.Context, out chan<- prometheus.Metric) {
	groups, err := c.s.Fleet.Groups(ctx)
	if err != nil {
		c.s.Logger.Warn("consumer groups not read for the metrics", "error", err)
		return
	}
	for _, g := range groups {
		c.figures(out, g)
		if g.Lag != nil {
			gauge(out, groupLagDesc, *g.Lag, g.Cluster, g.Name)
		}
	}
}

// figures are the counters of a group that is ours.
func (c collector) figures(out chan<- prometheus.Metric, g fleet.Group) {
	if g.Consumed == nil {
		return
	}
	for result, n := range map[string]int64{
		"consumed": *g.Consumed, "duplicate": *g.Duplicates, "filtered": *g.Filtered, "retried": *g.Retried,
		"dead_lettered": *g.DeadLettered, "discarded": *g.Discarded,
	} {
		counter(out, recordsDesc, n, g.Cluster, g.Name, result)
	}
	for desc, n := range map[*prometheus.Desc]int64{
		transactionsDesc: *g.Transactions, fallbacksDesc: *g.Fallbacks, contentionDesc: *g.Contention,
		staleAcksDesc: *g.StaleAcks, reconnectsDesc: *g.Reconnects,
	} {
		counter(out, desc, n, g.Cluster, g.Name)
	}
}

func gauge(out chan<- prometheus.Metric, desc *prometheus.Desc, n int64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n), labels...)
}

func counter(out chan<- prometheus.Metric, desc *prometheus.Desc, n int64, labels ...string) {
	out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
}
