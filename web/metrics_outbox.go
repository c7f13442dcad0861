package web

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	outboxPendingDesc = prometheus.NewDesc("oncemore_outbox_pending_rows", "Rows of an outbox that are not sent; counting ends at 100,000.", []string{"outbox"}, nil)
	outboxOldestDesc  = prometheus.NewDesc("oncemore_outbox_oldest_pending_seconds", "Age of the oldest of them, by the database's clock; 0 with none.", []string{"outbox"}, nil)
	outboxDeadDesc    = prometheus.NewDesc("oncemore_outbox_dead_rows", "Rows that the broker refused for good; each holds back its key.", []string{"outbox"}, nil)
)

// outboxes reads what each outbox says; one that does not answer is left out.
func (c collector) outboxes(ctx context.Context, out chan<- prometheus.Metric) {
	if c.s.Outboxes == nil {
		return
	}
	for _, o := range c.s.Outboxes.All() {
		stats, err := o.Read.Stats(ctx)
		if err != nil {
			c.s.Logger.Warn("outbox not read for the metrics", "outbox", o.Name(), "error", err)
			continue
		}
		gauge(out, outboxPendingDesc, stats.Pending, o.Name())
		gauge(out, outboxDeadDesc, stats.Dead, o.Name())
		out <- prometheus.MustNewConstMetric(outboxOldestDesc, prometheus.GaugeValue, stats.Oldest.Seconds(), o.Name())
	}
}
