package web

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	runsDesc      = prometheus.NewDesc("oncemore_reconcile_runs", "Runs by job and state.", []string{"job", "state"}, nil)
	openBreakDesc = prometheus.NewDesc("oncemore_reconcile_open_breaks", "Outstanding breaks of a job, timing left out.", []string{"job"}, nil)
	oldBreakDesc  = prometheus.NewDesc("oncemore_reconcile_oldest_break_seconds", "How long the oldest outstanding break of a job is open; absent where none is.", []string{"job"}, nil)
	riskDesc      = prometheus.NewDesc("oncemore_reconcile_amount_at_risk", "Outstanding amount without signs, by currency. A float: for graphs and limits, not for books.", []string{"job", "currency"}, nil)
	overdueDesc   = prometheus.NewDesc("oncemore_reconcile_overdue_seconds", "How late the next run of a job is; absent for jobs without a schedule and paused ones.", []string{"job"}, nil)
)

// reconciliations tells how the jobs stand.
func (c collector) reconciliations(ctx context.Context, out chan<- prometheus.Metric) {
	if c.s.Reconcile.Jobs == nil {
		return
	}
	standings, err := c.s.Reconcile.Jobs.Standings(ctx)
	if err != nil {
		c.s.Logger.Warn("jobs not read for the metrics", "error", err)
		return
	}
	now := c.s.Clock()
	for _, s := range standings {
		gauge(out, openBreakDesc, s.Open(), s.Job)
		if s.Oldest != nil {
			gauge(out, oldBreakDesc, int64(now.Sub(*s.Oldest)/time.Second), s.Job)
		}
		if s.DueAt != nil {
			gauge(out, overdueDesc, int64(s.Overdue(now)/time.Second), s.Job)
		}
		for currency, line := range s.AtRisk {
			out <- prometheus.MustNewConstMetric(riskDesc, prometheus.GaugeValue, line.Amount.InexactFloat64(), s.Job, currency)
		}
	}
	counts, err := c.s.Reconcile.Runs.Counts(ctx)
	if err != nil {
		c.s.Logger.Warn("runs not counted for the metrics", "error", err)
		return
	}
	for _, n := range counts {
		gauge(out, runsDesc, n.N, n.Job, n.State.String())
	}
}
