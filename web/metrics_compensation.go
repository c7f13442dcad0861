package web

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"oncemore/compensate"
)

var (
	repairsDesc   = prometheus.NewDesc("oncemore_compensations", "Compensations that are not ended, by action and state; 0 for the states of an action that has others.", []string{"action", "state"}, nil)
	repairAgeDesc = prometheus.NewDesc("oncemore_compensation_oldest_seconds", "How long ago the oldest compensation of a state was asked for; absent where there is none.", []string{"action", "state"}, nil)
	atWorkDesc    = prometheus.NewDesc("oncemore_compensation_amount_at_work", "Amount without signs that is approved and not yet verified, by currency. A float: for graphs and limits, not for books.", []string{"currency"}, nil)
	attemptsDesc  = prometheus.NewDesc("oncemore_compensation_attempts_total", "Calls and statements of this process by kind, direction and outcome.", []string{"kind", "direction", "outcome"}, nil)
	spentDesc     = prometheus.NewDesc("oncemore_compensation_day_amount", "Amount without signs that an action has started today, in the day of its zone. A float: for graphs and limits, not for books.", []string{"action", "currency"}, nil)
	dayLimitDesc  = prometheus.NewDesc("oncemore_compensation_day_limit", "What an action may start a day in a currency; absent where there is no limit.", []string{"action", "currency"}, nil)
	stoppedDesc   = prometheus.NewDesc("oncemore_compensation_stopped", "1 while the kill switch keeps the schedule from repairing anything by itself.", nil, nil)
)

// liveStates are those that a gauge is kept of.
var liveStates = []compensate.State{compensate.Proposed, compensate.Approved, compensate.Running, compensate.Verifying, compensate.NeedsAttention}

// compensations tells how the repairs stand.
func (c collector) compensations(ctx context.Context, out chan<- prometheus.Metric) {
	all := c.s.Compensations
	if all == nil {
		return
	}
	for _, t := range all.Attempted() {
		counter(out, attemptsDesc, t.N, string(t.Kind), opNames[t.Op], t.Outcome)
	}
	if err := c.repairs(ctx, out, all); err != nil {
		c.s.Logger.Warn("compensations not read for the metrics", "error", err)
	}
}

func (c collector) repairs(ctx context.Context, out chan<- prometheus.Metric, all *compensate.Compensations) error {
	kill, err := all.Switch(ctx)
	if err != nil {
		return err
	}
	stopped := int64(0)
	if kill.StoppedBy != nil {
		stopped = 1
	}
	gauge(out, stoppedDesc, stopped)
	figures, err := all.Figures(ctx)
	if err != nil {
		return err
	}
	c.states(out, figures)
	work, err := all.Totals(ctx, compensate.Filter{States: compensationStates["at_work"]})
	if err != nil {
		return err
	}
	for _, t := range work {
		out <- prometheus.MustNewConstMetric(atWorkDesc, prometheus.GaugeValue, t.Amount.InexactFloat64(), t.Currency)
	}
	return c.spent(ctx, out, all)
}

func (c collector) states(out chan<- prometheus.Metric, figures []compensate.Figure) {
	now := c.s.Clock()
	by := map[string]map[compensate.State]compensate.Figure{}
	for _, f := range figures {
		if by[f.Action] == nil {
			by[f.Action] = map[compensate.State]compensate.Figure{}
		}
		by[f.Action][f.State] = f
	}
	for action, states := range by {
		for _, state := range liveStates {
			f := states[state]
			gauge(out, repairsDesc, f.Items, action, state.String())
			if f.Items > 0 {
				gauge(out, repairAgeDesc, int64(now.Sub(f.Oldest)/time.Second), action, state.String())
			}
		}
	}
}

func (c collector) spent(ctx context.Context, out chan<- prometheus.Metric, all *compensate.Compensations) error {
	actions, err := all.Actions.List(ctx)
	if err != nil {
		return err
	}
	for _, a := range actions {
		today, err := all.SpentToday(ctx, a.Action)
		if err != nil {
			return err
		}
		for _, s := range today {
			out <- prometheus.MustNewConstMetric(spentDesc, prometheus.GaugeValue, s.Amount.InexactFloat64(), s.Action, s.Currency)
			if s.Limit != nil {
				out <- prometheus.MustNewConstMetric(dayLimitDesc, prometheus.GaugeValue, s.Limit.InexactFloat64(), s.Action, s.Currency)
			}
		}
	}
	return nil
}
